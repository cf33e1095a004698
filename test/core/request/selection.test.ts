// The choice of a worker in the life of a request: what is booked when, who owns a prompt after which
// end, and what a refusal of the choice costs. A whole core on virtual time.

import { expect } from "chai";
import { Bench, bytes, NOTHING_LEFT, responseHead, type Driven } from "../../support/desk.js";

const PROMPT = "You answer in one sentence. ".repeat(40);
const chat = (content: string): Uint8Array =>
  bytes({ model: "demo", max_tokens: 100, messages: [{ role: "user", content }] });

const selection = { max_cached_owners_per_prefix: 2, cache_owner_spill_cooldown_secs: 60 };

function cacheAware(over: Readonly<Record<string, unknown>> = {}): Bench {
  return new Bench({ models: { demo: { policy: "cache_aware" } }, ...over });
}

const workerOf = (driven: Driven): string | undefined => {
  const verdict = driven.last();
  return verdict?.kind === "route" ? verdict.worker.identity.url : undefined;
};

/** Blocks that the workers are known to hold, in the order of registration. */
const held = ({ core, registry }: Bench): number[] =>
  Array.from(registry.all(), ({ identity }) =>
    core.selector.committed.blocksOf(identity.generation),
  );

const total = (counts: readonly number[]): number => counts.reduce((sum, count) => sum + count, 0);

describe("the choice of a worker in a request's life", () => {
  it("makes the worker an owner when its answer ended well, and sends the next request there", () => {
    const bench = cacheAware();
    const first = bench.drive({}, chat(PROMPT));
    expect(held(bench), "nothing is known while it runs").to.deep.equal([0, 0]);
    bench.answer(first);
    // 40 x 28 characters and the frame of a message: four full blocks of 256.
    expect(total(held(bench))).to.equal(4);
    const busy = bench.drive({}, chat(PROMPT));
    const alsoBusy = bench.drive({}, chat(PROMPT));
    expect([workerOf(busy), workerOf(alsoBusy)]).to.deep.equal([workerOf(first), workerOf(first)]);
    expect(bench.settled[0]?.selection).to.include({ policy: "cache_aware", result: "no_owner" });
    bench.answer(busy);
    expect(bench.settled[1]?.selection).to.deep.equal({
      policy: "cache_aware",
      result: "owner_match",
      engineLoad: undefined,
      ownership: "committed",
      owners: 1,
      matchedBlocks: 4,
      promptBlocks: 4,
    });
  });

  const ends: readonly (readonly [string, (bench: Bench, driven: Driven) => void])[] = [
    [
      "an error of the worker",
      (bench, driven) => {
        bench.answer(driven, { error: {} }, 500);
      },
    ],
    [
      "a refusal of the worker",
      (bench, driven) => {
        bench.answer(driven, { error: {} }, 400);
      },
    ],
    [
      "a redirect",
      (bench, driven) => {
        bench.answer(driven, {}, 302);
      },
    ],
    [
      "a client that leaves before the answer",
      (bench, { request }) => {
        bench.desk.end(request, false, bench.now);
      },
    ],
    [
      "an answer that breaks off",
      (bench, { request }) => {
        bench.desk.responseHeaders(request, responseHead(), bench.now);
        request.firstByte(bench.now);
        bench.desk.end(request, false, bench.now);
      },
    ],
    [
      "an answer of Envoy's own",
      (bench, { request }) => {
        const attributes = { ...responseHead().attributes, codeDetails: "overload" };
        bench.desk.responseHeaders(request, responseHead({ attributes }), bench.now);
      },
    ],
    [
      "a fault of Weir's own",
      (bench, { request }) => {
        bench.desk.fail(request, bench.now);
      },
    ],
  ];
  for (const [what, end] of ends) {
    it(`owns nothing after ${what}, and keeps nothing booked`, () => {
      const bench = cacheAware({ selection });
      const driven = bench.drive({}, chat(PROMPT));
      expect(bench.leftovers()).to.include({ booked: 1, load: 1 });
      end(bench, driven);
      expect(held(bench)).to.deep.equal([0, 0]);
      expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    });
  }

  it("reserves input and output from the choice to the end, never for a request that waits", () => {
    const bench = cacheAware({ scheduler: { max_concurrent_requests: 1, queue_size: 10 } });
    const { bookings } = bench.core.selector;
    const reserved = (): number =>
      total(
        Array.from(bench.registry.all(), ({ identity }) =>
          bookings.reservedTokens(identity.generation),
        ),
      );
    const running = bench.drive({}, chat(PROMPT));
    const waiting = bench.drive({}, chat(PROMPT));
    expect(waiting.last()?.kind).to.equal("hold");
    // 1120 bytes of content are 280 tokens; the request allows 100 of output.
    expect(reserved()).to.equal(380);
    bench.answer(running);
    expect(waiting.last()?.kind).to.equal("route");
    expect(reserved()).to.equal(380);
    bench.answer(waiting);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("counts no output for endpoints that generate none", () => {
    const bench = cacheAware();
    const body = bytes({ model: "demo", input: "x".repeat(4000) });
    const driven = bench.drive({ target: "/v1/embeddings" }, body);
    expect(workerOf(driven)).not.to.equal(undefined);
    const [first, second] = Array.from(bench.registry.all(), ({ identity }) =>
      bench.core.selector.bookings.reservedTokens(identity.generation),
    );
    expect((first ?? 0) + (second ?? 0)).to.equal(1);
  });

  it("forgets what an engine shows to have evicted, and says how much", () => {
    const bench = cacheAware({ trust: { target_worker_url: true, peers: ["127.0.0.1"] } });
    const there = { headers: { "x-weir-target-worker-url": "http://127.0.0.1:1" } };
    const usage = (cached: number): object => ({
      usage: {
        prompt_tokens: 2_000,
        completion_tokens: 5,
        prompt_tokens_details: { cached_tokens: cached },
      },
    });
    const prompts = ["Old", "First", "Second", "Third"].map((name) => chat(`${name} ${PROMPT}`));
    for (const prompt of prompts) {
      bench.answer(bench.drive(there, prompt));
      bench.advance(1_000);
    }
    expect(total(held(bench)), "four blocks of each prompt").to.equal(16);
    for (const prompt of prompts.slice(1)) bench.answer(bench.drive({}, prompt), usage(0));
    expect(bench.settled.slice(-3).map(({ staleHoldings }) => staleHoldings)).to.deep.equal([
      0, 0, 4,
    ]);
    expect(total(held(bench)), "all but the old prompt were answered anew").to.equal(12);
  });

  it("has no say over requests that are passed through, which book nothing", () => {
    const bench = cacheAware();
    const driven = bench.drive({ method: "GET", target: "/v1/models", endOfStream: true }, null);
    expect(workerOf(driven)).not.to.equal(undefined);
    expect(bench.leftovers()).to.include({ booked: 0, load: 1 });
    bench.answer(driven);
    expect(bench.settled[0]?.selection).to.equal(undefined);
  });
});
