// Runs every benchmark once and briefly, so that none of them rots. What they measure is for people.

import { expect } from "chai";
import { startProcess, type RunningProcess } from "../support/process.js";

const bench = (...args: readonly string[]): RunningProcess =>
  startProcess(process.execPath, ["test/bench/run.mjs", ...args]);

describe("npm run bench", () => {
  it("prints one table per load with ratios to plain Envoy, without errors, and Weir's bars", async () => {
    const run = bench("--only", "gateway,codec", "--smoke");
    expect((await run.ended).code, run.describe()).to.equal(0);
    expect(run.stdout).to.match(/Linux .*, node v.*, Envoy 1\.\d+\.\d+ .*(wrk|own load client)/);
    const loads = [
      ...["1", "32"].flatMap((kB) =>
        ["at once", "after 60 ms"].map(
          (when) => `JSON, bodies of ${kB} kB, 64 connections, answers ${when}:`,
        ),
      ),
      ...["SSE, 32 ", "SSE, 100 "],
    ];
    for (const title of loads) expect(run.stdout).to.include(title);
    const rows = run.stdout.match(/^\| Envoy (alone|\+ Weir|\+ empty server) .*\|$/gm) ?? [];
    expect(rows).to.have.length(3 * loads.length);
    for (const row of rows) expect(row).to.match(/ \d+\.\d\d \(\d.* to \d.*\) .* 0 \|$/);
    expect(run.stdout.match(/^ +(PASS|MISS) .* times plain Envoy /gm)).to.have.length(8);
    expect(run.stdout).to.match(/^ +ratio +\d+\.\d\dx/m);
  }).timeout(110_000);

  it("prints what decisions of the core cost, and shares with and without Weir", async () => {
    const run = bench("scheduler", "fair-share", "noisy", "prefixes", "--smoke");
    expect((await run.ended).code, run.describe()).to.equal(0);
    expect(run.stdout).to.not.include("JSON");
    expect(run.stdout.match(/waiters +\d+\.\d\d us +ratio \d+\.\d\dx/g)).to.have.length(4);
    expect(run.stdout.match(/ queued +\d+\.\d\d us +ratio \d+\.\d\dx/g)).to.have.length(4);
    // Three tenants with Weir and without it, no refusal among their requests, and four bars.
    expect(run.stdout.match(/ connections +\d+\.\d requests\/s .* errors 0$/gm)).to.have.length(6);
    expect(run.stdout.match(/^ +(PASS|MISS) /gm)).to.have.length(4);
  }).timeout(110_000);

  it("shows that cache_aware finds more of the prompts in caches than policies that go by load", async () => {
    const run = bench("selection", "--smoke");
    expect((await run.ended).code, run.describe()).to.equal(0);
    expect(run.stdout.match(/ % +\d\.\d\d +\d+ ms +\d+ ms {2}\w+ \d+ %/g)).to.have.length(7);
    const cached = new Map<string, number>();
    for (const line of run.stdout.matchAll(/^ {2}(\w.*?) {2,}(\d+\.\d) % /gm)) {
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

  it("says which benchmarks and which values there are", async () => {
    const unknown = bench("noise");
    expect((await unknown.ended).code).to.equal(2);
    const known =
      "gateway, json-1k, json-32k, json-1k-paced, json-32k-paced, sse-32, sse-100, codec, scheduler, fair-share, noisy, prefixes, selection, stall, profile";
    expect(unknown.stderr).to.include(`no benchmark "noise"; there are: ${known}`);
    const never = bench("--rounds", "0");
    expect((await never.ended).code).to.equal(2);
    expect(never.stderr).to.include("--rounds must be a whole number from 1 to 1000, got 0");
  }).timeout(60_000);
});
