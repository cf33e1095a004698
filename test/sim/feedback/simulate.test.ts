// Runs every scenario of engine feedback in `npm run simulate`, so that none of them rots, and holds what it
// says to what the closed loop must show. At their usual length: in half an hour the first ten seconds of
// a flood, before any limit is known, are more than one request in a hundred.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { runSimulate } from "../command/command.js";
import { FEEDBACK_DEMONSTRATIONS } from "./demonstrations.js";

const NAMES = Object.keys(FEEDBACK_DEMONSTRATIONS);

async function run(...args: string[]): Promise<{ code: number; out: string; errors: string }> {
  const out: string[] = [];
  const errors: string[] = [];
  const code = await runSimulate(args, {
    print: (text) => out.push(text),
    complain: (text) => errors.push(text),
  });
  return { code, out: out.join("\n"), errors: errors.join("\n") };
}

/** The numbers in a row of the table, one list per dress. */
function figures(out: string, row: string): number[][] {
  const lines = out.split("\n").filter((line) => line.startsWith(`${row} `));
  return lines.map((line) =>
    line
      .slice(row.length)
      .replaceAll(/[^\d. ]/g, "")
      .trim()
      .split(/ +/)
      .map(Number),
  );
}

describe("npm run simulate, engine feedback", function () {
  this.timeout(60_000);
  let folder = "";
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "weir-simulate-"));
  });
  after(async () => {
    await rm(folder, { recursive: true });
  });

  it("has a step, a ramp, a knee that halves or doubles, and a backlog", () => {
    const kinds = ["step", "ramp", "halving", "doubling", "backlog"];
    expect(NAMES).to.deep.equal(kinds.map((kind) => `feedback-${kind}`));
  });

  for (const name of NAMES) {
    it(`prints and draws ${name}: as fast as the oracle, with a fraction of the static waiting`, async () => {
      const file = join(folder, `${name}.svg`);
      const { code, out, errors } = await run("--scenario", name, "--out", file);
      expect({ code, errors }).to.deep.equal({ code: 0, errors: "" });
      expect(out).to.include("60 virtual minutes, seed 1");
      const learned = figures(out, "learned");
      const fixed = figures(out, "static, 2x too high");
      const oracle = figures(out, "oracle");
      // The line on the knee begins with the same word as the row of the table.
      expect([learned.length, fixed.length, oracle.length]).to.deep.equal([4, 2, 2]);
      for (const dress of [0, 1]) {
        const [, share = 0, , p99 = Number.NaN] = learned[2 * dress] ?? [];
        const [, , , staticP99 = Number.NaN] = fixed[dress] ?? [];
        expect(share, "part of the oracle's throughput").to.be.within(95, 105);
        expect(p99, "seconds in the engines' queues").to.be.at.most(staticP99 / 2);
      }
      for (const [, share] of oracle) expect(share).to.equal(100);
      expect(out.match(/^knee of the engines +32\.0 /gm)).to.have.length(2);
      expect(out).to.not.include("NaN").and.to.not.include("Infinity");

      const svg = await readFile(file, "utf8");
      expect(svg)
        .to.match(/^<svg /)
        .and.to.include("</svg>");
      for (const text of [
        "time (minutes)",
        "requests per replica",
        "tokens per second",
        "limit",
        "learned knee",
        "running",
        "waiting",
        "knee of the engines",
        "oracle",
      ]) {
        expect(svg).to.include(`>${text}<`);
      }
    });
  }

  it("needs half an hour: a shorter run shows nothing, and is refused with what is allowed", async () => {
    const { code, errors } = await run("--scenario", "feedback-halving", "--minutes", "29");
    expect(code).to.equal(2);
    expect(errors).to.include('--minutes: a number from 30 to 10080, got "29"');
  });

  it("stands in the list of scenarios", async () => {
    const { code, out } = await run();
    expect(code).to.equal(0);
    for (const name of NAMES) expect(out).to.match(new RegExp(`^  ${name} `, "m"));
  });
});
