// What each end of a request costs its tenant, and which shares apply to it.

import { expect } from "chai";
import { Bench, bytes, CHAT, NOTHING_LEFT, responseHead } from "../../support/desk.js";

const TRUST = { tenant_id: true, request_model: true, output_token_estimate: true };
const HEADERS = {
  tenant: "x-weir-tenant-id",
  model: "x-weir-request-model",
  estimate: "x-weir-output-token-estimate",
};

interface Asking {
  readonly model?: string;
  readonly estimate?: string;
  readonly class?: string;
}

class ShareBench extends Bench {
  /** Lets `header:<tenant>` ask. */
  ask(tenant: string, how: Asking = {}, body = CHAT): ReturnType<Bench["drive"]> {
    return this.drive(
      {
        headers: {
          [HEADERS.tenant]: tenant,
          ...(how.model === undefined ? {} : { [HEADERS.model]: how.model }),
          ...(how.estimate === undefined ? {} : { [HEADERS.estimate]: how.estimate }),
          ...(how.class === undefined ? {} : { "x-weir-priority": how.class }),
        },
      },
      body,
    );
  }
}

const bench = (over: object = {}): ShareBench => new ShareBench({ trust: TRUST, ...over });
/** One slot for which the shipped classes preempt each other. */
const oneSlotWithClasses = (): ShareBench =>
  bench({
    scheduler: {
      max_concurrent_requests: 1,
      queue_size: 4,
      classes: {},
      default_max_class: "system",
    },
  });
const usage = (tokens: number): object => ({ usage: { completion_tokens: tokens } });

describe("the charge of a request", () => {
  it("books the default while it runs, and what it really produced when it ends", () => {
    const one = bench();
    const driven = one.ask("a");
    expect(one.tokens("header:a")).to.deep.equal([0, 256]);
    one.answer(driven, usage(37));
    expect(one.tokens("header:a")).to.deep.equal([37, 0]);
    expect(one.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("Q10 books a trusted estimate of 128, and 256 whatever an untrusted one says", () => {
    const trusting = bench();
    trusting.ask("a", { estimate: "128" });
    expect(trusting.tokens("header:a")).to.deep.equal([0, 128]);
    const wary = bench({ trust: { tenant_id: true } });
    wary.ask("a", { estimate: "1" });
    expect(wary.tokens("header:a")).to.deep.equal([0, 256]);
  });

  it("Q11 is nothing when Weir itself refuses after the grant, and no header of an answer refunds", () => {
    const one = bench();
    for (const worker of one.registry.all()) one.registry.recordHealth(worker.identity.url, false);
    for (const worker of one.registry.all()) one.registry.recordHealth(worker.identity.url, false);
    const refused = one.ask("a");
    expect(refused.last()).to.have.nested.property("rejection.code", "no_worker");
    expect(one.tokens("header:a")).to.deep.equal([0, 0]);
    one.desk.end(refused.request, false, one.now);
    expect(one.tokens("header:a")).to.deep.equal([0, 0]);
    expect(one.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("is nothing for a client that leaves the queue, and its place is free", () => {
    const one = bench({ scheduler: { max_concurrent_requests: 1, queue_size: 1 } });
    one.ask("a");
    const held = one.ask("b");
    one.desk.end(held.request, false, one.now);
    expect(one.tokens("header:b")).to.deep.equal([0, 0]);
    expect(one.ask("b").last()?.kind).to.equal("hold");
  });

  it("B9 is the estimate for a client that leaves before the answer, and for one that leaves half-way", () => {
    const one = bench();
    const early = one.ask("early", { estimate: "100" });
    one.desk.end(early.request, false, one.now);
    const late = one.ask("late", { estimate: "100" });
    one.desk.responseHeaders(late.request, responseHead(), one.now);
    late.request.responseBody(bytes('{"choices":['));
    one.desk.end(late.request, false, one.now);
    expect([one.tokens("header:early"), one.tokens("header:late")]).to.deep.equal([
      [100, 0],
      [100, 0],
    ]);
  });

  it("is not lower for a client that breaks off a stream late: it pays what it saw", () => {
    const one = bench();
    const driven = one.ask("a", { estimate: "1" });
    const head = responseHead({ contentType: "text/event-stream" });
    one.desk.responseHeaders(driven.request, head, one.now);
    for (let index = 0; index < 41; index += 1) {
      driven.request.responseBody(bytes('data: {"choices":[{"delta":{"content":"x"}}]}\n\n'));
    }
    one.desk.end(driven.request, false, one.now);
    // The first event of a stream carries no content.
    expect(one.tokens("header:a")).to.deep.equal([40, 0]);
  });

  it("is nothing for a victim of preemption, when its stream has ended", () => {
    const one = oneSlotWithClasses();
    const victim = one.ask("a", { class: "bulk" });
    one.ask("b", { class: "interactive" });
    expect(victim.last()).to.have.nested.property("rejection.code", "scheduler_preempted");
    expect(one.tokens("header:a"), "it still unwinds").to.deep.equal([0, 256]);
    one.desk.end(victim.request, false, one.now);
    expect(one.tokens("header:a")).to.deep.equal([0, 0]);
    one.desk.turn(one.now);
    expect(one.tokens("header:b")).to.deep.equal([0, 256]);
  });

  it("is the same account for bulk and interactive requests of a tenant", () => {
    const one = bench({ scheduler: { max_concurrent_requests: 4, queue_size: 4 } });
    one.answer(one.ask("a", { class: "bulk" }), usage(10));
    one.answer(one.ask("a", { class: "interactive" }), usage(5));
    expect(one.tokens("header:a")).to.deep.equal([15, 0]);
  });

  it("B1 the headers of an answer end the time in which a request can be preempted", () => {
    const one = oneSlotWithClasses();
    const running = one.ask("a", { class: "bulk" });
    one.desk.responseHeaders(running.request, responseHead(), one.now);
    one.ask("b", { class: "interactive" });
    expect(running.last()?.kind).to.equal("route");
  });

  it("B2 an answer that comes after the preemption is ignored, however often it comes", () => {
    const one = oneSlotWithClasses();
    const victim = one.ask("a", { class: "bulk" });
    one.ask("b", { class: "interactive" });
    expect(one.desk.responseHeaders(victim.request, responseHead(), one.now)).to.equal(false);
    expect(one.desk.responseHeaders(victim.request, responseHead(), one.now)).to.equal(false);
    one.desk.end(victim.request, true, one.now);
    expect(one.settled.at(-1)).to.include({ rejection: "scheduler_preempted" });
  });

  it("B3 an empty answer has no first byte", () => {
    const one = bench();
    const driven = one.ask("a");
    one.desk.responseHeaders(driven.request, responseHead({ endOfStream: true }), one.now);
    expect(one.settled.at(-1)).to.include({ timeToFirstByteMs: undefined, outcome: "success" });
  });

  it("B4 a request whose stream just ends gives its slot back", () => {
    const one = bench();
    const driven = one.ask("a");
    one.desk.end(driven.request, false, one.now);
    expect(one.leftovers()).to.deep.equal(NOTHING_LEFT);
  });
});

describe("the shares of a request", () => {
  const models = {
    "deepseek-v4-flash": { aliases: ["deepseek-flash"] },
    demo: {},
  };
  const fair_share = {
    model_profiles: {
      "deepseek-v4-flash": { tenant_weights: { "header:a": 30 }, other_weight: 20 },
    },
  };
  const profiled = (): ShareBench => bench({ models, fair_share });
  const shareOf = (one: ShareBench, tenant: string, how: Asking = {}): unknown => {
    one.answer(one.ask(tenant, how));
    return one.settled.at(-1)?.share;
  };

  it("P10 I-3 are those of the model's profile when a trusted proxy names its alias", () => {
    const one = profiled();
    expect(shareOf(one, "a", { model: "deepseek-flash" })).to.deep.equal({
      profile: "deepseek-v4-flash",
      bucket: "explicit",
      weighted: true,
    });
    expect(shareOf(one, "b", { model: "deepseek-v4-flash" })).to.deep.equal({
      profile: "deepseek-v4-flash",
      bucket: "other",
      weighted: false,
    });
    expect(one.settled.at(-1), "the route follows the body").to.include({ model: "demo" });
  });

  it("are the flat ones for a model without a profile, for none, and for one nobody vouched for", () => {
    const flat = { profile: undefined, bucket: "flat", weighted: false };
    expect(shareOf(profiled(), "a", { model: "demo" })).to.deep.equal(flat);
    const one = profiled();
    expect(shareOf(one, "a")).to.deep.equal(flat);
    expect(one.settled.at(-1)?.requestModelFallback).to.equal("missing_request_model");
    const off = bench({ fair_share: { enabled: false } });
    expect(shareOf(off, "a")).to.equal(undefined);
    expect(off.ledger).to.equal(undefined);
  });

  it("do not exist for a request that never asked for a slot, and a full queue says which limit it is", () => {
    const one = bench({
      scheduler: { max_concurrent_requests: 1, queue_size: 2 },
      fair_share: { max_queued_requests_per_tenant: 1 },
    });
    one.ask("a");
    one.ask("a");
    const refused = one.ask("a");
    expect(refused.last()).to.have.nested.property("rejection.code", "scheduler_queue_full");
    expect(one.settled.at(-1)).to.include({ queueRefusal: "tenant_limit", share: undefined });
    one.ask("b");
    one.ask("c");
    expect(one.settled.at(-1)).to.include({ queueRefusal: "global_limit" });
  });

  it("give two tenants turns, and a third nothing for idling", () => {
    const one = bench({ scheduler: { max_concurrent_requests: 1, queue_size: 20 } });
    const running = one.ask("z");
    const waiting = ["a", "a", "a", "b", "b", "b"].map((tenant) => ({
      tenant,
      driven: one.ask(tenant),
    }));
    const order: string[] = [];
    let current = running;
    for (let served = 0; served < 6; served += 1) {
      one.answer(current, usage(10));
      const next = waiting.find(
        ({ driven }) => driven.last()?.kind === "route" && !driven.request.ended,
      );
      if (next === undefined) break;
      order.push(next.tenant);
      current = next.driven;
    }
    expect(order.join("")).to.equal("ababab");
  });
});
