// The batch on a manual clock: nothing here waits for real time, except for the turn of the event
// loop that a delay of 0 takes.
import { expect } from "chai";
import fc from "fast-check";
import { ManualClock } from "../../envoy/mock-worker/clock.js";
import { Engine, type JobHandle, type JobSpec } from "../../envoy/mock-worker/engine.js";
import { KvCache } from "../../envoy/mock-worker/kv-cache.js";

interface Probe {
  readonly handle: JobHandle;
  readonly tokensAt: number[];
  admittedAt?: number;
  endedAt?: number;
  finish?: string;
  cached?: readonly number[];
}

class Bench {
  readonly clock = new ManualClock();
  readonly cache: KvCache;
  readonly engine: Engine;

  constructor(options: {
    slots: number;
    msPerToken: number;
    prefillMsPerBlock?: number;
    kvBlocks?: number;
  }) {
    this.cache = new KvCache({ capacityBlocks: options.kvBlocks ?? 1000, blockChars: 4 });
    this.engine = new Engine({
      slots: options.slots,
      msPerToken: options.msPerToken,
      prefillMsPerBlock: options.prefillMsPerBlock ?? 0,
      clock: this.clock,
      cache: this.cache,
    });
  }

  submit(spec: Partial<JobSpec> = {}): Probe {
    const heard: Omit<Probe, "handle"> = { tokensAt: [] };
    const handle = this.engine.submit(
      {
        requestName: undefined,
        prompts: ["abc"],
        choicesPerPrompt: 1,
        outputTokens: 4,
        finish: "stop",
        extraDelayMs: 1,
        hang: false,
        tellTokens: true,
        ...spec,
      },
      {
        admitted: (grant) => {
          heard.admittedAt = this.clock.now();
          heard.cached = grant.cachedTokens;
        },
        token: () => heard.tokensAt.push(this.clock.now()),
        ended: (finish) => {
          heard.endedAt = this.clock.now();
          heard.finish = finish;
        },
      },
    );
    return Object.assign(heard, { handle });
  }
}

describe("Engine", () => {
  it("gives one token per pace after prefill and ends with the last one", () => {
    const bench = new Bench({ slots: 1, msPerToken: 10 });
    const job = bench.submit({ outputTokens: 3, extraDelayMs: 5 });
    bench.clock.advance(100);
    expect(job.tokensAt).to.deep.equal([15, 25, 35]);
    expect(job.endedAt).to.equal(35);
  });

  it("keeps a fractional pace over many tokens", () => {
    const bench = new Bench({ slots: 1, msPerToken: 0.3 });
    const job = bench.submit({ outputTokens: 1000, extraDelayMs: 1 });
    bench.clock.advance(1000);
    expect(job.tokensAt).to.have.length(1000);
    expect(job.endedAt).to.be.closeTo(301, 0.01);
  });

  it("spends prefill time on uncached prompt blocks only", () => {
    const bench = new Bench({ slots: 1, msPerToken: 10, prefillMsPerBlock: 7 });
    const prompts = ["aaaabbbbc"];
    const first = bench.submit({ prompts, outputTokens: 1, extraDelayMs: 0 });
    bench.clock.advance(100);
    // Three blocks of 7 ms and one token.
    expect(first.tokensAt).to.deep.equal([31]);
    const second = bench.submit({ prompts, outputTokens: 1, extraDelayMs: 0 });
    bench.clock.advance(100);
    // Two of three blocks are cached: a block is one token of four characters here.
    expect(second.cached).to.deep.equal([2]);
    expect(second.tokensAt).to.deep.equal([100 + 7 + 10]);
  });

  it("runs at most its slots and lets the rest wait in order of arrival", () => {
    const bench = new Bench({ slots: 2, msPerToken: 10 });
    const jobs = [1, 2, 3, 4].map((outputTokens) => bench.submit({ outputTokens }));
    expect([bench.engine.running, bench.engine.waiting]).to.deep.equal([2, 2]);
    bench.clock.advance(1000);
    // Job 0 ends at 11 and gives job 2 its slot, job 1 ends at 21 and gives it to job 3.
    expect(jobs.map((job) => job.admittedAt)).to.deep.equal([0, 0, 11, 21]);
    expect(bench.engine.counters.peakRunning).to.equal(2);
    expect(bench.engine.counters.served).to.equal(4);
  });

  it("frees the slot of a client that goes away and lets the next one in at once", () => {
    const bench = new Bench({ slots: 1, msPerToken: 10 });
    const first = bench.submit();
    const second = bench.submit();
    bench.clock.advance(15);
    first.handle.stop("cancelled");
    expect(second.admittedAt).to.equal(15);
    expect(bench.engine.counters.cancelled).to.equal(1);
    bench.clock.advance(1000);
    expect(first.tokensAt).to.deep.equal([11]);
    expect(first.endedAt).to.equal(undefined);
    expect(bench.engine.counters.served).to.equal(1);
    expect(bench.cache.usedBlocks).to.equal(0);
  });

  it("forgets a waiting request whose client goes away", () => {
    const bench = new Bench({ slots: 1, msPerToken: 10 });
    bench.submit();
    const second = bench.submit();
    second.handle.stop("cancelled");
    expect(bench.engine.waiting).to.equal(0);
    bench.clock.advance(1000);
    expect(second.admittedAt).to.equal(undefined);
  });

  it("counts a request once, however often it is stopped", () => {
    const bench = new Bench({ slots: 1, msPerToken: 10 });
    const job = bench.submit({ outputTokens: 1 });
    bench.clock.advance(100);
    job.handle.stop("cancelled");
    const other = bench.submit();
    other.handle.stop("cancelled");
    other.handle.stop("faulted");
    expect(bench.engine.counters).to.include({ served: 1, cancelled: 1, faulted: 0 });
  });

  it("lets a request wait for cache room although a slot is free", () => {
    const bench = new Bench({ slots: 8, msPerToken: 10, kvBlocks: 6 });
    // One prompt block and four output blocks: 5 of 6.
    const first = bench.submit({ outputTokens: 4 });
    const second = bench.submit({ outputTokens: 4 });
    expect([bench.engine.running, bench.engine.waiting]).to.deep.equal([1, 1]);
    bench.clock.advance(1000);
    expect(second.admittedAt).to.equal(first.endedAt);
  });

  it("holds the slot of a hanging request until its client leaves", () => {
    const bench = new Bench({ slots: 1, msPerToken: 10 });
    const job = bench.submit({ hang: true });
    bench.clock.advance(1_000_000);
    expect(bench.engine.running).to.equal(1);
    job.handle.stop("cancelled");
    expect(bench.engine.running).to.equal(0);
  });

  it("aborts by name or all, running and waiting, with finish reason abort", () => {
    const bench = new Bench({ slots: 1, msPerToken: 10 });
    const jobs = ["a", "b", "c"].map((requestName) => bench.submit({ requestName }));
    expect(bench.engine.abort({ requestName: "b" })).to.equal(1);
    expect(jobs[1]?.finish).to.equal("abort");
    expect(bench.engine.abort({ all: true })).to.equal(2);
    expect(jobs.map((job) => job.finish)).to.deep.equal(["abort", "abort", "abort"]);
    expect(bench.engine.running + bench.engine.waiting).to.equal(0);
  });

  it("reports tokens of the last second as throughput", () => {
    const bench = new Bench({ slots: 2, msPerToken: 10 });
    bench.submit({ outputTokens: 300, choicesPerPrompt: 2 });
    bench.clock.advance(2000);
    // 100 steps a second of two choices each; the running 100 ms bucket has just begun.
    expect(bench.engine.throughput.perSecond(bench.clock.now())).to.be.within(180, 200);
    bench.clock.advance(5000);
    expect(bench.engine.throughput.perSecond(bench.clock.now())).to.equal(0);
  });

  it("never exceeds slots or cache and ends every request once, in any order of events", () => {
    const event = fc.oneof(
      fc.record({ kind: fc.constant("submit" as const), size: fc.integer({ min: 0, max: 12 }) }),
      fc.record({ kind: fc.constant("stop" as const), which: fc.nat(20) }),
      fc.record({ kind: fc.constant("advance" as const), ms: fc.integer({ min: 0, max: 60 }) }),
    );
    fc.assert(
      fc.property(fc.array(event, { maxLength: 60 }), (events) => {
        const bench = new Bench({ slots: 3, msPerToken: 10, kvBlocks: 20, prefillMsPerBlock: 2 });
        const jobs: Probe[] = [];
        for (const step of events) {
          if (step.kind === "submit") {
            const prompts = ["abcd".repeat(step.size) + "x"];
            jobs.push(bench.submit({ prompts, outputTokens: step.size }));
          } else if (step.kind === "stop") jobs[step.which]?.handle.stop("cancelled");
          else bench.clock.advance(step.ms);
          expect(bench.engine.running).to.be.at.most(3);
          expect(bench.cache.usedBlocks).to.be.at.most(20);
          expect(bench.cache.cachedBlocks).to.be.at.most(20);
        }
        bench.clock.advance(100_000);
        const { served, cancelled } = bench.engine.counters;
        expect(served + cancelled).to.equal(jobs.length);
        expect(bench.engine.running + bench.engine.waiting).to.equal(0);
        expect(bench.cache.usedBlocks).to.equal(0);
      }),
      { numRuns: 200, seed: 20_260_101 },
    );
  });
});
