// A running request gives way to one of a higher class, over real streams. Goal: the victim is answered
// once, at once, and never written to again; its slot is free when its stream has ended and not before;
// and whatever happens in the same moment, each request has one end and nothing is left held.

import { expect } from "chai";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { ConfigSketch } from "../support/config.js";
import {
  describeTransports,
  finish,
  NOTHING_HELD,
  refusalHeaders,
  requestBody,
  requestHeaders,
  responseBody,
  responseHeaders,
  responseTrailers,
  sent,
  until,
  withWeir,
  type ExtProcClient,
  type ProcessStream,
  type RequestSketch,
  type WeirUnderTest,
} from "../support/ext-proc-client.js";

const PREEMPTED = "refuse 503 scheduler_preempted";
/** Rounds of each race: either side goes first, by nothing or by a few turns of the event loop. */
const ROUNDS = 24;
const TURNS_MAX = 12;

const plain = (canPreempt: boolean, over: object = {}): object => ({
  reserved_floor: 0,
  queue_size: 100,
  queue_timeout_secs: 30,
  starvation_threshold_secs: 100,
  can_preempt: canPreempt,
  ...over,
});

const slots = (count: number, over: object = {}): ConfigSketch => ({
  scheduler: {
    max_concurrent_requests: count,
    queue_size: 100,
    default_max_class: "system",
    classes: {
      bulk: plain(false),
      default: plain(false),
      interactive: plain(true),
      system: plain(true),
    },
    ...over,
  },
});

const asClass = (name: string): Pick<RequestSketch, "headers"> => ({
  headers: [["x-weir-priority", name]],
});

/** Lets everything that was sent before reach Weir: round trips on the same connection. */
async function roundTrip(client: ExtProcClient): Promise<void> {
  for (let count = 0; count < 3; count += 1) {
    const stream = client.open();
    expect(await stream.ask(requestHeaders({ id: "ping", path: "/ping" }))).to.equal(
      "refuse 404 unknown_path",
    );
    stream.end();
    await stream.ended;
  }
}

/** Does both in one tick, or the second a few turns later; which one is first changes each round. */
async function race(round: number, one: () => void, other: () => void): Promise<void> {
  const [first, second] = round % 2 === 0 ? [one, other] : [other, one];
  first();
  for (let turns = (round >> 1) % TURNS_MAX; turns > 0; turns -= 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  second();
}

const settledOf = (weir: WeirUnderTest, id: string): SettlementRecord[] =>
  weir.settled.filter(({ requestId }) => requestId === id);

/** A request that is ready to send its body. */
async function opened(client: ExtProcClient, id: string, name: string): Promise<ProcessStream> {
  const stream = client.open();
  await stream.ask(requestHeaders({ id, ...asClass(name) }));
  return stream;
}

const ENDS: readonly (readonly [string, (stream: ProcessStream) => void])[] = [
  [
    "half-closed",
    (stream) => {
      stream.end();
    },
  ],
  [
    "cancelled",
    (stream) => {
      stream.cancel();
    },
  ],
];

describeTransports("preemption", (start) => {
  for (const [how, end] of ENDS) {
    it(`answers a victim 503 while no reply is owed, writes nothing more, and frees its slot when its stream is ${how}`, () =>
      withWeir(start, slots(1), async (weir, client) => {
        const victim = await sent(client, "victim", asClass("bulk"));
        const urgent = await sent(client, "urgent", asClass("interactive"));
        const refusal = await victim.shape();
        expect(refusal.immediate_response?.status.code).to.equal(503);
        const headers = refusalHeaders(refusal);
        expect(headers.get("x-weir-error-code")).to.equal("scheduler_preempted");
        expect(headers.get("x-weir-preempted")).to.equal("true");
        expect(headers.get("retry-after")).to.equal("1");
        expect(headers.get("content-type")).to.equal("application/json");
        const late = [
          responseHeaders(),
          responseBody('{"usage":{"completion_tokens":9}}'),
          responseBody("", true),
          responseTrailers(),
          requestBody(),
        ];
        for (const message of late) {
          victim.send(message);
          await roundTrip(client);
          expect(weir.held()).to.deep.equal({ inFlight: 1, load: 1, live: 2, queued: 1 });
        }
        expect(victim.kinds()).to.deep.equal(["request_headers", "route", PREEMPTED]);
        expect(urgent.kinds()).to.deep.equal(["request_headers", "hold"]);
        expect(settledOf(weir, "victim")).to.have.length(0);
        end(victim);
        await victim.ended;
        expect(await urgent.reply()).to.equal("route");
        await finish(urgent);
        await weir.idle();
        expect(victim.kinds()).to.have.length(3);
        expect(settledOf(weir, "victim")).to.have.length(1);
        expect(settledOf(weir, "victim")[0]).to.deep.include({
          class: "bulk",
          preemptedBy: "interactive",
          rejection: "scheduler_preempted",
          outcome: "http_5xx",
          status: 503,
          charge: { kind: "cancelled", tokens: 0, clockTokens: 0 },
        });
        expect(settledOf(weir, "urgent")[0]).to.include({ outcome: "success", waited: true });
      }));
  }

  it("frees a victim's slot when its connection is lost", () =>
    withWeir(start, slots(1), async (weir, client) => {
      const relay = await weir.relay();
      const victim = await sent(weir.client(relay.target), "victim", asClass("bulk"));
      const urgent = await sent(client, "urgent", asClass("system"));
      expect(await victim.reply()).to.equal(PREEMPTED);
      relay.cut();
      expect(await urgent.reply()).to.equal("route");
      await finish(urgent);
      await weir.settlements(2);
      expect(settledOf(weir, "victim")[0]).to.include({ preemptedBy: "system" });
    }));

  it("never touches a request past its response headers, and serves the other when it has ended", () =>
    withWeir(start, slots(1), async (weir, client) => {
      const running = await sent(client, "running", asClass("bulk"));
      expect(await running.ask(responseHeaders({ contentType: "text/event-stream" }))).to.equal(
        "read",
      );
      const urgent = await sent(client, "urgent", asClass("system"));
      await roundTrip(client);
      expect(await running.ask(responseBody("data: {}\n\n"))).to.equal("response_body");
      expect(urgent.kinds()).to.deep.equal(["request_headers", "hold"]);
      expect(
        await running.ask(responseBody('data: {"usage":{"completion_tokens":3}}\n\n', true)),
      ).to.equal("response_body");
      expect(await urgent.reply()).to.equal("route");
      running.end();
      await finish(urgent);
      await weir.idle();
      expect(settledOf(weir, "running")[0]).to.include({
        outcome: "success",
        preemptedBy: undefined,
      });
    }));

  it("leaves everybody alone for a class without the right, for an equal class, and for a request without a place", () =>
    withWeir(start, slots(1, { queue_size: 2 }), async (weir, client) => {
      const running = await sent(client, "running", asClass("bulk"));
      const waiting = [
        await sent(client, "default", asClass("default")),
        await sent(client, "bulk", asClass("bulk")),
      ];
      const third = await sent(client, "third", asClass("system"));
      expect(third.kinds().at(-1)).to.equal("refuse 429 scheduler_queue_full");
      await roundTrip(client);
      expect(running.kinds()).to.deep.equal(["request_headers", "route"]);
      for (const stream of [running, ...waiting, third]) stream.end();
      await weir.idle();
    }));

  it("takes one victim for each of 40 requests that arrive at once, and no other", () =>
    withWeir(start, slots(60), async (weir, client) => {
      const running: ProcessStream[] = [];
      for (let count = 0; count < 60; count += 1) {
        running.push(await sent(client, `v-${String(count)}`, asClass("bulk")));
      }
      const urgent = await Promise.all(
        Array.from({ length: 40 }, (_, index) => opened(client, `u-${String(index)}`, "system")),
      );
      for (const stream of urgent) stream.send(requestBody());
      for (const stream of urgent) expect(await stream.reply()).to.equal("hold");
      await roundTrip(client);
      const victims = running.filter((stream) => stream.kinds().at(-1) === PREEMPTED);
      // The youngest, which have the least to lose.
      expect(victims).to.have.members(running.slice(20));
      for (const stream of victims) stream.end();
      for (const stream of urgent) expect(await stream.reply()).to.equal("route");
      await Promise.all([...urgent, ...running.slice(0, 20)].map(finish));
      await weir.idle();
      const records = weir.settled.filter(({ requestId }) => requestId !== "ping");
      expect(records).to.have.length(100);
      expect(records.filter(({ preemptedBy }) => preemptedBy === "system")).to.have.length(40);
    }));
});

describeTransports("preemption in the same tick", (start) => {
  /** One race per round, on one Weir. */
  const races = (
    title: string,
    run: (weir: WeirUnderTest, client: ExtProcClient, round: number) => Promise<void>,
  ): void => {
    it(title, () =>
      withWeir(start, slots(1), async (weir, client) => {
        for (let round = 0; round < ROUNDS; round += 1) {
          weir.clear();
          await run(weir, client, round);
          await weir.idle();
          expect(weir.held()).to.deep.equal(NOTHING_HELD);
          expect(settledOf(weir, "victim")).to.have.length(1);
          expect(settledOf(weir, "urgent")).to.have.length(1);
        }
      }),
    );
  };

  races(
    "either takes a victim whole or leaves it whole when its response headers come with the preemptor's body",
    async (weir, client, round) => {
      // Two connections: which message Weir sees first is open.
      const victim = await sent(weir.client(), "victim", asClass("bulk"));
      const urgent = await opened(client, "urgent", "interactive");
      await race(
        round,
        () => {
          victim.send(responseHeaders());
        },
        () => {
          urgent.send(requestBody());
        },
      );
      const first = await victim.reply();
      expect(await urgent.reply()).to.equal("hold");
      if (first === "read") {
        await victim.ask(responseBody('{"usage":{"completion_tokens":5}}', true));
        expect(await urgent.reply()).to.equal("route");
      } else {
        expect(first).to.equal(PREEMPTED);
        victim.send(responseBody("{}", true));
        await roundTrip(client);
        expect(victim.kinds()).to.deep.equal(["request_headers", "route", PREEMPTED]);
        expect(urgent.kinds()).to.deep.equal(["request_headers", "hold"]);
      }
      victim.end();
      await victim.ended;
      if (first !== "read") expect(await urgent.reply()).to.equal("route");
      await finish(urgent);
      const [record] = settledOf(weir, "victim");
      expect(record?.charge?.tokens).to.equal(first === "read" ? 5 : 0);
      expect(record?.preemptedBy).to.equal(first === "read" ? undefined : "interactive");
    },
  );

  races(
    "gives the slot on once when the victim's client leaves with it",
    async (weir, client, round) => {
      const victim = await sent(weir.client(), "victim", asClass("bulk"));
      const urgent = await opened(client, "urgent", "interactive");
      await race(
        round,
        () => {
          victim.cancel();
        },
        () => {
          urgent.send(requestBody());
        },
      );
      const first = await urgent.reply();
      if (first === "hold") expect(await urgent.reply()).to.equal("route");
      else expect(first).to.equal("route");
      await victim.ended;
      await finish(urgent);
      await weir.idle();
      const [record] = settledOf(weir, "victim");
      if (record?.preemptedBy === undefined) expect(record?.outcome).to.equal("interrupted");
      else expect(record.charge?.tokens).to.equal(0);
    },
  );

  races(
    "gives a victim's slot to the next who waits when the preemptor leaves before the victim has ended",
    async (weir, client) => {
      const victim = await sent(client, "victim", asClass("bulk"));
      const patient = await sent(client, "patient", asClass("bulk"));
      const urgent = await sent(client, "urgent", asClass("interactive"));
      expect(await victim.reply()).to.equal(PREEMPTED);
      urgent.cancel();
      await until("the preemptor is gone", () => weir.app.desk.counts.queued === 1);
      expect(patient.kinds()).to.deep.equal(["request_headers", "hold"]);
      victim.end();
      expect(await patient.reply()).to.equal("route");
      await finish(patient);
      await urgent.ended;
      await weir.idle();
      expect(settledOf(weir, "urgent")[0]?.outcome).to.equal("pre_admission_interrupted");
    },
  );

  races(
    "leaves nothing behind when preemptor and victim leave together",
    async (weir, client, round) => {
      const victim = await sent(weir.client(), "victim", asClass("bulk"));
      const urgent = await sent(client, "urgent", asClass("system"));
      await race(
        round,
        () => {
          victim.cancel();
        },
        () => {
          urgent.cancel();
        },
      );
      await Promise.all([victim.ended, urgent.ended]);
      await until("both have ended", () => weir.settled.length === 2);
    },
  );
});
