// Which transport serves ext_proc: the one that is named, or the cheapest one made for the address.

import { expect } from "chai";
import { configOf, problemsOf, WORKER } from "./support.js";

const LOCAL = [
  "unix:/run/weir.sock",
  "127.0.0.1:9002",
  "127.8.0.9:9002",
  "localhost:9002",
  "[::1]:9002",
];
const OPEN = ["0.0.0.0:9002", "[::]:9002", "10.0.0.7:9002", "weir:9002", "127.example:9002"];

const listen = (address: string, transport: string): string =>
  `listen: { ext_proc: "${address}", transport: ${transport} }\n${WORKER}`;

describe("listen.transport", () => {
  for (const address of LOCAL) {
    it(`auto is h2c on ${address}, which only this host reaches`, () => {
      expect(configOf(listen(address, "auto")).listen.transport).to.equal("h2c");
    });
  }

  for (const address of OPEN) {
    it(`auto is http2 on ${address}, which others may reach, and h2c is refused there`, () => {
      expect(configOf(listen(address, "auto")).listen.transport).to.equal("http2");
      expect(problemsOf(listen(address, "h2c"))).to.deep.equal([
        `weir.yaml:1:${String(25 + address.length)} listen.transport: h2c is made for one trusted ` +
          "peer: listen.ext_proc must be a unix socket or a loopback address, " +
          `got ${address}; or take auto, http2 or grpc_js`,
      ]);
    });
  }

  it("is what is written, on any address that allows it", () => {
    for (const transport of ["h2c", "http2", "grpc_js"] as const) {
      expect(configOf(listen("127.0.0.1:9002", transport)).listen.transport).to.equal(transport);
    }
    expect(configOf(listen("0.0.0.0:9002", "grpc_js")).listen.transport).to.equal("grpc_js");
  });
});
