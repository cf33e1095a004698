import { expect } from "chai";
import { monotonicMs, type MonotonicMs } from "../../../extproc/core/model/time.js";
import { sumOf, type Admission } from "../../../extproc/core/scheduler/admission.js";
import { Limiter, type LimiterOptions } from "../../../extproc/core/scheduler/limiter.js";
import type { Permit } from "../../../extproc/core/scheduler/permit.js";
import { RateCheck } from "../../../extproc/core/scheduler/rate-check.js";
import { TokenBucket } from "../../../extproc/core/scheduler/token-bucket.js";
import { ask } from "../../support/scheduler.js";

const at = (ms: number): MonotonicMs => monotonicMs(ms);

class LimiterBench {
  readonly limiter: Limiter<string>;
  readonly granted: string[] = [];
  readonly timedOut: string[] = [];
  readonly wakes: number[] = [];
  readonly permits = new Map<string, Permit>();
  now = at(0);

  constructor(options: Partial<LimiterOptions> = {}) {
    this.limiter = new Limiter<string>(
      { maxConcurrent: 1, tokensPerSecond: 0, queueSize: 2, queueTimeoutSecs: 60, ...options },
      {
        onGranted: (request, permit) => {
          this.granted.push(request);
          this.permits.set(request, permit);
        },
        onTimedOut: (request) => {
          this.timedOut.push(request);
        },
        onDisplaced: () => {
          throw new Error("the limiter displaces nobody");
        },
        onPreempted: () => {
          throw new Error("the limiter never preempts");
        },
        onWake: (when) => {
          this.wakes.push(when);
        },
      },
      this.now,
    );
  }

  ask(request: string): Admission<string> {
    const admission = this.limiter.admit(ask(request, 3), this.now);
    if (admission.kind === "granted") this.permits.set(request, admission.permit);
    return admission;
  }

  release(request: string): void {
    this.permits.get(request)?.release();
    this.limiter.dispatch(this.now);
  }

  advance(ms: number): void {
    this.now = at(this.now + ms);
    this.limiter.expire(this.now);
    this.limiter.dispatch(this.now);
  }
}

describe("Limiter", () => {
  it("L1 a queue of two bounds all who wait, also while tokens come by themselves", () => {
    const bench = new LimiterBench({ tokensPerSecond: 1 });
    expect(["a", "b", "c", "d"].map((request) => bench.ask(request).kind)).to.deep.equal([
      "granted",
      "queued",
      "queued",
      "queue_full",
    ]);
    bench.advance(1_000);
    expect(bench.granted).to.deep.equal(["b"]);
    expect(bench.ask("e").kind).to.equal("queued");
    expect(bench.ask("f").kind).to.equal("queue_full");
  });

  it("L2 a queue of none lets nobody wait", () => {
    const bench = new LimiterBench({ queueSize: 0 });
    expect([bench.ask("a").kind, bench.ask("b").kind]).to.deep.equal(["granted", "queue_full"]);
  });

  it("L3 a waiter that left frees its place at once, whatever the timeout", () => {
    const bench = new LimiterBench({ queueSize: 1, queueTimeoutSecs: 30 });
    bench.ask("a");
    const waiting = bench.ask("b");
    expect(waiting.kind === "queued" && bench.limiter.cancel(waiting.waiter)).to.equal(true);
    expect(waiting.kind === "queued" && bench.limiter.cancel(waiting.waiter)).to.equal(false);
    expect(bench.ask("c").kind).to.equal("queued");
  });

  it("at a rate of 0 is a semaphore: a token comes back when its request ends, in the order of arrival", () => {
    const bench = new LimiterBench({ maxConcurrent: 2 });
    for (const request of ["a", "b", "c", "d"]) bench.ask(request);
    bench.advance(10_000);
    expect(bench.granted).to.deep.equal([]);
    bench.release("b");
    bench.release("b");
    expect(bench.granted).to.deep.equal(["c"]);
    expect(sumOf(bench.limiter.view(bench.now)[0]?.in_flight ?? [0, 0, 0, 0])).to.equal(2);
  });

  it("refills at its capacity per second when no rate is given", () => {
    const bench = new LimiterBench({ maxConcurrent: 2, tokensPerSecond: undefined });
    for (const request of ["a", "b", "c"]) bench.ask(request);
    expect(bench.wakes).to.include(500);
    bench.advance(500);
    expect(bench.granted).to.deep.equal(["c"]);
  });

  it("ends a wait at its timeout, keeps no class, and lets everything pass without a limit", () => {
    const bench = new LimiterBench({ queueTimeoutSecs: 5 });
    bench.ask("a");
    bench.ask("b");
    bench.advance(4_999);
    expect(bench.timedOut).to.deep.equal([]);
    bench.advance(1);
    expect(bench.timedOut).to.deep.equal(["b"]);
    const open = new LimiterBench({ maxConcurrent: undefined, queueSize: 0 });
    for (let index = 0; index < 1_000; index += 1) {
      expect(open.ask(String(index)).kind).to.equal("granted");
    }
    expect(open.limiter.view(open.now)[0]?.capacity).to.equal(undefined);
  });
});

describe("TokenBucket", () => {
  it("starts full, fills at its rate, never above its capacity, and says when the next token is there", () => {
    const bucket = new TokenBucket(2, 4, at(0));
    expect([bucket.tryTake(at(0)), bucket.tryTake(at(0)), bucket.tryTake(at(0))]).to.deep.equal([
      true,
      true,
      false,
    ]);
    expect(bucket.nextTokenAt(at(0))).to.equal(250);
    expect([bucket.tryTake(at(249)), bucket.tryTake(at(250))]).to.deep.equal([false, true]);
    expect([1, 2, 3].map(() => bucket.tryTake(at(60_000)))).to.deep.equal([true, true, false]);
  });

  it("never promises a token at a rate of zero", () => {
    const bucket = new TokenBucket(1, 0, at(0));
    bucket.tryTake(at(0));
    expect(bucket.nextTokenAt(at(1_000_000))).to.equal(undefined);
    bucket.giveBack();
    expect(bucket.tryTake(at(1_000_000))).to.equal(true);
  });
});

describe("RateCheck", () => {
  it("lets a burst through, then one request per token, with whole seconds of Retry-After", () => {
    const check = new RateCheck(0.5, 2, at(0));
    expect(check.take(at(0))).to.deep.equal({ allowed: true });
    expect(check.take(at(0))).to.deep.equal({ allowed: true });
    expect(check.take(at(0))).to.deep.equal({ allowed: false, retryAfterS: 2 });
    expect(check.take(at(1_999))).to.deep.equal({ allowed: false, retryAfterS: 1 });
    expect(check.take(at(2_000))).to.deep.equal({ allowed: true });
  });
});
