import { expect } from "chai";
import { startProcess, type RunningProcess } from "./process.js";

function node(script: string): RunningProcess {
  return startProcess(process.execPath, ["-e", script], { name: "child" });
}

async function problemOf(promise: Promise<unknown>): Promise<string> {
  return await promise.then(
    () => "no problem",
    (error: unknown) => (error as Error).message,
  );
}

describe("programs started by tests", () => {
  it("captures both outputs and the exit code", async () => {
    const child = node("console.log('out'); console.error('err'); process.exitCode = 3;");
    expect(await child.ended).to.deep.equal({ code: 3, signal: null });
    expect(child.stdout).to.equal("out\n");
    expect(child.stderr).to.equal("err\n");
  });

  it("ends a program that obeys SIGTERM by SIGTERM", async () => {
    const child = node("setInterval(() => {}, 1000); console.log('up');");
    await child.waitForOutput(/up/);
    expect(await child.stop()).to.deep.equal({ code: null, signal: "SIGTERM" });
  });

  it("ends a program that ignores SIGTERM by SIGKILL", async () => {
    const child = node(
      "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000); console.log('up');",
    );
    await child.waitForOutput(/up/);
    expect(await child.stop(50)).to.deep.equal({ code: null, signal: "SIGKILL" });
    expect(await child.stop(50)).to.deep.equal({ code: null, signal: "SIGKILL" });
  });

  it("gives what was printed when the wanted line never comes", async () => {
    const child = node("console.error('cannot bind');");
    const problem = await problemOf(child.waitForOutput(/ready/));
    expect(problem).to.include("did not print /ready/: it ended first");
    expect(problem).to.include("cannot bind");
  });

  it("says that time is up when the program stays silent", async () => {
    const child = node("setInterval(() => {}, 1000);");
    expect(await problemOf(child.waitForOutput(/ready/, 20))).to.include("20 ms have passed");
    await child.stop();
  });

  it("treats a program that does not exist as ended", async () => {
    const child = startProcess("/nowhere/program", []);
    expect(await child.ended).to.deep.equal({ code: null, signal: null });
    expect(child.stderr).to.include("ENOENT");
    expect(child.pid).to.equal(0);
  });
});
