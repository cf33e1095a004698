// Goal: two hundred clients of all classes on sixteen slots, far more than can be served. Each gets
// exactly one whole answer, or has left; the order is that of the classes; refusals say when to come
// again; victims are told so and their worker stops; the worker never runs more than there are slots;
// and afterwards nothing is held and every request is accounted for. Method: moments and amounts of
// work drawn from a printed seed; what clients saw, what the worker's log shows, what Weir settled
// and what its metrics say are held against each other. Once everybody stays, once a tenth leaves.
//
// All requests ask for JSON and take their time at the worker, so each can be preempted until it is
// done. Nobody is promoted: that has a test of its own.
import { expect } from "chai";
import {
  className,
  PRIORITY_CLASSES,
  rankOf,
  type PriorityClass,
} from "../../extproc/core/model/priority.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { Chance } from "../sim/chance.js";
import {
  classTable,
  expectAccounted,
  expectContended,
  expectEnvoyAtRest,
  expectPreempted,
  expectServed,
  openChat,
  scrape,
  untilRunning,
  watchArrivals,
  type Arrivals,
} from "../support/class-chat.js";
import type { Answer } from "../support/http-client.js";
import { seededChance } from "../support/seed.js";
import { NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const SLOTS = 16;
const QUEUE = 60;
const TIMEOUT_SECS = { bulk: 2, default: 3, interactive: 4, system: 4 } as const;
/** Two slots are kept back for system and four for interactive; both may preempt. */
const CLASSES = classTable({
  bulk: { queue_timeout_secs: TIMEOUT_SECS.bulk },
  default: { queue_timeout_secs: TIMEOUT_SECS.default },
  interactive: {
    queue_timeout_secs: TIMEOUT_SECS.interactive,
    reserved_floor: 4,
    can_preempt: true,
  },
  system: { queue_timeout_secs: TIMEOUT_SECS.system, reserved_floor: 2, can_preempt: true },
});
const CLIENTS = { bulk: 80, default: 60, interactive: 40, system: 20 } as const;
const TOTAL = 200;
const LEAVING = 20;

const ARRIVAL_MS = 1_500;
const WORK_MS = [300, 900] as const;
const PATIENCE_MS = 2_000;
/**
 * Two moments closer than this do not tell which came first, on an idle machine: requests pass Envoy
 * on the way to Weir and to the worker. What the run itself shows to be slower is added.
 */
const BLUR_MS = 150;

type Outcome = "served" | "queue full" | "queue timeout" | "preempted" | "left";

interface Client {
  readonly name: string;
  readonly class: PriorityClass;
  readonly sentAt: number;
  readonly endedAt: number;
  readonly outcome: Outcome;
}

const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** One client, from its arrival to its end; fails unless its answer is whole and a known one. */
async function runClient(
  stack: Stack,
  chance: Chance,
  plan: { readonly name: string; readonly class: PriorityClass; readonly leaves: boolean },
): Promise<Client> {
  const arriveMs = chance.unit() * ARRIVAL_MS;
  const workMs = chance.whole(...WORK_MS);
  const leaveMs = chance.unit() * PATIENCE_MS;
  await sleep(arriveMs);
  const sentAt = performance.now();
  const answer = await openChat(stack, {
    name: plan.name,
    class: plan.class,
    mock: `delay_ms=${String(workMs)}`,
    ...(plan.leaves ? { abortAfterMs: leaveMs } : {}),
  }).answer;
  const endedAt = performance.now();
  const outcome = outcomeOf(answer, plan.class);
  if (outcome === "left") expect(plan.leaves).to.equal(true);
  if (outcome === "queue timeout") {
    expect(endedAt - sentAt).to.be.at.least(TIMEOUT_SECS[plan.class] * 1_000);
  }
  return { name: plan.name, class: plan.class, sentAt, endedAt, outcome };
}

function outcomeOf(answer: Answer, name: PriorityClass): Outcome {
  if (answer.aborted) return "left";
  if (answer.status === 503) {
    expectPreempted(answer);
    return "preempted";
  }
  if (answer.status === 429) {
    const full = answer.headers["x-weir-error-code"] === "scheduler_queue_full";
    const code = full ? "scheduler_queue_full" : "scheduler_queue_timeout";
    expectContended(answer, code, TIMEOUT_SECS[name]);
    return full ? "queue full" : "queue timeout";
  }
  expectServed(answer);
  return "served";
}

/** What Weir settled, in the words of the clients. */
function settledOutcome(record: SettlementRecord): Outcome {
  if (record.preemptedBy !== undefined) return "preempted";
  if (record.rejection === "scheduler_queue_full") return "queue full";
  if (record.rejection === "scheduler_queue_timeout") return "queue timeout";
  return record.outcome === "success" ? "served" : "left";
}

/** Counts of "class outcome". */
function tally(entries: Iterable<readonly [PriorityClass, Outcome]>): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const [name, outcome] of entries) {
    const key = `${name} ${outcome}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return counts;
}

interface OrderFindings {
  /** A lower class that was served while a higher one waited. */
  readonly wrong: readonly string[];
  /** How often a higher class was served before a lower one that had come before it. */
  readonly overtakings: number;
}

/**
 * Compares every request that got a slot with every request of a higher class. A victim is counted at
 * its answer when the worker hears of it only later: it got its slot before that.
 */
function checkOrder(clients: readonly Client[], arrivals: Arrivals): OrderFindings {
  const wrong: string[] = [];
  let overtakings = 0;
  const atOnce = clients.filter(({ outcome }) => outcome === "queue full");
  const slowestMs = Math.max(...atOnce.map(({ sentAt, endedAt }) => endedAt - sentAt));
  const blurMs = BLUR_MS + arrivals.longestGapMs + slowestMs;
  const gotSlotBy = (client: Client): number | undefined => {
    const seenAt = arrivals.seen.get(client.name);
    return seenAt === undefined ? undefined : Math.min(seenAt, client.endedAt);
  };
  for (const lower of clients) {
    const lowerAt = gotSlotBy(lower);
    if (lowerAt === undefined) continue;
    for (const higher of clients) {
      if (rankOf(higher.class) <= rankOf(lower.class)) continue;
      const higherAt = gotSlotBy(higher);
      const waitedUntil = higherAt ?? higher.endedAt;
      if (higher.sentAt + blurMs < lowerAt && lowerAt + blurMs < waitedUntil) {
        wrong.push(`${lower.name} before ${higher.name}`);
      }
      if (lower.sentAt < higher.sentAt && higherAt !== undefined && higherAt < lowerAt) {
        overtakings += 1;
      }
    }
  }
  return { wrong, overtakings };
}

interface Crowd {
  readonly clients: readonly Client[];
  readonly order: OrderFindings;
  /** Victims of which the worker heard only when they had been taken back, so that they ran briefly. */
  readonly late: number;
}

async function runCrowd(stack: Stack, chance: Chance, leaving: number): Promise<Crowd> {
  const [worker] = stack.workers;
  if (worker === undefined) throw new Error("the stack has no worker");
  const arrivals = watchArrivals(worker);
  const plans = PRIORITY_CLASSES.flatMap((name) =>
    Array.from({ length: CLIENTS[name] }, (_, index) => ({
      name: `${name}-${String(index)}`,
      class: name,
    })),
  );
  expect(plans).to.have.length(TOTAL);
  const leavers = new Set<number>();
  while (leavers.size < leaving) leavers.add(chance.whole(0, TOTAL - 1));
  const clients = await Promise.all(
    plans.map((plan, index) => runClient(stack, chance, { ...plan, leaves: leavers.has(index) })),
  );
  await stack.idle();
  await untilRunning(stack, 0);
  arrivals.stop();
  const counts = tally(clients.map((client) => [client.class, client.outcome]));
  console.log(`      ${[...counts].map(([key, count]) => `${key} ${String(count)}`).join(", ")}`);
  const order = checkOrder(clients, arrivals);
  const late = clients.filter(
    ({ name, outcome, endedAt }) =>
      outcome === "preempted" && (arrivals.seen.get(name) ?? 0) > endedAt,
  ).length;
  return { clients, order, late };
}

/** What holds however many leave. */
async function expectSound(stack: Stack, { clients, order }: Crowd): Promise<void> {
  expect(order.wrong).to.deep.equal([]);
  expect(order.overtakings).to.be.greaterThan(100);
  const seen = new Set(clients.map(({ outcome }) => outcome));
  expect([...seen]).to.include.members(["served", "queue full", "queue timeout", "preempted"]);
  const victims = clients.filter(({ outcome }) => outcome === "preempted");
  for (const victim of victims) expect(victim.class).to.not.equal("system");

  expect(stack.held()).to.deep.equal(NOTHING_HELD);
  const worker = stack.workers[0]?.state();
  expect(worker).to.include({ running: 0, waiting: 0 });
  const settled = stack.settled;
  const successes = settled.filter(({ outcome }) => outcome === "success").length;
  const admitted = settled.filter((record) => record.admitted).length;
  // Whoever was admitted was sent to the worker, ran to its end there or was stopped there, or was
  // taken back before the worker had heard of it.
  expect(worker?.served).to.be.within(successes, admitted);
  expect((worker?.served ?? 0) + (worker?.cancelled ?? 0)).to.be.at.most(admitted);
  expect(worker?.cancelled).to.be.greaterThan(0);

  await expectAccounted(stack, settled.length);
  await expectEnvoyAtRest(stack);
  const series = await scrape(stack);
  const preempted = settled.filter(({ preemptedBy }) => preemptedBy !== undefined);
  expect(series("weir_scheduler_preemption_total")).to.equal(preempted.length);
  for (const record of preempted) {
    expect(rankOf(record.preemptedBy ?? "bulk")).to.be.greaterThan(rankOf(record.class));
    expect(record.charge).to.deep.equal({ kind: "cancelled", tokens: 0, clockTokens: 0 });
  }
  expect(series("weir_scheduler_starvation_promotion_total")).to.equal(0);
  // A client that leaves while it is held can do so just when one of Envoy's timeouts would fall.
  const left = clients.filter(({ outcome }) => outcome === "left").length;
  expect(series("weir_envoy_cut_hold_total")).to.be.within(0, left);
  expect(series("weir_ext_proc_faults_total")).to.equal(0);
}

describe("two hundred clients of all classes on sixteen slots", () => {
  let stack: Stack;
  beforeEach(async () => {
    stack = await startStack({
      workers: 1,
      // More slots than Weir gives: what the worker runs at once, Weir has let through at once.
      mock: { slots: 256 },
      config: {
        scheduler: {
          max_concurrent_requests: SLOTS,
          queue_size: QUEUE,
          default_max_class: className(3),
          classes: CLASSES,
        },
      },
    });
  });
  afterEach(() => stack.stop());

  it("when everybody stays: client, worker, settlement and metrics agree to the last one", async () => {
    const crowd = await runCrowd(stack, seededChance("everybody stays"), 0);
    await expectSound(stack, crowd);
    const seen = tally(crowd.clients.map((client) => [client.class, client.outcome]));
    const settled = tally(stack.settled.map((record) => [record.class, settledOutcome(record)]));
    expect(Object.fromEntries(settled)).to.deep.equal(Object.fromEntries(seen));
    // A victim's slot is free when its stream has ended, and Envoy lets go of the worker before that.
    // Only a worker so busy that it hears of a request after its end can run one more for a moment.
    expect(stack.workers[0]?.state().peak_running).to.be.within(SLOTS, SLOTS + crowd.late);
  });

  it("when a tenth leaves at random moments: nothing of them stays", async () => {
    const crowd = await runCrowd(stack, seededChance("a tenth leaves"), LEAVING);
    await expectSound(stack, crowd);
    const left = crowd.clients.filter(({ outcome }) => outcome === "left").length;
    expect(left).to.be.greaterThan(0);
    expect(stack.settled.length).to.be.within(TOTAL - left, TOTAL);
    const seen = tally(crowd.clients.map((client) => [client.class, client.outcome]));
    const settled = tally(stack.settled.map((record) => [record.class, settledOutcome(record)]));
    for (const [key, count] of seen) {
      if (key.endsWith("left")) continue;
      // A client that left may have been answered at that very moment.
      expect(settled.get(key) ?? 0, key).to.be.within(count, count + left);
    }
    // Envoy tells Weir of a client that left before it tells the worker, so the next request may meet
    // the last moments of such a one, and of no other.
    const gone = stack.settled.filter(({ outcome }) => outcome === "interrupted").length;
    expect(stack.workers[0]?.state().peak_running).to.be.within(SLOTS, SLOTS + crowd.late + gone);
  });
});
