import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { removeStaleSocket } from "../../../extproc/edge/runtime/unix-socket.js";
import { startProcess } from "../../support/process.js";

describe("removeStaleSocket", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "weir-socket-"));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  it("removes the socket of a process that was killed", async () => {
    const path = join(folder, "s");
    const script = `require("node:net").createServer().listen(${JSON.stringify(path)}, () => console.log("up"))`;
    const server = startProcess(process.execPath, ["-e", script]);
    await server.waitForOutput(/up/);
    server.signal("SIGKILL");
    await server.ended;
    expect(existsSync(path)).to.equal(true);
    await removeStaleSocket(path);
    expect(existsSync(path)).to.equal(false);
  });

  it("leaves a socket alone that somebody listens on, a file that is no socket, and an empty path", async () => {
    const path = join(folder, "s");
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(path, resolve));
    await removeStaleSocket(path);
    expect(existsSync(path)).to.equal(true);
    await new Promise((resolve) => server.close(resolve));
    const file = join(folder, "file");
    writeFileSync(file, "x");
    await removeStaleSocket(file);
    expect(existsSync(file)).to.equal(true);
    await removeStaleSocket(join(folder, "nothing"));
  });
});
