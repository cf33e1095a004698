// The arithmetic of the benchmarks and their ways to what they run: figures that are wrong, or a
// program that is missing without a word, would go unnoticed in what they print.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { startProcess } from "../support/process.js";
import { chatBodies } from "./bodies.js";
import type { Sample } from "./load.js";
import { cpuMicros, median, processTree, quantile } from "./measure.js";
import { installPeer, PEERS } from "./peers.js";
import { alternate } from "./rounds.js";
import { markdownTable } from "./table.js";
import type { Targets } from "./targets.js";
import { findWrk } from "./wrk.js";

async function errorOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "none",
    (error: unknown) => String(error),
  );
}

function sample(cpu: readonly number[], p99Ms: number): Sample {
  return { answers: 100, seconds: 2, errors: 1, p50Ms: 1, p99Ms, cpuMicros: cpu };
}

describe("what benchmarks are made of", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "weir-bench-test-"));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  it("takes medians and quantiles, between two values where they fall so", () => {
    expect(median([3, 1, 2])).to.equal(2);
    expect(median([4, 1, 2, 3])).to.equal(2.5);
    expect(quantile([0, 10, 20, 30, 40], 0.9)).to.equal(36);
    expect(median([])).to.be.NaN;
  });

  it("takes ratios within their round, in rounds that alternate", async () => {
    const targets: Targets = [
      { title: "plain", port: 1, envoyPid: 11, weir: false },
      { title: "both", port: 2, envoyPid: 21, serverPid: 22, weir: true },
      { title: "peer", port: 3, serverPid: 32, weir: false },
    ];
    // The machine is three times slower in the second round, and twice in the third.
    const slowness = [1, 3, 2];
    const order: string[] = [];
    const runs: Record<string, number> = {};
    const summaries = await alternate(
      targets,
      { rounds: 3, seconds: 2, warmUpSeconds: 5 },
      ({ title }, watched, warmUpSeconds) => {
        order.push(`${title} ${watched.join("+")} ${String(warmUpSeconds)}`);
        const round = runs[title] ?? 0;
        runs[title] = round + 1;
        const slow = slowness[round] ?? NaN;
        if (title === "plain") return Promise.resolve(sample([100 * slow], 4 * slow));
        if (title === "both") return Promise.resolve(sample([200 * slow, 50 * slow], 6 * slow));
        return Promise.resolve(sample([300 * slow], round === 1 ? 36 : 8));
      },
    );
    expect(order.slice(0, 4)).to.deep.equal([
      "plain 11 5",
      "both 21+22 5",
      "peer 32 5",
      "plain 11 0",
    ]);
    const [plain, both, peer] = summaries;
    expect(plain).to.include({ cpuRatio: 1, totalMicros: 200, answersPerSecond: 50 });
    expect(both).to.include({ envoyMicros: 400, serverMicros: 100, totalMicros: 500 });
    expect(both).to.include({ cpuRatio: 2.5, cpuRatioMin: 2.5, cpuRatioMax: 2.5, p99Ratio: 1.5 });
    expect(peer).to.include({ envoyMicros: 0, serverMicros: 600, cpuRatio: 3, errors: 3 });
    // 2, 3 and 1 in the three rounds; the ratio of the medians would be 1.
    expect(peer).to.include({ p99Ms: 8, p99Ratio: 2 });
  });

  it("charges a process with the CPU of its children", async () => {
    const parent = startProcess("sh", ["-c", "sleep 30 & echo started; wait"]);
    await parent.waitForOutput(/started/);
    expect(processTree(parent.pid)).to.have.length(2);
    expect(cpuMicros(process.pid)).to.be.above(0);
    for (const pid of processTree(parent.pid).slice(1)) process.kill(pid);
    await parent.stop();
  });

  it("aligns tables as the formatter does", () => {
    expect(
      markdownTable(
        ["", "us"],
        [
          ["Envoy", "1234"],
          ["x", "5"],
        ],
      ),
    ).to.deep.equal([
      "|       |   us |",
      "| ----- | ---: |",
      "| Envoy | 1234 |",
      "| x     |    5 |",
    ]);
  });

  it("asks with bodies of the wanted size, one line each, the first half the same in all", () => {
    const bodies = chatBodies(1_024, { stream: true });
    expect(new Set(bodies)).to.have.property("size", 16);
    for (const body of bodies) expect(body).to.have.length(1_024).and.to.not.include("\n");
    expect(new Set(bodies.map((body) => body.slice(0, 512)))).to.have.property("size", 1);
  });

  it("names the four ways to wrk when there is none", async () => {
    const env = { PATH: folder, XDG_CACHE_HOME: folder };
    const error = await errorOf(findWrk(env));
    for (const way of ["WRK_BIN", "wrk on PATH", `cache: no working wrk in ${folder}`, "apt-get"]) {
      expect(error).to.include(way);
    }
    const wrong = await errorOf(findWrk({ ...env, WRK_BIN: "/bin/true" }));
    expect(wrong).to.include("WRK_BIN=/bin/true does not answer --version as wrk");
  });

  it("says why another gateway cannot be installed", async () => {
    const [peer] = PEERS;
    if (peer === undefined) throw new Error("there is no peer");
    const installed = await installPeer(peer, { PATH: folder, XDG_CACHE_HOME: folder });
    expect(installed).to.deep.equal({
      problem: `python3 -m venv ${join(folder, "weir", "peers", "smg-1.13.0")}: spawn python3 ENOENT`,
    });
  });
});
