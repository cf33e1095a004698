// Goal: `npm start` brings up what it says, the requests it prints work, and nothing survives it,
// whichever way it ends. Method: the real script in a process of its own, on ports of its own.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "chai";
import { request } from "../support/http-client.js";
import { freePortBase, isFree } from "../support/ports.js";
import { startProcess, type RunningProcess } from "../support/process.js";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const OFFSETS = [0, 1, 2, 3, 11, 12, 13];
/** The build may have to run first, on a machine that does other work. */
const UP_LIMIT_MS = 100_000;
const POLL_MS = 50;

const CHAT_LINE =
  /^ {2}curl -s http:\/\/127\.0\.0\.1:(\d+)(\S+) -H '([\w-]+): ([^']+)' (?:-N )?-d '([^']+)'$/;
const GREP_LINE = /^ {2}curl -s http:\/\/127\.0\.0\.1:(\d+)(\S+) \| grep '\^(\w+)'$/;

/** Does what a printed curl line does, so that the test needs no curl; any other line fails. */
async function runCurl(line: string): Promise<string> {
  const chat = CHAT_LINE.exec(line);
  const [, port, path = "", ...rest] = chat ?? GREP_LINE.exec(line) ?? [];
  if (chat !== null) {
    const [name = "", value = "", body = ""] = rest;
    const answer = await request({ port: Number(port), path, headers: [[name, value]], body });
    return answer.body.toString();
  }
  const [prefix] = rest;
  if (prefix === undefined) throw new Error(`not a curl line of a known form: ${line}`);
  const page = (await request({ port: Number(port), path })).body.toString();
  return page
    .split("\n")
    .filter((one) => one.startsWith(prefix))
    .join("\n");
}

describe("npm start", function () {
  this.timeout(120_000);
  let base = 0;
  let folder = "";
  let env: Record<string, string | undefined> = {};
  let demo: RunningProcess;

  beforeEach(async () => {
    base = await freePortBase();
    folder = await mkdtemp(join(tmpdir(), "weir-start-"));
    env = { ...process.env, WEIR_PORT_BASE: String(base), TMPDIR: folder };
    demo = startProcess(process.execPath, [join(REPOSITORY, "envoy/demo/start.mjs")], {
      name: "npm start",
      env,
    });
    await demo.waitForOutput(/Ctrl-C ends everything/, UP_LIMIT_MS);
  });
  afterEach(async () => {
    await demo.stop();
    await rm(folder, { recursive: true, force: true });
  });

  async function portsInUse(): Promise<readonly number[]> {
    const ports = OFFSETS.map((offset) => base + offset);
    const free = await Promise.all(ports.map((port) => isFree(port)));
    return ports.filter((_port, index) => free[index] === false);
  }

  async function untilPortsAreFree(limitMs: number): Promise<void> {
    const start = Date.now();
    while ((await portsInUse()).length > 0) {
      if (Date.now() - start > limitMs) {
        throw new Error(`still in use: ${(await portsInUse()).join(", ")}`);
      }
      await new Promise((done) => setTimeout(done, POLL_MS));
    }
  }

  it("prints three requests that work, and ends by Ctrl-C with exit code 0", async () => {
    expect(await portsInUse()).to.have.length(OFFSETS.length);
    const commands = demo.stdout.split("\n").filter((line) => line.startsWith("  curl "));
    expect(commands).to.have.length(3);
    const [json, stream] = await Promise.all(commands.slice(0, 2).map(runCurl));
    const answer = JSON.parse(json ?? "") as { usage: { completion_tokens: number } };
    expect(answer.usage.completion_tokens).to.be.greaterThan(0);
    const events = (stream ?? "").trim().split("\n\n");
    expect(events.length).to.be.greaterThan(3);
    expect(events.at(-1)).to.equal("data: [DONE]");
    const metrics = await runCurl(commands[2] ?? "");
    expect(metrics).to.match(/^weir_fair_share_charged\S* [1-9]\d*$/m);

    demo.signal("SIGINT");
    expect(await demo.ended).to.deep.equal({ code: 0, signal: null });
    expect(await portsInUse()).to.deep.equal([]);
  });

  it("ends within five seconds also while an answer is running", async () => {
    const body = JSON.stringify({
      model: "demo",
      stream: true,
      max_tokens: 10_000,
      messages: [{ role: "user", content: "Hello" }],
    });
    const headers = [["content-type", "application/json"]] as const;
    const path = "/v1/chat/completions";
    const started = new Promise<void>((done) => {
      const onChunk = (): void => {
        done();
      };
      void request({ port: base, path, headers, body, onChunk, limitMs: 60_000 }).catch(
        () => undefined,
      );
    });
    await started;
    demo.signal("SIGINT");
    await demo.waitUntil(() => demo.end !== undefined, "end", 5_000);
    expect(demo.end).to.deep.equal({ code: 0, signal: null });
    expect(await portsInUse()).to.deep.equal([]);
  });

  it("refuses to start a second time on the same ports, naming them", async () => {
    const second = startProcess(process.execPath, [join(REPOSITORY, "envoy/demo/start.mjs")], {
      env,
    });
    expect((await second.ended).code).to.equal(1);
    expect(second.stderr).to.include(`port ${String(base)} (Envoy) is in use`);
    expect(second.stderr).to.include("WEIR_PORT_BASE");
  });

  it("says which program ended, ends the others and exits with 1", async () => {
    await request({ port: base + 1, method: "POST", path: "/quitquitquit" });
    expect(await demo.ended).to.deep.equal({ code: 1, signal: null });
    expect(demo.stderr).to.include("envoy has ended (exit 0). Its last lines:");
    expect(await portsInUse()).to.deep.equal([]);
  });

  it("leaves no program behind when it is killed hard", async () => {
    demo.signal("SIGKILL");
    await demo.ended;
    await untilPortsAreFree(10_000);
  });
});
