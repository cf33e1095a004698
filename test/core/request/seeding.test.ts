import { expect } from "chai";
import type { ConfigSketch } from "../../support/config.js";
import { Allocator, CREDIT_TRUST, creditSketch } from "../../support/credit-desk.js";
import { POOL } from "../../support/credits.js";
import { bytes, NO_ATTRIBUTES, NOTHING_LEFT } from "../../support/desk.js";
import {
  chatBody,
  COOLDOWN_MS,
  DROWNING,
  GOOD_ANSWER,
  IDLE,
  peerOf,
  SeedingDesk,
  seedingSketch,
  SHARED_PROMPT,
} from "../../support/seeding-desk.js";

/** A desk whose one owner drowns while its peer is idle. */
function drowning(over: ConfigSketch = {}): {
  readonly bench: SeedingDesk;
  readonly owner: string;
} {
  const bench = new SeedingDesk(over);
  const owner = bench.own();
  bench.drown(owner);
  return { bench, owner };
}

describe("request/seeding", () => {
  it("X-3 sends one refused request at a time to the clean peer, which serves the prefix afterwards", () => {
    const { bench, owner } = drowning();
    const seed = bench.ask();
    expect(bench.placeOf(seed)).to.equal(peerOf(owner));
    expect(bench.guarded).to.deep.equal([1, ["active"]]);
    const second = bench.ask();
    expect(bench.placeOf(second)).to.equal("adaptive_admission_saturated");
    expect(bench.seed).to.deep.equal({ kind: "refused", refusal: "plan_prefix_protected" });
    bench.reply(seed);
    expect(bench.guarded).to.deep.equal([0, ["success_cooldown"]]);
    expect(bench.owners).to.equal(2);
    bench.advance(COOLDOWN_MS);
    bench.report(IDLE, IDLE);
    // The drowning owner has recovered; both may serve the prompt now.
    const places = [bench.ask(), bench.ask()].map((each) => bench.placeOf(each)).sort();
    expect(places).to.deep.equal(["worker_1", "worker_2"]);
  });

  it("refuses as before where seeding is off", () => {
    const bench = new SeedingDesk({ seeding: {} });
    bench.drown(bench.own());
    const refused = bench.ask();
    expect(bench.placeOf(refused)).to.equal("adaptive_admission_saturated");
    expect(bench.seed).to.equal(undefined);
  });

  it("S-10 answers a seed that is refused with 429, the feedback's Retry-After and a full refund", () => {
    const { bench } = drowning();
    const before = bench.tokens("ip:203.0.113.42");
    const seed = bench.ask();
    const refused = bench.ask().last();
    expect(refused?.kind).to.equal("refuse");
    if (refused?.kind !== "refuse") return;
    const { status, code, retryAfterS } = refused.rejection;
    expect([status, code]).to.deep.equal([429, "adaptive_admission_saturated"]);
    expect(retryAfterS).to.be.at.least(1);
    expect(bench.last.charge).to.deep.equal({ kind: "cancelled", tokens: 0, clockTokens: 0 });
    bench.reply(seed);
    const [charged, reserved] = bench.tokens("ip:203.0.113.42");
    expect([charged - before[0], reserved]).to.deep.equal([5, 0]);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("S-12 takes no header of an answer for a refund: a seed that was sent is charged", () => {
    const { bench } = drowning();
    const seed = bench.ask({}, { headers: { "x-weir-refund": "1", "x-smg-local-rejection": "1" } });
    bench.reply(seed, { error: { message: "no" } }, { status: 503 });
    // No usage in the answer: the estimate stands.
    expect(bench.last.charge?.kind).to.equal("missing_usage");
    expect(bench.last.charge?.tokens).to.equal(256);
  });

  describe("S-11 what proves a seed", () => {
    const cases: readonly (readonly [
      fault: string,
      end: (bench: SeedingDesk, seed: ReturnType<SeedingDesk["ask"]>) => void,
    ])[] = [
      [
        "no_answer",
        (bench, { request }) => {
          bench.desk.end(request, false, bench.now);
        },
      ],
      [
        "no_attributes",
        (bench, { request }) => {
          bench.desk.responseHeaders(
            request,
            {
              status: 200,
              contentType: "application/json",
              endOfStream: false,
              attributes: NO_ATTRIBUTES,
            },
            bench.now,
          );
          request.responseBody(bytes(GOOD_ANSWER));
          bench.desk.end(request, true, bench.now);
        },
      ],
      [
        "not_worker_answer",
        (bench, seed) => {
          const attributes = {
            codeDetails: "response_timeout",
            flags: 4,
            clusterName: "worker_1",
            upstreamAddress: undefined,
            attempts: 1,
          };
          bench.reply(seed, GOOD_ANSWER, { status: 504, attributes });
        },
      ],
      [
        "other_cluster",
        (bench, seed) => {
          const attributes = {
            codeDetails: "via_upstream",
            flags: 0,
            clusterName: "worker_9",
            upstreamAddress: undefined,
            attempts: 1,
          };
          bench.reply(seed, GOOD_ANSWER, { attributes });
        },
      ],
      [
        "several_attempts",
        (bench, seed) => {
          const attributes = {
            codeDetails: "via_upstream",
            flags: 0,
            clusterName: bench.placeOf(seed),
            upstreamAddress: undefined,
            attempts: 2,
          };
          bench.reply(seed, GOOD_ANSWER, { attributes });
        },
      ],
      [
        "bad_status",
        (bench, seed) => {
          bench.reply(seed, GOOD_ANSWER, { status: 500 });
        },
      ],
      [
        "bad_status",
        (bench, seed) => {
          bench.reply(seed, GOOD_ANSWER, { status: 300 });
        },
      ],
      [
        "incomplete",
        (bench, seed) => {
          bench.reply(seed, GOOD_ANSWER, {}, false);
        },
      ],
      [
        "too_large",
        (bench, seed) => {
          bench.reply(seed, { ...GOOD_ANSWER, padding: "x".repeat(4 * 1024 * 1024) });
        },
      ],
      [
        "wrong_kind",
        (bench, seed) => {
          bench.reply(seed, { ...GOOD_ANSWER, object: "text_completion" });
        },
      ],
      [
        "wrong_kind",
        (bench, seed) => {
          bench.reply(seed, `data: ${JSON.stringify(GOOD_ANSWER)}\n\ndata: [DONE]\n\n`, {
            contentType: "text/event-stream",
          });
        },
      ],
      [
        "unfinished",
        (bench, seed) => {
          bench.reply(seed, { ...GOOD_ANSWER, choices: [{ finish_reason: "abort" }] });
        },
      ],
      [
        "no_usage",
        (bench, seed) => {
          bench.reply(seed, { ...GOOD_ANSWER, usage: undefined });
        },
      ],
    ];
    for (const [fault, end] of cases) {
      it(`an answer is not committed for ${fault}, and the prefix is in quarantine`, () => {
        const { bench } = drowning();
        const seed = bench.ask();
        end(bench, seed);
        const record = bench.seed;
        expect(record?.kind).to.equal("seeded");
        if (record?.kind !== "seeded") return;
        expect([record.outcome, record.uncommitted, record.published]).to.deep.equal([
          "failed",
          fault,
          false,
        ]);
        expect(bench.guarded).to.deep.equal([0, ["failure_quarantine"]]);
        expect(bench.owners).to.equal(1);
        expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
      });
    }

    it("the worker's own answer, good and whole, of the kind, with usage, at the first attempt", () => {
      const { bench, owner } = drowning();
      const seed = bench.ask();
      bench.reply(seed);
      const record = bench.seed;
      expect(record?.kind).to.equal("seeded");
      if (record?.kind !== "seeded") return;
      expect([record.outcome, record.uncommitted, record.published]).to.deep.equal([
        "succeeded",
        undefined,
        true,
      ]);
      const { kind, workerUrl, owners, matchedBlocks, ownership } = record.story;
      expect({ kind, owners, matchedBlocks, ownership }).to.deep.equal({
        kind: "cache_aware_distribution_seed",
        owners: 1,
        matchedBlocks: Math.floor((SHARED_PROMPT.length + "\u0081user\u0082".length) / 256),
        ownership: "committed",
      });
      const [first, other] = ["http://127.0.0.1:1", "http://127.0.0.1:2"];
      expect(workerUrl).to.equal(owner === "worker_1" ? other : first);
      const { policy, result } = bench.last.selection ?? {};
      expect([policy, result]).to.deep.equal(["cache_aware_distribution_seed", "clean_peer"]);
    });
  });

  it("S-9 leaves requests that are not one prompt with one whole answer to the refusal", () => {
    const rows: readonly (readonly [string, object, string])[] = [
      ["/v1/chat/completions", { stream: true }, "streaming"],
      ["/v1/chat/completions", { n: 2 }, "several_answers"],
      ["/v1/completions", { prompt: SHARED_PROMPT, n: 1, best_of: 2 }, "several_answers"],
      ["/v1/completions", { prompt: [SHARED_PROMPT, SHARED_PROMPT] }, "several_prompts"],
      ["/generate", { text: SHARED_PROMPT, sampling_params: { n: 2 } }, "several_answers"],
      ["/generate", { input_ids: [[1, 2], [3]] }, "several_prompts"],
    ];
    for (const [target, body, reason] of rows) {
      const { bench } = drowning();
      const refused = bench.drive({ target }, chatBody(body));
      expect(bench.placeOf(refused), target).to.equal("adaptive_admission_saturated");
      expect(bench.seed, target).to.deep.equal({ kind: "ineligible", reason });
      expect(bench.guarded).to.deep.equal([0, []]);
    }
  });

  it("never challenges pressure of tokens", () => {
    const bench = new SeedingDesk();
    const owner = bench.own();
    const hot = { running: 1, waiting: 0, tokenUsage: 0.97 };
    bench.report(hot, hot);
    expect(bench.placeOf(bench.ask()), owner).to.equal("adaptive_admission_saturated");
    expect(bench.seed).to.deep.equal({ kind: "ineligible", reason: "other_reason" });
  });

  it("leaves embeddings alone, of which the engines' feedback says nothing", () => {
    const { bench } = drowning();
    const asked = bench.drive(
      { target: "/v1/embeddings" },
      bytes({ model: "demo", input: SHARED_PROMPT }),
    );
    expect(bench.placeOf(asked)).to.match(/^worker_/);
    expect(bench.guarded).to.deep.equal([0, []]);
  });

  it("fails closed when the peer's engine was not heard, and leaves no trace", () => {
    const bench = new SeedingDesk();
    const owner = bench.own();
    bench.drown(owner);
    bench.advance(30_001);
    // The feedback still holds its last word for want of coverage only when telemetry is fresh.
    if (owner === "worker_1")
      bench.report({ running: 64, waiting: 64 }, { running: 0, waiting: 0, maxRunning: undefined });
    else
      bench.report({ running: 0, waiting: 0, maxRunning: undefined }, { running: 64, waiting: 64 });
    expect(bench.placeOf(bench.ask())).to.equal("adaptive_admission_saturated");
    expect(bench.seed).to.deep.equal({ kind: "refused", refusal: "plan_no_clean_peer" });
    expect(bench.guarded).to.deep.equal([0, []]);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("sends the request to an owner that has room after all, and makes nobody new", () => {
    const bench = new SeedingDesk();
    const owner = bench.own();
    // The peer drowns: the partition refuses, although the owner is idle.
    bench.drown(peerOf(owner));
    const seed = bench.ask();
    expect(bench.placeOf(seed)).to.equal(owner);
    expect(bench.guarded).to.deep.equal([1, []]);
    bench.reply(seed);
    const record = bench.seed;
    expect(record?.kind === "seeded" && record.story.kind).to.equal("cache_aware_owner_rebalance");
    expect([bench.owners, bench.guarded]).to.deep.equal([1, [0, []]]);
  });

  it("ends a seed once when its client leaves before, during and after the answer", () => {
    for (const leave of ["before", "during"] as const) {
      const { bench } = drowning();
      const seed = bench.ask();
      if (leave === "during") {
        const attributes = {
          codeDetails: "via_upstream",
          flags: 0,
          clusterName: bench.placeOf(seed),
          upstreamAddress: undefined,
          attempts: 1,
        };
        bench.desk.responseHeaders(
          seed.request,
          { status: 200, contentType: "application/json", endOfStream: false, attributes },
          bench.now,
        );
      }
      bench.desk.end(seed.request, false, bench.now);
      bench.desk.end(seed.request, true, bench.now);
      expect(bench.guarded, leave).to.deep.equal([0, ["failure_quarantine"]]);
      expect(bench.leftovers(), leave).to.deep.equal(NOTHING_LEFT);
      const ends = bench.core.seeder
        .explain(bench.now)
        .counts.filter(({ event }) => event.event === "ended");
      expect(ends.map(({ event, count }) => [event, count])).to.deep.equal([
        [{ event: "ended", kind: "cache_aware_distribution_seed", outcome: "failed" }, 1],
      ]);
    }
  });

  it("holds the worker back from ordinary requests until the seed has ended", () => {
    const { bench, owner } = drowning();
    const seed = bench.ask();
    // Nobody waits any more, so ordinary requests are admitted again; the seed still runs.
    bench.report(IDLE, IDLE);
    const other = bench.drive(
      {},
      bytes({ model: "demo", messages: [{ role: "user", content: "hi" }] }),
    );
    expect(bench.placeOf(other)).to.equal(owner);
    bench.reply(seed);
    const places = new Set(
      Array.from({ length: 4 }, () =>
        bench.placeOf(
          bench.drive({}, bytes({ model: "demo", messages: [{ role: "user", content: "hi" }] })),
        ),
      ),
    );
    expect([...places].sort()).to.deep.equal(["worker_1", "worker_2"]);
  });

  it("takes another prefix for the next seed only when the partition's one seed has ended", () => {
    const { bench, owner } = drowning();
    const seed = bench.ask();
    const other = "Quite another story of a mill and its pond. ".repeat(20);
    const body = bytes({ model: "demo", messages: [{ role: "user", content: other }] });
    expect(bench.placeOf(bench.drive({}, body))).to.equal("adaptive_admission_saturated");
    // Nobody owns that prompt, so there is nothing to spread.
    expect(bench.seed).to.deep.equal({ kind: "refused", refusal: "plan_no_owner" });
    expect(bench.placeOf(seed)).to.equal(peerOf(owner));
  });

  it("frees the prefix at once when the worker refuses the request itself: others may seed it", () => {
    for (const status of [400, 404, 422, 429, 499]) {
      const { bench, owner } = drowning();
      bench.reply(bench.ask(), { error: { message: "bad temperature" } }, { status });
      const record = bench.seed;
      expect(record?.kind === "seeded" && [record.outcome, record.uncommitted]).to.deep.equal([
        "failed",
        "bad_status",
      ]);
      expect(bench.guarded, String(status)).to.deep.equal([0, []]);
      expect(bench.owners).to.equal(1);
      expect(bench.placeOf(bench.ask())).to.equal(peerOf(owner));
    }
  });

  describe("keeps to its own", () => {
    const workerOf = (port: number, partition: string, ...models: string[]): object => ({
      url: `http://127.0.0.1:${String(port)}`,
      cluster: `worker_${String(port)}`,
      models,
      labels: { admission_partition: partition },
    });
    const pools = (...names: string[]): object => ({
      max_concurrent_requests: 400,
      queue_size: 50,
      admission_partitions: Object.fromEntries(
        names.map((name) => [name, { max_concurrent_requests: 200, queue_size: 20 }]),
      ),
      default_admission_partition: "a",
    });

    it("partition: another one that serves the same prompt is not touched by the seed, its end or its failure", () => {
      const bench = new SeedingDesk({
        workers: [workerOf(1, "a", "demo"), workerOf(2, "a", "demo"), workerOf(3, "b", "demo")],
        scheduler: pools("a", "b"),
        trust: { admission_partition: true },
        seeding: { partitions: ["a"], seed_cap: 1, proof_source: "scheduler" },
      });
      const inB = { headers: { "x-weir-admission-partition": "b" } };
      bench.drown(bench.own());
      const seed = bench.ask();
      expect(bench.guarded[0]).to.equal(1);
      expect(bench.placeOf(bench.ask({}, inB))).to.equal("worker_3");
      bench.reply(seed, GOOD_ANSWER, {}, false);
      expect(bench.guarded).to.deep.equal([0, ["failure_quarantine"]]);
      expect(bench.placeOf(bench.ask({}, inB))).to.equal("worker_3");
    });

    it("model: another one that only the seeded worker serves is served there all the time", () => {
      const bench = new SeedingDesk({
        workers: [workerOf(1, "a", "demo", "tiny"), workerOf(2, "a", "demo", "tiny")],
        models: { demo: { policy: "cache_aware" }, tiny: { policy: "cache_aware" } },
        scheduler: pools("a"),
        trust: { target_worker_url: true },
        seeding: { partitions: ["a"], seed_cap: 1, proof_source: "scheduler" },
      });
      bench.drown(bench.own());
      const place = bench.placeOf(bench.ask());
      expect(bench.guarded[0]).to.equal(1);
      bench.report(IDLE, IDLE);
      const url = place === "worker_1" ? "http://127.0.0.1:1" : "http://127.0.0.1:2";
      const headers = { "x-weir-target-worker-url": url };
      expect(bench.placeOf(bench.ask({ model: "tiny" }, { headers }))).to.equal(place);
      expect(bench.placeOf(bench.ask({}, { headers }))).to.equal("adaptive_admission_saturated");
    });

    it("prompt: another one whose only owner has the seed goes elsewhere meanwhile", () => {
      const bench = new SeedingDesk({
        workers: [1, 2, 3].map((port) => workerOf(port, "a", "demo")),
        scheduler: pools("a"),
        seeding: { partitions: ["a"], seed_cap: 1, proof_source: "scheduler" },
        trust: { target_worker_url: true },
      });
      const at = (port: number): object => ({
        headers: { "x-weir-target-worker-url": `http://127.0.0.1:${String(port)}` },
      });
      const other = {
        messages: [{ role: "user", content: "Another story of a mill. ".repeat(30) }],
      };
      bench.report(IDLE, IDLE, IDLE);
      bench.reply(bench.ask({}, at(1)));
      bench.reply(bench.ask(other, at(2)));
      bench.reply(bench.ask(other, at(2)));
      bench.report(DROWNING, IDLE, { ...IDLE, maxRunning: 8 });
      expect(bench.placeOf(bench.ask())).to.equal("worker_2");
      bench.report(IDLE, IDLE, IDLE);
      expect(bench.placeOf(bench.ask(other))).to.match(/^worker_[13]$/);
    });

    it("worker: it does not keep the last one that is usable, and still makes it an owner", () => {
      const { bench, owner } = drowning();
      const seed = bench.ask();
      const url = owner === "worker_1" ? "http://127.0.0.1:1" : "http://127.0.0.1:2";
      bench.report(IDLE, IDLE);
      bench.registry.recordHealth(url, false);
      bench.registry.recordHealth(url, false);
      const hello = bytes({ model: "demo", messages: [{ role: "user", content: "hi" }] });
      expect(bench.placeOf(bench.drive({}, hello))).to.equal(peerOf(owner));
      bench.reply(seed);
      expect(bench.seed?.kind === "seeded" && bench.seed.outcome).to.equal("succeeded");
    });
  });

  describe("with proofs of redeemed credits", () => {
    const sketch = creditSketch(200, {
      ...seedingSketch(),
      trust: { ...CREDIT_TRUST, excluded_worker_urls: true, routing_key: true },
      seeding: { partitions: [POOL], seed_cap: 1 },
      credits: { generation: "g1", service_key_file: "/run/allocator.key" },
      workers: [1, 2].map((port) => ({
        url: `http://127.0.0.1:${String(port)}`,
        cluster: `worker_${String(port)}`,
        models: ["demo"],
        labels: { admission_partition: POOL },
      })),
    });

    function redeemer(): { bench: SeedingDesk; allocator: Allocator; owner: string } {
      const bench = new SeedingDesk(sketch);
      const allocator = new Allocator(bench);
      const owner = bench.own({ headers: { "x-weir-tenant-id": "a" } });
      bench.drown(owner);
      return { bench, allocator, owner };
    }

    it("X-1 seeds the clean peer for the exact request of one redeemed credit", () => {
      const { bench, allocator, owner } = redeemer();
      const first = allocator.token();
      const seed = allocator.send(first, {}, {}, chatBody());
      expect(bench.placeOf(seed)).to.equal(peerOf(owner));
      const second = allocator.token({ requestId: "req-2" });
      const refused = allocator.send(second, { requestId: "req-2" }, {}, chatBody());
      expect(bench.placeOf(refused)).to.equal("adaptive_admission_saturated");
      expect(bench.seed).to.deep.equal({ kind: "refused", refusal: "plan_prefix_protected" });
      bench.reply(seed);
      expect([bench.owners, bench.guarded]).to.deep.equal([2, [0, ["success_cooldown"]]]);
      expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    });

    it("R4 gives a request of the fair queue no proof, so it never seeds", () => {
      const { bench } = redeemer();
      const refused = bench.ask({}, { headers: { "x-weir-tenant-id": "a" } });
      expect(bench.placeOf(refused)).to.equal("adaptive_admission_saturated");
      expect(bench.seed).to.deep.equal({ kind: "ineligible", reason: "no_proof" });
      expect(bench.last.credit).to.equal(false);
    });

    it("X-2 answers a replayed credit as one that was redeemed, and seeds nothing", () => {
      const { bench, allocator } = redeemer();
      const token = allocator.token();
      const seed = allocator.send(token, {}, {}, chatBody());
      const replayed = allocator.send(token, {}, {}, chatBody());
      expect(bench.placeOf(replayed)).to.equal("capacity_credit_already_redeemed");
      expect(bench.guarded).to.deep.equal([1, ["active"]]);
      bench.reply(seed);
      const again = allocator.send(token, {}, {}, chatBody());
      expect(bench.placeOf(again)).to.equal("capacity_credit_already_redeemed");
    });

    it("P-14 refuses an extension of the seeded prefix whose other places are taken or excluded", () => {
      const { bench, allocator, owner } = redeemer();
      const seed = allocator.send(allocator.token(), {}, {}, chatBody());
      bench.report(IDLE, IDLE);
      const url = owner === "worker_1" ? "http://127.0.0.1:1" : "http://127.0.0.1:2";
      const headers = {
        "x-weir-tenant-id": "a",
        "x-weir-routing-key": "sticky",
        "x-weir-excluded-worker-urls": url,
      };
      const trusting = bench.ask({}, { headers });
      const verdict = trusting.last();
      expect(verdict?.kind === "refuse" && verdict.rejection.retryAfterS).to.equal(1);
      expect(bench.last.charge?.tokens).to.equal(0);
      bench.reply(seed);
    });
  });
});
