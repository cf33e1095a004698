// Classes, preemption, partitions, the rate check and the limiter as a request lives through them.

import { expect } from "chai";
import type { ConfigSketch } from "../../support/config.js";
import { clusterName, modelId } from "../../../extproc/core/model/ids.js";
import {
  Bench,
  bytes,
  CHAT,
  NOTHING_LEFT,
  responseHead,
  type Driven,
  type HeadSketch,
} from "../../support/desk.js";

const PATIENT = { queue_size: 100, queue_timeout_secs: 30, starvation_threshold_secs: 100 };
const bare = (over: object = {}): object => ({
  ...PATIENT,
  reserved_floor: 0,
  can_preempt: false,
  ...over,
});
const preempting = {
  bulk: bare(),
  default: bare(),
  interactive: bare({ can_preempt: true }),
  system: bare({ can_preempt: true }),
};

const oneSlot = (over: object = {}): ConfigSketch => ({
  scheduler: {
    max_concurrent_requests: 1,
    queue_size: 10,
    default_max_class: "system",
    classes: preempting,
    ...over,
  },
});

const asClass = (name: string): HeadSketch => ({ headers: { "x-weir-priority": name } });

function refusal(driven: Driven): string | undefined {
  const verdict = driven.last();
  return verdict?.kind === "refuse" ? verdict.rejection.code : undefined;
}

describe("preemption of a request", () => {
  it("C6 ends a victim at its worker with 503 at once, and frees its slot only when its stream has ended", () => {
    const bench = new Bench(oneSlot());
    const victim = bench.drive(asClass("bulk"));
    const urgent = bench.drive(asClass("interactive"));
    expect(victim.verdicts.map(({ kind }) => kind)).to.deep.equal(["continue", "route", "refuse"]);
    expect(victim.last()).to.have.nested.property("rejection.code", "scheduler_preempted");
    expect(victim.last()).to.have.nested.property("rejection.status", 503);
    expect(victim.last()).to.have.nested.property("rejection.retryAfterS", 1);
    expect(urgent.last()?.kind).to.equal("hold");
    expect(bench.leftovers()).to.deep.include({ inFlight: 1, load: 1, queued: 1 });
    expect(bench.settled).to.deep.equal([]);
    bench.desk.end(victim.request, false, bench.now);
    expect(urgent.last()?.kind).to.equal("hold");
    bench.desk.turn(bench.now);
    expect(urgent.last()?.kind).to.equal("route");
    expect(bench.settled).to.have.length(1);
    expect(bench.settled[0]).to.deep.include({
      class: "bulk",
      preemptedBy: "interactive",
      rejection: "scheduler_preempted",
      outcome: "http_5xx",
      status: 503,
      admitted: true,
      charge: { kind: "cancelled", tokens: 0, clockTokens: 0 },
    });
    bench.answer(urgent);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("ignores an answer that crossed with the preemption, whole or not", () => {
    const bench = new Bench(oneSlot());
    const victim = bench.drive(asClass("bulk"));
    bench.drive(asClass("interactive"));
    expect(bench.desk.responseHeaders(victim.request, responseHead(), bench.now)).to.equal(false);
    victim.request.responseBody(bytes({ usage: { completion_tokens: 99 } }));
    expect(bench.settled).to.deep.equal([]);
    bench.desk.end(victim.request, true, bench.now);
    expect(bench.settled[0]?.charge?.tokens).to.equal(0);
    expect(bench.settled[0]?.outcome).to.equal("http_5xx");
  });

  it("never touches a request whose response headers have come", () => {
    const bench = new Bench(oneSlot());
    const running = bench.drive(asClass("bulk"));
    bench.desk.responseHeaders(running.request, responseHead(), bench.now);
    const urgent = bench.drive(asClass("system"));
    expect(running.verdicts.map(({ kind }) => kind)).to.deep.equal(["continue", "route"]);
    expect(urgent.last()?.kind).to.equal("hold");
  });

  it("settles once when the victim's client leaves while it unwinds", () => {
    const bench = new Bench(oneSlot());
    const victim = bench.drive(asClass("bulk"));
    const urgent = bench.drive(asClass("interactive"));
    bench.desk.end(victim.request, false, bench.now);
    bench.desk.end(victim.request, false, bench.now);
    bench.desk.turn(bench.now);
    bench.answer(urgent);
    expect(bench.settled).to.have.length(2);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("gives the slot to whoever is next when the preempting client leaves first", () => {
    const bench = new Bench(oneSlot());
    const victim = bench.drive(asClass("bulk"));
    const patient = bench.drive(asClass("bulk"));
    const urgent = bench.drive(asClass("interactive"));
    bench.desk.end(urgent.request, false, bench.now);
    bench.desk.end(victim.request, false, bench.now);
    bench.desk.turn(bench.now);
    expect(patient.last()?.kind).to.equal("route");
    bench.answer(patient);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });
});

describe("classes of a request", () => {
  it("lowers the asked class to the tenant's ceiling and keeps both in the record", () => {
    const bench = new Bench({
      scheduler: {
        max_concurrent_requests: 4,
        queue_size: 1,
        default_max_class: "default",
        tenant_policies: { "ip:203.0.113.42": { max_class: "interactive" } },
      },
    });
    bench.answer(bench.drive(asClass("system")));
    bench.answer(
      bench.drive({ ...asClass("system"), evidence: { sourceAddress: "198.51.100.7:1" } }),
    );
    bench.answer(bench.drive(asClass("urgent")));
    const classes = bench.settled.map((record) => [
      record.requestedClass,
      record.class,
      record.unknownPriorityValue,
    ]);
    expect(classes).to.deep.equal([
      ["system", "interactive", false],
      ["system", "default", false],
      ["default", "default", true],
    ]);
  });

  it("asks Envoy to hold a request for its class's queue timeout and five seconds more", () => {
    const classes = {
      bulk: bare({ queue_timeout_secs: 300 }),
      interactive: bare({ queue_timeout_secs: 20 }),
    };
    const bench = new Bench(oneSlot({ classes }));
    bench.drive();
    expect(bench.drive(asClass("bulk")).last()).to.deep.equal({ kind: "hold", budgetMs: 305_000 });
    expect(bench.drive(asClass("interactive")).last()).to.deep.equal({
      kind: "hold",
      budgetMs: 25_000,
    });
  });

  it("times each class out by its own patience", () => {
    const classes = {
      bulk: bare({ queue_timeout_secs: 20 }),
      interactive: bare({ queue_timeout_secs: 5 }),
    };
    const bench = new Bench(oneSlot({ classes }));
    bench.drive();
    const [slow, fast] = [bench.drive(asClass("bulk")), bench.drive(asClass("interactive"))];
    bench.advance(5_000);
    bench.desk.expire(bench.now);
    expect([refusal(slow), refusal(fast)]).to.deep.equal([undefined, "scheduler_queue_timeout"]);
    bench.advance(15_000);
    bench.desk.expire(bench.now);
    expect(refusal(slow)).to.equal("scheduler_queue_timeout");
  });
});

describe("partitions of a request", () => {
  const pools = {
    workers: [
      { url: "http://127.0.0.1:1", cluster: "w1", models: ["kimi"] },
      { url: "http://127.0.0.1:2", cluster: "w2", models: ["dsv4"] },
      { url: "http://127.0.0.1:3", cluster: "w3", models: ["plain"] },
    ],
    models: {},
    trust: { admission_partition: true },
    scheduler: {
      max_concurrent_requests: 16,
      queue_size: 10,
      admission_partitions: {
        kimi: { max_concurrent_requests: 6, queue_size: 0 },
        dsv4: { max_concurrent_requests: 6, queue_size: 0 },
        default: { max_concurrent_requests: 4, queue_size: 0 },
      },
    },
  };

  it("P7 with six kimi slots held the seventh is refused, another model's partition admits, an unknown header means default", () => {
    const bench = new Bench({ ...pools, scheduler: { ...pools.scheduler, reserved_share_max: 0 } });
    const ask = (model: string, headers = {}): Driven => bench.drive({ headers }, bytes({ model }));
    for (let index = 0; index < 6; index += 1) expect(ask("kimi").last()?.kind).to.equal("route");
    expect(refusal(ask("kimi"))).to.equal("scheduler_queue_full");
    expect(ask("dsv4").last()?.kind).to.equal("route");
    const unknown = ask("plain", { "x-weir-admission-partition": "Kimi" });
    expect(unknown.last()?.kind).to.equal("route");
    bench.answer(unknown);
    expect(bench.settled.at(-1)).to.include({ partition: "default", unknownPartitionHeader: true });
  });

  it("P8 a worker that reports 512 is held to 256, and capacity follows the only worker's report of 1 by event", () => {
    const url = "http://127.0.0.1:1";
    const bench = new Bench({
      workers: [{ url, cluster: "w1", models: ["demo"], labels: { max_running_requests: 512 } }],
      scheduler: { max_concurrent_requests: 256, queue_size: 1, reserved_share_max: 0 },
    });
    const driven = Array.from({ length: 258 }, () => bench.drive());
    const routed = driven.filter((one) => one.last()?.kind === "route");
    expect(routed).to.have.length(256);
    expect(refusal(driven[257] ?? bench.drive())).to.equal("scheduler_queue_full");
    bench.registry.put({
      id: "w1",
      url,
      cluster: clusterName("w1"),
      engine: undefined,
      models: [modelId("demo")],
      labels: { max_running_requests: 1, admission_partition: undefined },
      load_monitor_interval_secs: 10,
      telemetry_url: url,
      api_key: undefined,
      kv_events: undefined,
    });
    expect(bench.desk.partitions(bench.now)[0]?.capacity).to.equal(1);
    for (const one of routed) bench.answer(one);
    expect(bench.leftovers()).to.deep.include({ inFlight: 1, queued: 0 });
    expect(bench.drive().last()?.kind).to.equal("hold");
  });
});

describe("floors of a partition that follows its workers", () => {
  it("are measured by the fleet with every worker healthy, although none has been checked at the start", () => {
    const labels = { max_running_requests: 8 };
    const bench = new Bench({
      workers: [
        { url: "http://127.0.0.1:1", cluster: "w1", models: ["kimi"], labels },
        { url: "http://127.0.0.1:2", cluster: "w2", models: ["plain"], labels },
      ],
      models: {},
      scheduler: {
        queue_size: 10,
        classes: {
          bulk: bare(),
          default: bare(),
          interactive: bare(),
          system: bare({ reserved_floor: 4 }),
        },
        admission_partitions: {
          kimi: { capacity_from_healthy_replicas: true, queue_size: 5 },
          default: { capacity_from_healthy_replicas: true, queue_size: 5 },
        },
      },
    });
    // 8 of the fleet's 16 slots each: ceil(4 x 8 / 16).
    const views = bench.desk.partitions(bench.now);
    expect(views.map(({ capacity, reserved }) => [capacity, reserved])).to.deep.equal([
      [8, [0, 0, 0, 2]],
      [8, [0, 0, 0, 2]],
    ]);
  });
});

describe("the rate check", () => {
  it("reads no prompt of a request that the rate check refuses", () => {
    const bench = new Bench({
      scheduler: { max_concurrent_requests: 1, queue_size: 10, rate_limit_tokens_per_second: 1 },
    });
    const { selector } = bench.core;
    const hash = selector.hash.bind(selector);
    let read = 0;
    selector.hash = (model, prompt) => {
      read += 1;
      return hash(model, prompt);
    };
    bench.drive();
    expect(read).to.equal(1);
    expect(bench.drive().last()).to.have.nested.property("rejection.code", "rate_limited");
    expect(read).to.equal(1);
  });

  it("refuses with 429 and Retry-After before the scheduler is asked, and gives no token back", () => {
    const bench = new Bench({
      scheduler: { max_concurrent_requests: 2, queue_size: 10, rate_limit_tokens_per_second: 1 },
    });
    bench.answer(bench.drive());
    bench.answer(bench.drive());
    const limited = bench.drive();
    expect(limited.last()).to.have.nested.property("rejection.code", "rate_limited");
    expect(limited.last()).to.have.nested.property("rejection.status", 429);
    expect(limited.last()).to.have.nested.property("rejection.retryAfterS", 1);
    bench.advance(1_000);
    expect(bench.drive().last()?.kind).to.equal("route");
  });

  it("takes no token for a request that cannot be served at all", () => {
    const bench = new Bench({
      scheduler: { max_concurrent_requests: 1, queue_size: 10, rate_limit_tokens_per_second: 1 },
    });
    bench.drive({}, bytes({ model: "unknown" }));
    expect(bench.drive({}, CHAT).last()?.kind).to.equal("route");
  });
});

describe("the limiter", () => {
  it("admits by tokens without classes, holds in one queue, and refuses in the usual shape", () => {
    const bench = new Bench({
      scheduler: {
        enabled: false,
        max_concurrent_requests: 1,
        rate_limit_tokens_per_second: 0,
        queue_size: 1,
        queue_timeout_secs: 10,
      },
    });
    const running = bench.drive(asClass("bulk"));
    const held = bench.drive(asClass("system"));
    expect(held.last()).to.deep.equal({ kind: "hold", budgetMs: 15_000 });
    expect(running.last()?.kind).to.equal("route");
    expect(refusal(bench.drive())).to.equal("scheduler_queue_full");
    bench.advance(10_000);
    bench.desk.expire(bench.now);
    expect(refusal(held)).to.equal("scheduler_queue_timeout");
    bench.answer(running);
    expect(bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });
});
