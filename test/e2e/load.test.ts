// Goal: under load Weir keeps its promise to the workers (never more than the slots), to the clients
// (all are answered, in the order of arrival) and to itself (each request is settled once and nothing
// is left). Method: real sockets and a real Envoy; what runs is counted at the workers.
import { now } from "../../extproc/edge/runtime/clock.js";
import { Agent } from "node:http";
import { expect } from "chai";
import { request } from "../support/http-client.js";
import { PATIENT_MS, runningAtWorkers, startChat, untilQueued } from "../support/slots.js";
import { chatBody, JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const SLOTS = 8;
const CLIENTS = 64;
const REQUESTS_PER_CLIENT = 5;
const IN_A_ROW = 2_000;

/** Sends one chat request and gives its status. */
async function chat(stack: Stack, agent: Agent): Promise<number> {
  const answer = await request({
    port: stack.port,
    path: "/v1/chat/completions",
    headers: JSON_HEADERS,
    body: chatBody(),
    agent,
    limitMs: PATIENT_MS,
  });
  return answer.status;
}

/** `count` clients, each sending `each` requests one after another; all statuses. */
async function clients(stack: Stack, count: number, each: number): Promise<readonly number[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: count });
  const statuses: number[] = [];
  try {
    await Promise.all(
      Array.from({ length: count }, async () => {
        for (let sent = 0; sent < each; sent += 1) statuses.push(await chat(stack, agent));
      }),
    );
  } finally {
    agent.destroy();
  }
  return statuses;
}

/** Looks at the workers in every turn of the event loop until `stop`, which gives the most seen. */
function watchRunning(stack: Stack): () => number {
  let most = 0;
  let stopped = false;
  const look = (): void => {
    most = Math.max(most, runningAtWorkers(stack));
    if (!stopped) setImmediate(look);
  };
  look();
  return () => {
    stopped = true;
    return most;
  };
}

describe("64 clients on 8 slots of two workers", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 2,
      mock: { slots: CLIENTS, msPerToken: 4 },
      config: {
        scheduler: {
          max_concurrent_requests: SLOTS,
          queue_size: CLIENTS,
          queue_timeout_secs: 60,
        },
      },
    });
  });
  after(() => stack.stop());

  it("never have more than 8 requests running, are all answered, and leave nothing behind", async () => {
    const total = CLIENTS * REQUESTS_PER_CLIENT;
    const stopWatching = watchRunning(stack);
    const statuses = await clients(stack, CLIENTS, REQUESTS_PER_CLIENT);
    const most = stopWatching();
    expect(statuses).to.deep.equal(new Array<number>(total).fill(200));
    expect(most, "the slots are used").to.be.within(SLOTS / 2, SLOTS);
    for (const worker of stack.workers) {
      expect(worker.state().peak_running).to.be.within(1, SLOTS);
    }
    await stack.settlements(total);
    expect(stack.settled).to.have.length(total);
    await stack.idle();
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
    expect(stack.app.desk.partitions(now())[0]).to.deep.include({
      capacity: SLOTS,
      in_flight: [0, 0, 0, 0],
      queued: [0, 0, 0, 0],
    });
  });

  it("have their time in the queue written into the settlement records", () => {
    const waited = stack.settled.filter((record) => record.waited);
    // 56 of 64 wait at any time; half of all is far below what any machine shows.
    expect(waited.length).to.be.greaterThan(stack.settled.length / 2);
    for (const record of stack.settled) {
      expect(record).to.deep.include({ outcome: "success", admitted: true, cutHold: false });
      expect(record.charge).to.deep.equal({ kind: "observed", tokens: 5, clockTokens: 5 });
      if (record.waited) expect(record.queuedMs).to.be.greaterThan(0);
      else expect(record.queuedMs).to.equal(0);
      expect(record.queuedMs).to.be.at.most(record.durationMs);
    }
  });
});

describe("the queue", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 1,
      mock: { slots: CLIENTS, msPerToken: 100, clock: "manual" },
      config: {
        scheduler: {
          max_concurrent_requests: SLOTS,
          queue_size: CLIENTS,
          queue_timeout_secs: 60,
        },
      },
    });
  });
  after(() => stack.stop());

  it("is served in the order in which requests reached Weir", async () => {
    const [worker] = stack.workers;
    if (worker === undefined) throw new Error("there is one worker");
    const waiters = 40;
    const answers = [];
    for (let filled = 1; filled <= SLOTS; filled += 1) {
      answers.push(startChat(stack).answer);
      await stack.until("a slot is taken", () => worker.state().running === filled);
    }
    for (let order = 0; order < waiters; order += 1) {
      answers.push(startChat(stack, [["x-order", String(order)]]).answer);
      await untilQueued(stack, order + 1);
    }
    const all = Promise.all(answers);
    await stack.until("everybody is answered", () => {
      worker.advance(500);
      return stack.settled.length === SLOTS + waiters;
    });
    expect((await all).map(({ status }) => status)).to.deep.equal(
      new Array<number>(SLOTS + waiters).fill(200),
    );
    const orders = worker
      .state()
      .last_requests.map(({ headers }) => headers["x-order"])
      .filter((order) => order !== undefined)
      .map(Number);
    expect(orders).to.have.length(waiters);
    // Up to 8 are let go at the same moment, each over a connection of its own.
    for (const [place, order] of orders.entries()) {
      expect(Math.abs(place - order), `request ${String(order)}`).to.be.lessThan(SLOTS);
    }
    expect(worker.state().peak_running).to.equal(SLOTS);
    await stack.idle();
  });
});

describe("2,000 requests in a row", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({ workers: 2, mock: { slots: CLIENTS } });
  });
  after(() => stack.stop());

  it("get 2,000 answers and settlements, and no stream to Weir is reset", async () => {
    const together = 16;
    const statuses = await clients(stack, together, IN_A_ROW / together);
    expect(statuses).to.deep.equal(new Array<number>(IN_A_ROW).fill(200));
    await stack.settlements(IN_A_ROW);
    await stack.idle();
    expect(stack.settled).to.have.length(IN_A_ROW);
    expect(new Set(stack.settled.map((record) => record.requestId)).size).to.equal(IN_A_ROW);
    const { envoy } = stack;
    expect(await envoy.stat("cluster.ext_proc.upstream_rq_total")).to.equal(IN_A_ROW);
    expect(await envoy.stat("cluster.ext_proc.http2.tx_reset")).to.equal(0);
    expect(await envoy.stat("cluster.ext_proc.http2.rx_reset")).to.equal(0);
    expect(await envoy.stat("http.ingress.downstream_rq_5xx")).to.equal(0);
  });
});
