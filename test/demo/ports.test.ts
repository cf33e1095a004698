import { createServer } from "node:net";
import { expect } from "chai";
import { demoPorts, requireFreePorts } from "../../envoy/demo/ports.mjs";
import { demoPorts as configuredPorts } from "../../extproc/edge/config/demo-config.js";
import { freePorts } from "../support/ports.js";

function numbers(baseText: string | undefined): readonly number[] {
  return demoPorts(baseText).ports.map((entry) => entry.port);
}

describe("ports of the demo", () => {
  it("are the usual ones without WEIR_PORT_BASE", () => {
    for (const text of [undefined, ""]) {
      expect(numbers(text)).to.deep.equal([10_000, 9901, 9190, 9002, 8101, 8102, 8103]);
    }
  });

  it("are base to base + 3 and base + 11 to base + 13 with it", () => {
    expect(demoPorts("20000").base).to.equal(20_000);
    expect(numbers("20000")).to.deep.equal([
      20_000, 20_001, 20_002, 20_003, 20_011, 20_012, 20_013,
    ]);
  });

  it("are the ports that the demo's configuration names", () => {
    for (const base of [undefined, 20_000]) {
      const { envoy, envoyAdmin, weirAdmin, extProc, worker } = configuredPorts(base);
      const workers = [worker, worker + 1, worker + 2];
      expect(numbers(base?.toString())).to.deep.equal([
        ...[envoy, envoyAdmin, weirAdmin, extProc],
        ...workers,
      ]);
    }
  });

  it("reach up to the highest port there is and not one further", () => {
    expect(Math.max(...numbers("65522"))).to.equal(65_535);
    for (const text of ["65523", "0", "-1", "abc", "1e4", "20000.5", " 20000"]) {
      expect(() => demoPorts(text), text).to.throw(
        `WEIR_PORT_BASE=${text}: must be a whole number from 1 to 65522`,
      );
    }
  });

  it("are named with their purpose when they are in use, all at once", async () => {
    const [first, second = 0, third = 0] = await freePorts(3);
    const servers = [first, second].map((port) => createServer().listen(port, "127.0.0.1"));
    const entries = [
      { name: "envoy", port: first, for: "Envoy" },
      { name: "weirAdmin", port: second, for: "Weir's admin page" },
      { name: "extProc", port: third, for: "Weir's ext_proc server" },
    ];
    const problem = await requireFreePorts(entries).then(
      () => "free",
      (error: unknown) => (error as Error).message,
    );
    expect(problem.split("\n")).to.deep.equal([
      `port ${String(first)} (Envoy) is in use`,
      `port ${String(second)} (Weir's admin page) is in use`,
      "Stop what listens there, or set WEIR_PORT_BASE=B to use the ports B to B+3 and B+11 to B+13.",
    ]);
    await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
    await requireFreePorts(entries);
  });
});
