// The life of a request on virtual time: verdicts, settlement records, and nothing left behind.

import { expect } from "chai";
import type { ResponseAttributes } from "../../../extproc/core/settlement/answer-origin.js";
import {
  Bench,
  bytes,
  CHAT,
  FROM_WORKER,
  NO_ATTRIBUTES,
  NOTHING_LEFT,
  responseHead,
  type Driven,
} from "../../support/desk.js";

const ONE_SLOT = {
  scheduler: { max_concurrent_requests: 1, queue_size: 2, queue_timeout_secs: 30 },
};

const envoyAnswer = (codeDetails: string, flagBit: number): ResponseAttributes => ({
  ...FROM_WORKER,
  codeDetails,
  flags: 2 ** flagBit,
});

function refusal(driven: Driven): string | undefined {
  const verdict = driven.last();
  return verdict?.kind === "refuse" ? verdict.rejection.code : undefined;
}

describe("RequestDesk", () => {
  it("routes a request, reads its usage and settles once with the observed tokens", () => {
    const bench = new Bench();
    const driven = bench.drive();
    expect(driven.verdicts.map(({ kind }) => kind)).to.deep.equal(["continue", "route"]);
    expect(bench.leftovers()).to.include({ inFlight: 1, load: 1, live: 1, queued: 0 });
    bench.advance(80);
    bench.desk.responseHeaders(driven.request, responseHead(), bench.now);
    bench.advance(20);
    driven.request.firstByte(bench.now);
    driven.request.responseBody(bytes({ usage: { completion_tokens: 37, prompt_tokens: 9 } }));
    bench.advance(50);
    bench.desk.end(driven.request, true, bench.now);
    bench.desk.end(driven.request, false, bench.now);
    expect(bench.settled).to.have.length(1);
    expect(bench.settled[0]).to.deep.include({
      outcome: "success",
      status: 200,
      tenant: "ip:203.0.113.42",
      model: "demo",
      partition: "global",
      admitted: true,
      waited: false,
      queuedMs: 0,
      timeToFirstByteMs: 100,
      durationMs: 150,
      estimateTokens: 256,
      charge: { kind: "observed", tokens: 37, clockTokens: 37 },
      promptTokens: 9,
    });
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("resolves an alias for the route and never touches the body", () => {
    const bench = new Bench();
    const driven = bench.drive({}, bytes({ model: "demo-latest", messages: [] }));
    expect(driven.last()?.kind).to.equal("route");
    bench.answer(driven);
    expect(bench.settled[0]).to.include({ model: "demo" });
  });

  const refusals: {
    readonly title: string;
    readonly drive: (bench: Bench) => Driven;
    readonly code: string;
  }[] = [
    {
      title: "an unknown path",
      drive: (b) => b.drive({ target: "/flush_cache" }),
      code: "unknown_path",
    },
    {
      title: "GET on an inference path",
      drive: (b) => b.drive({ method: "GET" }),
      code: "method_not_allowed",
    },
    {
      title: "an encoded path",
      drive: (b) => b.drive({ target: "/v1/chat/%63ompletions" }),
      code: "invalid_path",
    },
    { title: "no body", drive: (b) => b.drive({ endOfStream: true }), code: "invalid_request" },
    {
      title: "an announced length over the limit",
      drive: (b) => b.drive({ contentLength: 33_554_433 }),
      code: "body_too_large",
    },
    {
      title: "a compressed body",
      drive: (b) => b.drive({ contentEncoding: "gzip" }),
      code: "invalid_request",
    },
    {
      title: "a body that is not JSON",
      drive: (b) => b.drive({}, bytes("{nope")),
      code: "invalid_request",
    },
    {
      title: "a body without a model",
      drive: (b) => b.drive({}, bytes({ messages: [] })),
      code: "invalid_request",
    },
    {
      title: "an unknown model",
      drive: (b) => b.drive({}, bytes({ model: "gpt-9" })),
      code: "model_not_found",
    },
  ];
  for (const { title, drive, code } of refusals) {
    it(`refuses ${title} with ${code}, holding nothing`, () => {
      const bench = new Bench();
      const driven = drive(bench);
      expect(refusal(driven)).to.equal(code);
      expect(bench.settled).to.have.length(1);
      expect(bench.settled[0]).to.deep.include({
        outcome: "rejected",
        rejection: code,
        admitted: false,
      });
      expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    });
  }

  it("takes a body of exactly the limit and refuses one byte more", () => {
    const bench = new Bench({ limits: { body_limit_bytes: 1_024 } });
    const padded = (length: number): Uint8Array => {
      const frame = JSON.stringify({ model: "demo", pad: "" });
      return bytes(JSON.stringify({ model: "demo", pad: "x".repeat(length - frame.length) }));
    };
    expect(padded(1_024)).to.have.length(1_024);
    expect(bench.drive({}, padded(1_024)).last()?.kind).to.equal("route");
    expect(refusal(bench.drive({}, padded(1_025)))).to.equal("body_too_large");
    expect(bench.drive({ contentLength: 1_024 }).last()?.kind).to.equal("route");
    expect(refusal(bench.drive({ contentLength: 1_025 }))).to.equal("body_too_large");
  });

  it("holds a request while no slot is free and routes it when one is, in the order of arrival", () => {
    const bench = new Bench(ONE_SLOT);
    const first = bench.drive();
    const second = bench.drive();
    const third = bench.drive();
    expect(second.last()).to.deep.equal({ kind: "hold", budgetMs: 35_000 });
    bench.advance(1_500);
    bench.answer(first);
    expect(second.verdicts.map(({ kind }) => kind)).to.deep.equal(["continue", "hold", "route"]);
    expect(third.last()?.kind).to.equal("hold");
    bench.answer(second);
    bench.answer(third);
    expect(bench.settled.map(({ queuedMs, waited }) => ({ queuedMs, waited }))).to.deep.equal([
      { queuedMs: 0, waited: false },
      { queuedMs: 1_500, waited: true },
      { queuedMs: 1_500, waited: true },
    ]);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("refuses past the queue size with 429 and Retry-After", () => {
    const bench = new Bench(ONE_SLOT);
    for (let waiting = 0; waiting < 3; waiting += 1) bench.drive();
    const verdict = bench.drive().last();
    expect(verdict).to.have.nested.property("rejection.code", "scheduler_queue_full");
    expect(verdict).to.have.nested.property("rejection.status", 429);
    expect(verdict).to.have.nested.property("rejection.retryAfterS", 30);
  });

  it("refuses a held request at its queue timeout and names the deadline beforehand", () => {
    const bench = new Bench(ONE_SLOT);
    bench.drive();
    const held = bench.drive();
    expect(bench.deadline).to.equal(30_000);
    bench.advance(29_999);
    bench.desk.expire(bench.now);
    expect(held.last()?.kind).to.equal("hold");
    bench.advance(1);
    bench.desk.expire(bench.now);
    expect(held.last()).to.have.nested.property("rejection.code", "scheduler_queue_timeout");
    expect(held.last()).to.have.nested.property("rejection.status", 429);
    expect(bench.settled[0]).to.include({ queuedMs: 30_000, waited: true, admitted: false });
    expect(bench.desk.counts).to.deep.equal({ live: 1, queued: 0 });
  });

  it("answers a queue timeout with the configured status", () => {
    const bench = new Bench({ scheduler: { ...ONE_SLOT.scheduler, queue_timeout_status: 408 } });
    bench.drive();
    const held = bench.drive();
    bench.advance(30_000);
    bench.desk.expire(bench.now);
    expect(held.last()).to.have.nested.property("rejection.status", 408);
  });

  it("removes a held request at once when its client leaves, and counts a hold that Envoy cut", () => {
    const bench = new Bench(ONE_SLOT);
    const running = bench.drive();
    const leaving = bench.drive();
    const cut = bench.drive();
    bench.advance(500);
    bench.desk.end(leaving.request, false, bench.now);
    expect(bench.desk.counts).to.deep.equal({ live: 2, queued: 1 });
    bench.advance(1_500);
    bench.desk.end(cut.request, false, bench.now);
    expect(bench.settled.map(({ outcome, cutHold }) => ({ outcome, cutHold }))).to.deep.equal([
      { outcome: "pre_admission_interrupted", cutHold: false },
      { outcome: "pre_admission_interrupted", cutHold: true },
    ]);
    expect(bench.settled[0]?.charge).to.deep.equal({
      kind: "cancelled",
      tokens: 0,
      clockTokens: 0,
    });
    bench.answer(running);
    expect(leaving.last()?.kind).to.equal("hold");
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("settles once at every phase in which a client can leave", () => {
    const phases: { readonly title: string; readonly run: (bench: Bench) => Driven }[] = [
      { title: "before the body", run: (b) => b.drive({}, null) },
      { title: "dispatched", run: (b) => b.drive() },
      {
        title: "after response headers",
        run: (b) => {
          const driven = b.drive();
          b.desk.responseHeaders(driven.request, responseHead(), b.now);
          return driven;
        },
      },
    ];
    const outcomes = phases.map(({ run }) => {
      const bench = new Bench();
      const driven = run(bench);
      bench.desk.end(driven.request, false, bench.now);
      bench.desk.end(driven.request, true, bench.now);
      expect(bench.settled).to.have.length(1);
      expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
      return [
        bench.settled[0]?.outcome,
        bench.settled[0]?.charge?.kind,
        bench.settled[0]?.charge?.tokens,
      ];
    });
    expect(outcomes).to.deep.equal([
      ["pre_admission_interrupted", "cancelled", 0],
      ["interrupted", "interrupted", 256],
      ["interrupted", "interrupted", 256],
    ]);
  });

  const envoyAnswers: {
    readonly title: string;
    readonly attributes: ResponseAttributes;
    readonly kind: string;
    readonly tokens: number;
  }[] = [
    {
      title: "an unknown cluster",
      attributes: envoyAnswer("cluster_not_found", 24),
      kind: "cancelled",
      tokens: 0,
    },
    {
      title: "a refused connection",
      attributes: envoyAnswer(
        "upstream_reset_before_response_started{remote_connection_failure|x}",
        5,
      ),
      kind: "cancelled",
      tokens: 0,
    },
    {
      title: "an overflow",
      attributes: envoyAnswer("upstream_reset_before_response_started{overflow}", 7),
      kind: "cancelled",
      tokens: 0,
    },
    {
      title: "a reset before headers",
      attributes: envoyAnswer("upstream_reset_before_response_started{connection_termination}", 6),
      kind: "interrupted",
      tokens: 256,
    },
  ];
  for (const { title, attributes, kind, tokens } of envoyAnswers) {
    it(`charges ${String(tokens)} tokens (${kind}) for Envoy's own answer to ${title}`, () => {
      const bench = new Bench();
      const driven = bench.drive();
      const read = bench.desk.responseHeaders(
        driven.request,
        responseHead({ status: 503, contentType: "text/plain", attributes }),
        bench.now,
      );
      expect(read).to.equal(false);
      expect(bench.settled[0]).to.deep.include({ outcome: "http_5xx", status: 503 });
      expect(bench.settled[0]?.charge).to.deep.include({ kind, tokens });
      expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    });
  }

  it("does not take an answer of Envoy's to an unread request for a worker's", () => {
    const bench = new Bench();
    const driven = bench.drive({}, null);
    bench.desk.responseHeaders(
      driven.request,
      responseHead({
        status: 413,
        attributes: { ...NO_ATTRIBUTES, codeDetails: "request_payload_too_large" },
      }),
      bench.now,
    );
    expect(bench.settled[0]).to.include({ outcome: "pre_admission_interrupted", status: 413 });
  });

  it("opens a worker's breaker after five refused connections, and not for overflow", () => {
    const one = { workers: [{ url: "http://127.0.0.1:1", cluster: "w", models: ["demo"] }] };
    const send = (bench: Bench, attributes: ResponseAttributes): void => {
      const driven = bench.drive();
      bench.desk.responseHeaders(
        driven.request,
        responseHead({ status: 503, attributes }),
        bench.now,
      );
    };
    const overflow = new Bench(one);
    for (let count = 0; count < 10; count += 1) {
      send(overflow, envoyAnswer("upstream_reset_before_response_started{overflow}", 7));
    }
    expect(overflow.drive().last()?.kind).to.equal("route");
    const refused = new Bench(one);
    for (let count = 0; count < 5; count += 1) {
      send(
        refused,
        envoyAnswer("upstream_reset_before_response_started{remote_connection_failure}", 5),
      );
    }
    expect(refusal(refused.drive())).to.equal("no_worker");
    expect(refused.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("refuses with no_worker after the grant, and gives slot and turn to the next waiter", () => {
    const bench = new Bench(ONE_SLOT);
    const running = bench.drive();
    const held = [bench.drive(), bench.drive()];
    for (const url of ["http://127.0.0.1:1", "http://127.0.0.1:2"]) {
      bench.registry.recordHealth(url, false);
      bench.registry.recordHealth(url, false);
    }
    bench.answer(running);
    expect(held.map(refusal)).to.deep.equal(["no_worker", "no_worker"]);
    expect(bench.settled.slice(-1)[0]?.charge).to.deep.include({ kind: "cancelled", tokens: 0 });
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("lets a pass-through request reach a worker without a slot and never charges it", () => {
    const bench = new Bench(ONE_SLOT);
    bench.drive();
    const models = bench.drive({ method: "GET", target: "/v1/models", endOfStream: true });
    expect(models.last()?.kind).to.equal("route");
    bench.desk.responseHeaders(models.request, responseHead(), bench.now);
    bench.desk.end(models.request, false, bench.now);
    expect(bench.settled[0]).to.deep.include({
      endpoint: "pass_through",
      outcome: "success",
      charge: undefined,
      admitted: false,
    });
  });

  it("refuses new requests in a drain, serves the queue, and refuses who still waits at its end", () => {
    const bench = new Bench(ONE_SLOT);
    const running = bench.drive();
    const [served, waiting] = [bench.drive(), bench.drive()];
    bench.desk.drain();
    expect(refusal(bench.drive())).to.equal("draining");
    expect(
      refusal(bench.drive({ method: "GET", target: "/v1/models", endOfStream: true })),
    ).to.equal("draining");
    bench.answer(running);
    expect(served.last()?.kind).to.equal("route");
    bench.desk.refuseQueued(bench.now);
    expect(refusal(waiting)).to.equal("draining");
    bench.answer(served);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("refuses a request whose body comes after the end of a drain's queue, though its headers came before", () => {
    const bench = new Bench(ONE_SLOT);
    const late = bench.drive({}, null);
    bench.desk.drain();
    bench.desk.refuseQueued(bench.now);
    expect(bench.desk.body(late.request, CHAT, bench.now)).to.have.nested.property(
      "rejection.code",
      "draining",
    );
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("grants nothing to the requests of a connection that has gone, and charges none that never ran", () => {
    const bench = new Bench({ scheduler: { max_concurrent_requests: 4, queue_size: 100 } });
    const all = Array.from({ length: 20 }, () => bench.drive());
    // The connection goes: every stream on it ends, one after the other, before the next turn.
    for (const { request } of all) bench.desk.end(request, false, bench.now);
    bench.desk.turn(bench.now);
    expect(bench.admitted).to.equal(4);
    const kinds = bench.settled.map(({ charge }) => charge?.kind);
    expect(kinds.filter((kind) => kind === "interrupted")).to.have.length(4);
    expect(kinds.filter((kind) => kind === "cancelled")).to.have.length(16);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("grants a mass release in turns of 64", () => {
    const bench = new Bench({
      workers: [
        {
          url: "http://127.0.0.1:1",
          cluster: "w",
          models: ["demo"],
          labels: { max_running_requests: 1 },
        },
      ],
      scheduler: { max_concurrent_requests: 500, queue_size: 500 },
      fair_share: { max_queued_requests_per_tenant: 500 },
    });
    const first = bench.drive();
    const held = Array.from({ length: 100 }, () => bench.drive());
    bench.registry.put({
      id: "w",
      url: "http://127.0.0.1:1",
      cluster: "w" as never,
      engine: undefined,
      models: ["demo" as never],
      labels: { max_running_requests: 400, admission_partition: undefined },
      load_monitor_interval_secs: 10,
      telemetry_url: "http://127.0.0.1:1",
      api_key: undefined,
      kv_events: undefined,
    });
    expect(held.filter((driven) => driven.last()?.kind === "route")).to.have.length(64);
    expect(bench.moreWork).to.equal(1);
    bench.desk.turn(bench.now);
    expect(held.filter((driven) => driven.last()?.kind === "route")).to.have.length(100);
    for (const driven of [first, ...held]) bench.answer(driven);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("I-1 an authenticated caller, a trusted header, a socket address and nothing give four kinds of tenant", () => {
    const trusting = { trust: { tenant_id: true } };
    const tenantOf = (over: object, sketch: Parameters<Bench["drive"]>[0]): string | undefined => {
      const bench = new Bench({ ...over });
      bench.answer(bench.drive(sketch));
      return bench.settled[0]?.tenant;
    };
    const claims = { envoy: { identity_metadata: [{ namespace: "jwt", path: "sub" }] } };
    expect(tenantOf(claims, { evidence: { metadata: ["b3c2"] } })).to.equal("auth:b3c2");
    expect(tenantOf(trusting, { headers: { "x-weir-tenant-id": "team-red" } })).to.equal(
      "header:team-red",
    );
    expect(tenantOf({}, {})).to.equal("ip:203.0.113.42");
    expect(tenantOf({}, { evidence: { sourceAddress: undefined } })).to.equal("anonymous");
  });

  it("I-2 an untrusted estimate of 1 charges 256 provisionally, a trusted one of 128 charges 128", () => {
    const estimateOf = (over: object, value: string): number | undefined => {
      const bench = new Bench({ ...over });
      bench.answer(bench.drive({ headers: { "x-weir-output-token-estimate": value } }));
      return bench.settled[0]?.estimateTokens;
    };
    expect(estimateOf({}, "1")).to.equal(256);
    expect(estimateOf({ trust: { output_token_estimate: true } }, "128")).to.equal(128);
  });

  it("I-4 an unknown partition header means the default partition, and one model's full partition blocks no other", () => {
    const bench = new Bench({
      workers: [
        { url: "http://127.0.0.1:1", cluster: "w1", models: ["kimi", "demo"] },
        { url: "http://127.0.0.1:2", cluster: "w2", models: ["plain"] },
      ],
      models: {},
      trust: { admission_partition: true },
      scheduler: {
        max_concurrent_requests: 10,
        queue_size: 10,
        admission_partitions: {
          kimi: { max_concurrent_requests: 2, queue_size: 0 },
          default: { max_concurrent_requests: 3, queue_size: 0 },
        },
      },
    });
    const ask = (model: string, partition?: string): Driven =>
      bench.drive(
        partition === undefined ? {} : { headers: { "x-weir-admission-partition": partition } },
        bytes({ model, messages: [] }),
      );
    ask("kimi");
    ask("kimi");
    expect(refusal(ask("kimi"))).to.equal("scheduler_queue_full");
    // A model without a partition of its own uses the default one, also under an unknown header.
    const unknown = ask("plain", "nowhere");
    expect(unknown.last()?.kind).to.equal("route");
    bench.answer(unknown);
    expect(bench.settled.at(-1)).to.include({ partition: "default", unknownPartitionHeader: true });
    expect(ask("plain").last()?.kind).to.equal("route");
  });

  it("keeps the books: received = admitted + rejected + interrupted before admission + still undecided", () => {
    const bench = new Bench(ONE_SLOT);
    const running = bench.drive();
    const leaving = bench.drive();
    bench.drive();
    bench.drive();
    bench.drive({}, bytes("no"));
    bench.drive({ target: "/nope" });
    bench.desk.end(leaving.request, false, bench.now);
    bench.answer(running);
    const count = (outcome: string): number =>
      bench.settled.filter((record) => record.endpoint !== undefined && record.outcome === outcome)
        .length;
    expect(bench.received).to.equal(5);
    expect(bench.received).to.equal(
      bench.admitted +
        count("rejected") +
        count("pre_admission_interrupted") +
        bench.desk.counts.queued,
    );
  });

  it("treats an answer without attributes as the worker's", () => {
    const bench = new Bench();
    const driven = bench.drive({}, CHAT);
    const read = bench.desk.responseHeaders(
      driven.request,
      responseHead({ attributes: NO_ATTRIBUTES }),
      bench.now,
    );
    expect(read).to.equal(true);
    driven.request.responseBody(bytes({ usage: { completion_tokens: 3 } }));
    bench.desk.end(driven.request, true, bench.now);
    expect(bench.settled[0]?.charge).to.deep.include({ kind: "observed", tokens: 3 });
  });
});
