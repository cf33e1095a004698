import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { createLog, RateLimitedLog } from "../../../extproc/edge/telemetry/log.js";

describe("createLog", () => {
  it("writes one JSON object per line, redacts secrets by name, and keeps lines until flushed", () => {
    const folder = mkdtempSync(join(tmpdir(), "weir-log-"));
    try {
      const file = join(folder, "log");
      const { log, flush } = createLog("info", openSync(file, "w"));
      log.debug("not written at this level");
      log.info({ authorization: "Bearer s3cret", headers: { "x-api-key": "s3cret" } }, "hello");
      flush();
      const lines = readFileSync(file, "utf8").trim().split("\n");
      expect(lines).to.have.length(1);
      const entry = JSON.parse(lines[0] ?? "") as Record<string, unknown>;
      expect(entry).to.include({ level: "info", msg: "hello", authorization: "[redacted]" });
      expect(lines[0]).to.not.include("s3cret");
      expect(entry["time"]).to.match(/^\d{4}-\d\d-\d\dT/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe("RateLimitedLog", () => {
  it("lets one message per key and period through and counts those it swallowed", () => {
    let now = 0;
    const limited = new RateLimitedLog(10_000, () => now);
    const written: [string, number][] = [];
    const say = (key: string): void => {
      limited.once(key, (swallowed) => written.push([key, swallowed]));
    };
    say("a");
    say("a");
    say("b");
    now = 9_999;
    say("a");
    now = 10_000;
    say("a");
    expect(written).to.deep.equal([
      ["a", 0],
      ["b", 0],
      ["a", 2],
    ]);
  });
});
