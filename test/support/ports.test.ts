import { createServer } from "node:net";
import { expect } from "chai";
import { freePort, freePortBase, freePorts, isFree } from "./ports.js";

describe("ports for tests", () => {
  it("sees that a port is taken while a server listens on it", async () => {
    const port = await freePort();
    expect(await isFree(port)).to.equal(true);
    const server = createServer();
    await new Promise<void>((done) => server.listen(port, "127.0.0.1", done));
    expect(await isFree(port)).to.equal(false);
    await new Promise((done) => server.close(done));
    expect(await isFree(port)).to.equal(true);
  });

  it("never hands out one port twice, and none that outgoing connections take", async () => {
    const ports = await freePorts(100);
    expect(new Set(ports).size).to.equal(100);
    expect(Math.max(...ports)).to.be.below(32_768);
  });

  it("gives a base whose whole family of ports is free", async () => {
    const base = await freePortBase();
    for (const offset of [0, 1, 2, 3, 11, 12, 13]) {
      expect(await isFree(base + offset), `offset ${String(offset)}`).to.equal(true);
    }
  });
});
