// Goal: nothing that goes wrong in a run of mocha or in a check is counted as fine. Method: small
// test files planted in a temporary folder, each with one fault, run as `npm test` runs its rings.
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { runCheck, runMocha, type RingCounts } from "./rings.mjs";

describe("counting the parts of npm test", function () {
  this.timeout(20_000);
  let root = "";
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "weir-rings-"));
  });
  afterEach(async () => {
    await rm(root, { recursive: true, force: true });
  });

  async function run(
    text: string,
    limits: { readonly limitMs?: number; readonly graceMs?: number } = {},
  ): Promise<RingCounts> {
    await writeFile(join(root, "planted.cjs"), text);
    return await runMocha({
      name: "planted",
      files: ["planted.cjs"],
      args: ["--forbid-only", "--forbid-pending"],
      timeoutMs: 5_000,
      limitMs: 15_000,
      root,
      stdio: ["ignore", "ignore", "ignore"],
      ...limits,
    });
  }

  it("counts what passed and what failed, and names what failed", async () => {
    const counts = await run(
      "it('good', () => {}); it('fine', () => {}); it('bad', () => { throw new Error('x'); });",
    );
    expect(counts).to.deep.equal({
      passed: 2,
      failed: 1,
      skipped: 0,
      failures: ["planted: bad"],
    });
  });

  it("counts a failed hook", async () => {
    const counts = await run("before(() => { throw new Error('x'); }); it('never', () => {});");
    expect([counts.passed, counts.failed]).to.deep.equal([0, 1]);
  });

  it("counts a crash in the middle as a failure, and keeps what had passed", async () => {
    const counts = await run("it('good', () => {}); it('gone', () => { process.exit(0); });");
    expect([counts.passed, counts.failed]).to.deep.equal([1, 1]);
    expect(counts.failures).to.deep.equal(["planted: mocha ended early during: gone"]);
  });

  it("counts a file that cannot be loaded as a failure", async () => {
    const counts = await run("this is not JavaScript");
    expect([counts.passed, counts.failed]).to.deep.equal([0, 1]);
    expect(counts.failures[0]).to.match(/^planted: mocha exit \d+ during: loading$/);
  });

  it("counts a crash after the last test as a failure", async () => {
    const counts = await run(
      "it('good', () => {}); after(() => { setTimeout(() => process.kill(process.pid, 'SIGABRT'), 200); });",
    );
    expect([counts.passed, counts.failed]).to.deep.equal([1, 1]);
  });

  it("ends a run that hangs, and names the test it hung in", async () => {
    const counts = await run("it('endless', () => { for (;;) {} });", { limitMs: 1_500 });
    expect([counts.passed, counts.failed]).to.deep.equal([0, 1]);
    expect(counts.failures).to.deep.equal([
      "planted: mocha was stopped after 1.5 s during: endless",
    ]);
  });

  it("ends a run that does not exit because something is still open", async () => {
    const counts = await run("it('good', () => { setInterval(() => {}, 1000); });", {
      graceMs: 100,
    });
    expect([counts.passed, counts.failed]).to.deep.equal([1, 1]);
    expect(counts.failures[0]).to.include("something is still open");
  });

  it("ends the programs that a test left behind", async () => {
    const counts = await run(`
      const { spawn } = require("node:child_process");
      const { writeFileSync } = require("node:fs");
      it("leaves a program", () => {
        const left = spawn("sleep", ["600"], { stdio: "ignore" });
        left.unref();
        writeFileSync("pid", String(left.pid));
      });`);
    expect([counts.passed, counts.failed]).to.deep.equal([1, 0]);
    const pid = Number(await readFile(join(root, "pid"), "utf8"));
    const stateOf = (): Promise<string> =>
      readFile(`/proc/${String(pid)}/stat`, "utf8").catch(() => "gone");
    // A killed program that nobody has waited for yet stays as a zombie (Z), and takes a moment to die.
    let state = await stateOf();
    for (let tries = 0; !/^gone$|\) Z /.test(state) && tries < 200; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      state = await stateOf();
    }
    expect(state).to.match(/^gone$|\) Z /);
  });

  it("does not let a focused test hide the others", async () => {
    const counts = await run("it.only('alone', () => {}); it('hidden', () => {});");
    expect(counts.failed).to.be.greaterThan(0);
  });

  it("does not let a pending test pass", async () => {
    const counts = await run("it('later');");
    expect(counts.failed).to.be.greaterThan(0);
  });

  it("counts a check by its exit code and keeps what it printed", async () => {
    const scripts = { good: "node -e 0", bad: 'node -e "console.log(1+1);process.exit(4)"' };
    await writeFile(join(root, "package.json"), JSON.stringify({ scripts }));
    const good = await runCheck({ name: "Good", script: "good", root, limitMs: 15_000 });
    expect([good.passed, good.failed]).to.deep.equal([1, 0]);
    const bad = await runCheck({ name: "Bad", script: "bad", root, limitMs: 15_000 });
    expect([bad.passed, bad.failed]).to.deep.equal([0, 1]);
    expect(bad.failures).to.deep.equal(["Bad: exit 4"]);
    expect(bad.output).to.include("2");
  });
});
