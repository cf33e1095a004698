// Classes, the rate check and the limiter over real streams: what Envoy is asked for, in which order
// held requests are served, and how each refusal looks.

import { expect } from "chai";
import type { ConfigSketch } from "../support/config.js";
import {
  describeTransports,
  finish,
  NOTHING_HELD,
  refusalHeaders,
  requestBody,
  requestHeaders,
  sent,
  until,
  within,
  withWeir,
  type ProcessStream,
  type RequestSketch,
} from "../support/ext-proc-client.js";

const NEVER = new AbortController().signal;
const NAMES = ["bulk", "default", "interactive", "system"] as const;
const asClass = (name: string): Pick<RequestSketch, "headers"> => ({
  headers: [["x-weir-priority", name]],
});

/** Four classes with these queue timeouts in seconds; nobody starves. */
const oneSlot = (
  timeouts: readonly [number, number, number, number],
  over: object = {},
  canPreempt = false,
): ConfigSketch => ({
  scheduler: {
    max_concurrent_requests: 1,
    queue_size: 10,
    default_max_class: "system",
    classes: Object.fromEntries(
      NAMES.map((name, rank) => [
        name,
        {
          reserved_floor: 0,
          queue_size: 10,
          queue_timeout_secs: timeouts[rank],
          starvation_threshold_secs: 100,
          can_preempt: canPreempt && rank > 1,
        },
      ]),
    ),
    ...over,
  },
});

describeTransports("classes", (start) => {
  it("asks Envoy for the class's own queue timeout and 5 s more, once", () =>
    withWeir(start, oneSlot([300, 60, 30, 7]), async (weir, client) => {
      const running = await sent(client, "running");
      const held: ProcessStream[] = [];
      for (const [index, name] of NAMES.entries()) {
        const stream = client.open();
        await stream.ask(requestHeaders({ id: name, ...asClass(name) }));
        stream.send(requestBody());
        const budget = (await stream.shape()).override_message_timeout;
        expect(budget?.seconds, name).to.equal([305, 65, 35, 12][index]);
        held.push(stream);
      }
      for (const stream of [running, ...held]) stream.end();
      await weir.settlements(5);
      for (const stream of held) {
        expect(stream.kinds().filter((kind) => kind === "hold")).to.have.length(1);
      }
    }));

  it("serves the highest class first and within a class the oldest", () =>
    withWeir(start, oneSlot([30, 30, 30, 30]), async (weir, client) => {
      const running = await sent(client, "running");
      const held: [string, ProcessStream][] = [];
      for (const id of ["bulk-1", "default-1", "system-1", "interactive-1", "default-2"]) {
        held.push([id, await sent(client, id, asClass(id.split("-")[0] ?? ""))]);
      }
      await finish(running);
      for (const id of ["system-1", "interactive-1", "default-1", "default-2", "bulk-1"]) {
        const stream = held.find(([name]) => name === id)?.[1];
        if (stream === undefined) throw new Error(id);
        expect(await stream.reply(), id).to.equal("route");
        const routed = held.filter(([, one]) => one.kinds().at(-1) === "route");
        expect(routed.map(([name]) => name)).to.deep.equal([id]);
        await finish(stream);
      }
      await weir.settlements(6);
    }));

  it("times each class out by its own patience, with Retry-After, while others wait on", () =>
    withWeir(start, oneSlot([30, 2, 1, 30]), async (weir, client) => {
      const running = await sent(client, "running");
      const patient = await sent(client, "bulk", asClass("bulk"));
      const slower = await sent(client, "default", asClass("default"));
      const faster = await sent(client, "interactive", asClass("interactive"));
      const refusal = await faster.shape();
      expect(refusal.immediate_response?.status.code).to.equal(429);
      const headers = refusalHeaders(refusal);
      expect(headers.get("x-weir-error-code")).to.equal("scheduler_queue_timeout");
      // No slot was ever freed: the class's whole queue timeout.
      expect(headers.get("retry-after")).to.equal("1");
      expect(slower.kinds()).to.deep.equal(["request_headers", "hold"]);
      const later = await slower.shape();
      expect(refusalHeaders(later).get("retry-after")).to.equal("2");
      expect(patient.kinds()).to.deep.equal(["request_headers", "hold"]);
      await finish(running);
      expect(await patient.reply()).to.equal("route");
      await finish(patient);
      for (const stream of [slower, faster]) stream.end();
      await weir.settlements(4);
      const waits = new Map(weir.settled.map(({ requestId, queuedMs }) => [requestId, queuedMs]));
      expect(waits.get("interactive")).to.be.at.least(1_000);
      expect(waits.get("default")).to.be.at.least(2_000);
    }));

  it("lowers what a client asks for to its tenant's ceiling", () => {
    const policies = {
      default_max_class: "default",
      tenant_policies: { "ip:198.51.100.7": { max_class: "interactive" } },
    };
    return withWeir(start, oneSlot([30, 30, 30, 30], policies), async (weir, client) => {
      const asked = asClass("system");
      await finish(await sent(client, "known", { ...asked, source: "198.51.100.7:4711" }));
      await finish(await sent(client, "other", asked));
      await finish(await sent(client, "unknown", asClass("urgent")));
      await weir.settlements(3);
      expect(weir.settled.map((record) => [record.requestedClass, record.class])).to.deep.equal([
        ["system", "interactive"],
        ["system", "default"],
        ["default", "default"],
      ]);
    });
  });

  it("serves the classes in order in a drain, refuses new ones, and waits for a victim that unwinds", () =>
    withWeir(start, oneSlot([30, 30, 30, 30], {}, true), async (weir, client) => {
      const victim = await sent(client, "victim", asClass("bulk"));
      const low = await sent(client, "low", asClass("bulk"));
      const high = await sent(client, "high", asClass("interactive"));
      expect(await victim.reply()).to.equal("refuse 503 scheduler_preempted");
      let over = false;
      const drained = weir.app.drain(NEVER).finally(() => {
        over = true;
      });
      const late = client.open();
      expect(await late.ask(requestHeaders({ ...asClass("system") }))).to.equal(
        "refuse 503 draining",
      );
      late.end();
      victim.end();
      expect(await high.reply()).to.equal("route");
      expect(low.kinds()).to.deep.equal(["request_headers", "hold"]);
      await finish(high);
      expect(await low.reply()).to.equal("route");
      expect(over).to.equal(false);
      await finish(low);
      expect(await within("the end of the drain", drained)).to.deep.equal({
        refused: 0,
        unobserved: 0,
      });
      expect(weir.held()).to.deep.equal(NOTHING_HELD);
    }));

  it("does not end a drain before the stream of its last victim has ended", () =>
    withWeir(start, oneSlot([30, 30, 30, 30], {}, true), async (weir, client) => {
      const victim = await sent(client, "victim", asClass("bulk"));
      const high = await sent(client, "high", asClass("system"));
      expect(await victim.reply()).to.equal("refuse 503 scheduler_preempted");
      high.cancel();
      await high.ended;
      const drained = weir.app.drain(NEVER);
      const first = await Promise.race([
        drained.then(() => "drained"),
        client.open().ask(requestHeaders({ id: "late" })),
      ]);
      expect(first).to.equal("refuse 503 draining");
      victim.end();
      expect(await within("the end of the drain", drained)).to.deep.equal({
        refused: 0,
        unobserved: 0,
      });
    }));
});

describeTransports("the rate check", (start) => {
  it("refuses with 429 rate_limited and Retry-After, before queue and slots", () =>
    withWeir(
      start,
      { scheduler: { max_concurrent_requests: 2, queue_size: 5, rate_limit_tokens_per_second: 1 } },
      async (weir, client) => {
        const running = [await sent(client, "a"), await sent(client, "b")];
        const limited = client.open();
        await limited.ask(requestHeaders({ id: "c" }));
        limited.send(requestBody());
        const refusal = await limited.shape();
        expect(refusal.immediate_response?.status.code).to.equal(429);
        expect(refusalHeaders(refusal).get("x-weir-error-code")).to.equal("rate_limited");
        expect(refusalHeaders(refusal).get("retry-after")).to.equal("1");
        expect(weir.held()).to.deep.equal({ inFlight: 2, load: 2, live: 2, queued: 0 });
        limited.end();
        for (const stream of running) await finish(stream);
        await weir.settlements(3);
        expect(weir.settled[0]).to.include({ requestId: "c", outcome: "rejected" });
      },
    ));
});

describeTransports("the limiter", (start) => {
  const limiter = (over: object = {}): ConfigSketch => ({
    scheduler: {
      enabled: false,
      max_concurrent_requests: 1,
      rate_limit_tokens_per_second: 0,
      queue_size: 2,
      queue_timeout_secs: 20,
      ...over,
    },
  });

  it("holds in one queue in order of arrival whatever the class, and preempts nobody", () =>
    withWeir(start, limiter(), async (weir, client) => {
      const running = await sent(client, "running", asClass("bulk"));
      const first = client.open();
      await first.ask(requestHeaders({ id: "first", ...asClass("bulk") }));
      first.send(requestBody());
      // Queue timeout 20 s + 5 s.
      expect((await first.shape()).override_message_timeout?.seconds).to.equal(25);
      const second = await sent(client, "second", asClass("system"));
      const third = await sent(client, "third", asClass("system"));
      expect(third.kinds().at(-1)).to.equal("refuse 429 scheduler_queue_full");
      third.end();
      expect(weir.held()).to.deep.equal({ inFlight: 1, load: 1, live: 3, queued: 2 });
      await finish(running);
      expect(await first.reply()).to.equal("route");
      expect(second.kinds()).to.deep.equal(["request_headers", "hold"]);
      await finish(first);
      expect(await second.reply()).to.equal("route");
      await finish(second);
      await weir.settlements(4);
      expect(weir.held()).to.deep.equal(NOTHING_HELD);
    }));

  it("L3 frees the place of a waiter that left at once", () =>
    withWeir(start, limiter({ queue_size: 1 }), async (weir, client) => {
      const running = await sent(client, "running");
      const leaving = await sent(client, "leaving");
      leaving.cancel();
      await until("the place is free", () => weir.settled.length === 1);
      const next = await sent(client, "next");
      expect(next.kinds().at(-1)).to.equal("hold");
      await finish(running);
      expect(await next.reply()).to.equal("route");
      await finish(next);
      await weir.settlements(3);
    }));

  it("lets a held request go when a token comes back by itself, without any end", () =>
    withWeir(start, limiter({ rate_limit_tokens_per_second: 10 }), async (weir, client) => {
      const running = await sent(client, "running");
      const held = await sent(client, "held");
      if (held.kinds().at(-1) === "hold") expect(await held.reply()).to.equal("route");
      expect(weir.held()).to.deep.equal({ inFlight: 2, load: 2, live: 2, queued: 0 });
      for (const stream of [running, held]) await finish(stream);
      await weir.settlements(2);
    }));

  it("refuses at its queue timeout in the usual shape", () =>
    withWeir(start, limiter({ queue_timeout_secs: 1 }), async (weir, client) => {
      const running = await sent(client, "running");
      const held = await sent(client, "held");
      const refusal = await held.shape();
      expect(refusal.immediate_response?.status.code).to.equal(429);
      expect(refusalHeaders(refusal).get("x-weir-error-code")).to.equal("scheduler_queue_timeout");
      expect(refusalHeaders(refusal).get("retry-after")).to.equal("1");
      held.end();
      await finish(running);
      await weir.settlements(2);
    }));
});
