// Runs every benchmark once and briefly, so that none of them rots. What they measure is for people.

import { expect } from "chai";
import { startProcess } from "../support/process.js";

describe("npm run bench", () => {
  it("prints ratios to plain Envoy for each workload and to proto-loader's codec, without errors", async () => {
    const bench = startProcess(process.execPath, ["test/bench/run.mjs", "--smoke"]);
    const end = await bench.ended;
    expect(end.code, bench.describe()).to.equal(0);
    for (const title of ["JSON 1 kB", "JSON 32 kB", "SSE, 32 tokens", "Weir's own CPU"]) {
      expect(bench.stdout).to.include(title);
    }
    expect(bench.stdout.match(/^ +ratio +(CPU )?\d+\.\d\dx/gm)).to.have.length(4);
    expect(bench.stdout.match(/ 0 errors/g)).to.have.length(6);
    expect(bench.stdout.match(/waiters +\d+\.\d\d us +ratio \d+\.\d\dx/g)).to.have.length(4);
  }).timeout(110_000);
});
