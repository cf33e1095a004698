// Goal: each partition has slots and a queue of its own, a request gets into another one only by a
// trusted header that names it exactly, and partitions that follow their workers gain and lose slots
// with them. Method: a real Envoy and workers whose health the test decides; what the state page
// says is checked against what really runs.
import { expect } from "chai";
import { startMockWorker, type MockWorker } from "../../envoy/mock-worker/server.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { expectError } from "../support/chat.js";
import {
  adminPage,
  classTable,
  expectContended,
  expectServed,
  openChat,
  openQueued,
  openRunning,
  scrape,
  untilRunning,
  type ClassChat,
  type OpenChat,
} from "../support/class-chat.js";
import type { ConfigSketch } from "../support/config.js";
import { startStack, type Stack } from "../support/stack.js";

const PARTITION = "x-weir-admission-partition";

interface Replica {
  readonly model: string;
  /** The label that sets a worker apart from the others of its model. */
  readonly label?: string;
  /** Fails its health checks until the test heals it. */
  readonly down?: boolean;
}

interface Fleet {
  readonly stack: Stack;
  readonly workers: readonly MockWorker[];
}

/** A stack with these workers; a worker takes whatever Weir lets through. */
async function startFleet(replicas: readonly Replica[], config: ConfigSketch): Promise<Fleet> {
  const workers = await Promise.all(
    replicas.map(({ model }) => startMockWorker({ port: 0, models: [model], slots: 64 })),
  );
  for (const [index, worker] of workers.entries()) {
    if (replicas[index]?.down === true) worker.setFaults({ health_status: 503 });
  }
  const stack = await startStack({
    workers: 0,
    config: {
      models: {},
      workers: replicas.map(({ model, label }, index) => ({
        url: workers[index]?.url,
        cluster: `worker_${String(index + 1)}`,
        models: [model],
        ...(label === undefined ? {} : { labels: { admission_partition: label } }),
      })),
      // Two failed checks in a row and a worker is ill, one passed and it is well again.
      health: { interval_secs: 0.5, timeout_secs: 0.45 },
      ...config,
    },
  });
  return { stack, workers };
}

async function stopFleet({ stack, workers }: Fleet): Promise<void> {
  await stack.stop();
  await Promise.all(workers.map((worker) => worker.close(0)));
}

const chatOf = (model: string, chat: ClassChat = {}): ClassChat => ({ ...chat, body: { model } });

async function takeSlots(stack: Stack, model: string, count: number): Promise<OpenChat[]> {
  const taken: OpenChat[] = [];
  while (taken.length < count) {
    taken.push(await openRunning(stack, chatOf(model, { mock: "hang" })));
  }
  return taken;
}

interface PartitionState {
  readonly name: string;
  readonly capacity: number;
  readonly in_flight: number;
  readonly queued: number;
}

/** Slots of each partition as the state page says. */
async function partitionsOf(stack: Stack): Promise<ReadonlyMap<string, PartitionState>> {
  const page = JSON.parse(await adminPage(stack, "/state")) as { partitions: PartitionState[] };
  return new Map(page.partitions.map((partition) => [partition.name, partition]));
}

async function capacities(stack: Stack): Promise<Record<string, number>> {
  const entries = [...(await partitionsOf(stack)).values()];
  return Object.fromEntries(entries.map(({ name, capacity }) => [name, capacity]));
}

async function untilCapacities(stack: Stack, wanted: Record<string, number>): Promise<void> {
  await stack.until(`capacities ${JSON.stringify(wanted)}`, async () => {
    const now = await capacities(stack);
    return Object.entries(wanted).every(([name, slots]) => now[name] === slots);
  });
}

describe("partitions of fixed size through Envoy", () => {
  let fleet: Fleet;
  let stack: Stack;
  before(async () => {
    fleet = await startFleet(
      [{ model: "kimi" }, { model: "kimi", label: "private" }, { model: "demo" }],
      {
        trust: { admission_partition: true, peers: ["127.0.0.1"] },
        scheduler: {
          max_concurrent_requests: 11,
          queue_size: 4,
          default_max_class: "system",
          classes: classTable({ system: { can_preempt: true } }),
          default_admission_partition: "default",
          admission_partitions: {
            kimi: { max_concurrent_requests: 6, queue_size: 1 },
            private: { max_concurrent_requests: 2, queue_size: 1 },
            default: { max_concurrent_requests: 3, queue_size: 2 },
          },
        },
      },
    );
    stack = fleet.stack;
  });
  after(() => stopFleet(fleet));
  beforeEach(async () => {
    await stack.idle();
    await untilRunning(stack, 0, fleet.workers);
    stack.clear();
  });

  async function settledIn(chat: ClassChat): Promise<SettlementRecord> {
    expectServed(await openChat(stack, chat).answer);
    const [record] = await stack.settlements(1);
    if (record === undefined) throw new Error("the settlement is gone");
    stack.clear();
    return record;
  }

  it("P7 six kimi slots held: a seventh is refused, another model is served", async () => {
    const taken = await takeSlots(stack, "kimi", 6);
    const waits = await openQueued(stack, chatOf("kimi"));
    expectContended(await openChat(stack, chatOf("kimi")).answer, "scheduler_queue_full", 30);
    expectServed(await openChat(stack, chatOf("demo")).answer);
    await untilRunning(stack, 6, fleet.workers);
    const [kimi, apart] = fleet.workers;
    expect(kimi?.state().running).to.equal(6);
    expect(apart?.state().running).to.equal(0);
    for (const { abort } of taken) abort();
    expectServed(await waits.answer);
  });

  it("P7 an unknown partition is the default one, for a model without a partition of its own", async () => {
    const before = await scrape(stack);
    for (const value of ["nowhere", "", "Default"]) {
      const record = await settledIn(chatOf("demo", { headers: [[PARTITION, value]] }));
      expect(record).to.deep.include({ partition: "default", model: "demo" });
      expect(record.unknownPartitionHeader).to.equal(value !== "");
    }
    const unknown = "weir_unknown_partition_header_total";
    expect((await scrape(stack))(unknown) - before(unknown)).to.equal(2);
  });

  it("I-4 a full partition of one model does not block another's, queue included", async () => {
    const kimi = await takeSlots(stack, "kimi", 6);
    const demo = await takeSlots(stack, "demo", 3);
    const waiting = [
      await openQueued(stack, chatOf("kimi")),
      await openQueued(stack, chatOf("demo")),
      await openQueued(stack, chatOf("demo")),
    ];
    for (const model of ["kimi", "demo"]) {
      expectContended(await openChat(stack, chatOf(model)).answer, "scheduler_queue_full", 30);
    }
    const state = await partitionsOf(stack);
    expect(state.get("kimi")).to.deep.include({ capacity: 6, in_flight: 6, queued: 1 });
    expect(state.get("default")).to.deep.include({ capacity: 3, in_flight: 3, queued: 2 });
    expect(state.get("private")).to.deep.include({ capacity: 2, in_flight: 0, queued: 0 });
    // What is freed in one partition serves nobody of the other.
    for (const { abort } of demo) abort();
    for (const { answer } of waiting.slice(1)) expectServed(await answer);
    expect((await partitionsOf(stack)).get("kimi")).to.deep.include({ in_flight: 6, queued: 1 });
    for (const { abort } of kimi) abort();
    expectServed((await waiting[0]?.answer) ?? expect.fail());
  });

  it("takes the header's name exactly, with the blanks around it dropped, and serves it there", async () => {
    const rows = [
      ["private", "private", 1],
      ["  private\t", "private", 1],
      ["Private", "kimi", 0],
      ["private,kimi", "kimi", 0],
      ["privat", "kimi", 0],
    ] as const;
    for (const [value, partition, worker] of rows) {
      const record = await settledIn(chatOf("kimi", { headers: [[PARTITION, value]] }));
      expect(record.partition, value).to.equal(partition);
      expect(record.worker?.url, value).to.equal(fleet.workers[worker]?.url);
    }
  });

  it("answers 404 for a partition none of whose workers serves the model", async () => {
    const chat = chatOf("demo", { headers: [[PARTITION, "private"]] });
    expectError(await openChat(stack, chat).answer, { status: 404, code: "model_not_found" });
  });

  it("preempts nobody of another partition", async () => {
    const demo = await takeSlots(stack, "demo", 3);
    const chat: ClassChat = { class: "system", mock: "hang" };
    const kimi: OpenChat[] = [];
    while (kimi.length < 6) kimi.push(await openRunning(stack, chatOf("kimi", chat)));
    const waits = await openQueued(stack, chatOf("kimi", { class: "system" }));
    await untilRunning(stack, 9, fleet.workers);
    expect(fleet.workers.map((worker) => worker.state().running)).to.deep.equal([6, 0, 3]);
    for (const { abort } of kimi) abort();
    expectServed(await waits.answer);
    for (const { abort } of demo) abort();
  });
});

describe("a partition header nobody may send", () => {
  let fleet: Fleet;
  before(async () => {
    fleet = await startFleet([{ model: "kimi" }, { model: "kimi", label: "private" }], {
      scheduler: {
        max_concurrent_requests: 4,
        queue_size: 4,
        classes: classTable({}),
        admission_partitions: {
          default: { max_concurrent_requests: 2, queue_size: 2 },
          private: { max_concurrent_requests: 2, queue_size: 2 },
        },
      },
    });
  });
  after(() => stopFleet(fleet));

  it("moves nothing and is not even counted", async () => {
    const { stack, workers } = fleet;
    const chat = chatOf("kimi", { headers: [[PARTITION, "private"]] });
    expectServed(await openChat(stack, chat).answer);
    const [record] = await stack.settlements(1);
    expect(record).to.deep.include({ partition: "default", unknownPartitionHeader: false });
    expect(record?.worker?.url).to.equal(workers[0]?.url);
  });
});

describe("partitions that follow their workers, through Envoy", () => {
  let fleet: Fleet;
  let stack: Stack;
  const ill = { health_status: 503 };

  beforeEach(async () => {
    const following = {
      capacity_from_healthy_replicas: true,
      max_concurrent_requests_per_healthy_replica: 3,
      queue_size: 10,
    };
    fleet = await startFleet(
      [
        { model: "kimi", down: true },
        { model: "kimi", down: true },
        { model: "kimi", down: true },
        { model: "dsv4", down: true },
        { model: "kimi", label: "private", down: true },
      ],
      {
        trust: { admission_partition: true, peers: ["127.0.0.1"] },
        scheduler: {
          max_concurrent_requests: 9,
          queue_size: 40,
          classes: classTable({}),
          default_admission_partition: "default",
          admission_partitions: {
            kimi: following,
            dsv4: following,
            private: following,
            default: following,
          },
        },
      },
    );
    stack = fleet.stack;
  });
  afterEach(() => stopFleet(fleet));

  function heal(...indexes: readonly number[]): void {
    for (const index of indexes) fleet.workers[index]?.setFaults({});
  }

  /** Sends so many that some must wait, and returns how many run at once. */
  async function runningOf(
    chat: ClassChat,
    capacity: number,
  ): Promise<{ readonly running: number; readonly chats: readonly OpenChat[] }> {
    const before = fleet.workers.reduce((sum, worker) => sum + worker.state().running, 0);
    const chats = Array.from({ length: capacity + 2 }, () =>
      openChat(stack, { ...chat, mock: "hang" }),
    );
    await stack.until("two of them wait", () => stack.held()["queued"] === 2);
    await untilRunning(stack, before + capacity, fleet.workers);
    const after = fleet.workers.reduce((sum, worker) => sum + worker.state().running, 0);
    return { running: after - before, chats };
  }

  it("P6 three slots for each worker and nine in all: none, then 7 for kimi, then 2 for private", async () => {
    expect(await capacities(stack)).to.deep.equal({ kimi: 0, dsv4: 0, private: 0, default: 0 });
    const early = await openQueued(stack, chatOf("kimi"));

    heal(0, 1, 2, 3);
    await untilCapacities(stack, { kimi: 7, dsv4: 2, private: 0, default: 0 });
    expectServed(await early.answer);
    const kimi = await runningOf(chatOf("kimi"), 7);
    expect(kimi.running).to.equal(7);
    for (const { abort } of kimi.chats) abort();
    await stack.idle();

    // One kimi worker goes, and one that is set apart comes: as if it had been given the label.
    fleet.workers[2]?.setFaults(ill);
    heal(4);
    await untilCapacities(stack, { kimi: 5, dsv4: 2, private: 2, default: 0 });
    const apart = await runningOf(chatOf("kimi", { headers: [[PARTITION, "private"]] }), 2);
    expect(apart.running).to.equal(2);
    expect(fleet.workers[4]?.state().running).to.equal(2);
    for (const { abort } of apart.chats) abort();
    await stack.idle();
  });

  it("takes slots away when a worker falls ill, without ending what runs, and gives them back", async () => {
    heal(3);
    await untilCapacities(stack, { kimi: 0, dsv4: 3 });
    const taken = await takeSlots(stack, "dsv4", 3);
    const series = await scrape(stack);
    const replicas = "weir_scheduler_partition_healthy_replicas";
    expect(series(replicas, { partition: "dsv4" })).to.equal(1);
    expect(series("weir_scheduler_partition_capacity", { partition: "dsv4" })).to.equal(3);

    fleet.workers[3]?.setFaults(ill);
    await untilCapacities(stack, { dsv4: 0 });
    expect((await partitionsOf(stack)).get("dsv4")).to.deep.include({ in_flight: 3, queued: 0 });
    expect(fleet.workers[3]?.state()).to.include({ running: 3, cancelled: 0 });

    // A slot that is given back while there are none serves nobody.
    const waits = await openQueued(stack, chatOf("dsv4"));
    taken[0]?.abort();
    await stack.until("one has left", () => stack.held()["inFlight"] === 2);
    expect(stack.held()["queued"]).to.equal(1);

    heal(3);
    expectServed(await waits.answer);
    expect(await capacities(stack)).to.deep.include({ dsv4: 3 });
    for (const { abort } of taken) abort();
    await stack.idle();
  });
});
