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
    expect(bench.stdout.match(/ queued +\d+\.\d\d us +ratio \d+\.\d\dx/g)).to.have.length(4);
    // Three tenants with Weir and without it, no refusal among their requests, and four bars.
    expect(bench.stdout.match(/ connections +\d+\.\d requests\/s .* errors 0$/gm)).to.have.length(
      6,
    );
    expect(bench.stdout.match(/^ +(PASS|MISS) /gm)).to.have.length(4);
    expect(bench.stdout.match(/ % +\d\.\d\d +\d+ ms +\d+ ms {2}\w+ \d+ %/g)).to.have.length(7);
  }).timeout(110_000);

  it("shows that cache_aware finds more of the prompts in caches than policies that go by load", async () => {
    const bench = startProcess(process.execPath, ["test/bench/run.mjs", "selection", "--smoke"]);
    expect((await bench.ended).code, bench.describe()).to.equal(0);
    const cached = new Map<string, number>();
    for (const line of bench.stdout.matchAll(/^ {2}(\w.*?) {2,}(\d+\.\d) % /gm)) {
      cached.set(line[1] ?? "", Number(line[2]));
    }
    const others = ["power_of_two", "round_robin", "least_load"];
    const best = Math.max(...others.map((policy) => cached.get(policy) ?? NaN));
    const aware = [...cached].filter(([title]) => !others.includes(title));
    expect(aware).to.have.length(4);
    for (const [title, share] of aware) expect(share, title).to.be.above(best);
  }).timeout(60_000);

  it("reads large bodies of every kind among streams, and refuses none", async () => {
    const bench = startProcess(process.execPath, ["test/bench/run.mjs", "stall", "--smoke"]);
    expect((await bench.ended).code, bench.describe()).to.equal(0);
    expect(bench.stdout.match(/ms in \d+ steps {2}longest \d+\.\d\d ms/g)).to.have.length(9);
    expect(bench.stdout.match(/gaps p50 \d+\.\d ms {2}p99 \d+\.\d ms/g)).to.have.length(2);
    expect(bench.stdout).to.match(/^ {2}one text +[1-9]\d* bodies {2}0 refused$/m);
    expect(bench.stdout).to.not.match(/bodies {2}[1-9]\d* refused/);
  }).timeout(60_000);

  it("runs only what is named, and says which benchmarks there are", async () => {
    const one = startProcess(process.execPath, ["test/bench/run.mjs", "scheduler", "--smoke"]);
    expect((await one.ended).code, one.describe()).to.equal(0);
    expect(one.stdout.match(/waiters +\d+/g)).to.have.length(4);
    expect(one.stdout).to.not.include("JSON 1 kB");
    const unknown = startProcess(process.execPath, ["test/bench/run.mjs", "noise"]);
    expect((await unknown.ended).code).to.equal(1);
    const known = "gateway, scheduler, fair-share, noisy, prefixes, selection, stall, profile";
    expect(unknown.stderr).to.include(`no benchmark "noise"; there are: ${known}`);
  }).timeout(60_000);
});
