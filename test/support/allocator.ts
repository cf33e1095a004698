// A small external allocator: the worked example of docs/credits.md, and the one that the end-to-end tests
// use. The backlogs of the tenants stay here, whatever their length; Weir sees a request only when there is
// a slot for it. In each partition a fixed number of hands takes the tenants in turn, one request each, and
// carries it through: take a credit, arm it, send the request that redeems it.
//
// What can go wrong on the way falls into three kinds. Asking again with the same request id is always safe,
// so a call without an answer is repeated. A credit that is gone (Weir was restarted, the credit expired)
// or was consumed by a refusal is replaced by one with a new request id. Everything else is the
// request's own result.

import { randomUUID } from "node:crypto";
import { AllocatorClient, type ClientAnswer, type ClientOptions } from "./allocator-client.js";
import type { CreditAsk } from "./allocator-client.js";

/** A request of a tenant that waits for its turn. */
export interface Work {
  readonly tenant: string;
  readonly partition: string;
  readonly model: string;
  readonly estimateTokens: number;
  /** JSON of the chat request. */
  readonly body: string;
}

export interface AllocatorOptions extends ClientOptions {
  /** The generation this allocator may act for; asked at the start and when Weir refuses it. */
  readonly generation: () => Promise<string>;
  readonly policyEpoch?: number;
  /** Credits of a partition that are out at the same time. */
  readonly outstanding: number;
  /** Time between taking a credit and sending its request, as a slow pipeline needs it. */
  readonly dispatchDelayMs?: number;
  /** Longest wait between two tries; an idle pool has no figures yet and says its whole patience. */
  readonly retryMaxMs?: number;
}

export interface TenantCounts {
  served: number;
  failed: number;
  /** Credits that were issued. */
  issued: number;
  /** Times that there was no slot. */
  refused: number;
  /** Credits that were replaced. */
  replaced: number;
}

/** What became of one request: the status of its answer, 0 when it got none. */
export interface WorkResult {
  readonly status: number;
  readonly code: string;
}

interface Item {
  readonly work: Work;
  readonly done: (result: WorkResult) => void;
}

/** A try that ended without a result, and what to do next. */
type Step =
  | { readonly kind: "result"; readonly result: WorkResult }
  | { readonly kind: "replace"; readonly waitMs: number };

const RETRY_MAX_MS = 5_000;
/** Between two tries when nobody says how long to wait. */
const RETRY_MS = 100;
const STOPPED: WorkResult = { status: 0, code: "allocator_stopped" };

/** The backlogs of one partition. */
class Lane {
  /** By tenant, in the order of their turns. */
  readonly #backlogs = new Map<string, Item[]>();
  readonly #sleepers = new Set<() => void>();
  readonly #pauses = new Set<() => void>();

  add(item: Item): void {
    const { tenant } = item.work;
    const backlog = this.#backlogs.get(tenant);
    if (backlog === undefined) this.#backlogs.set(tenant, [item]);
    else backlog.push(item);
    this.wake();
  }

  /** The next request: tenants take turns. */
  take(): Item | undefined {
    const [entry] = this.#backlogs;
    if (entry === undefined) return undefined;
    const [tenant, backlog] = entry;
    const item = backlog.shift();
    this.#backlogs.delete(tenant);
    if (backlog.length > 0) this.#backlogs.set(tenant, backlog);
    return item;
  }

  /** Ends every sleep: there is work, or a slot came back. */
  wake(): void {
    for (const wake of [...this.#sleepers]) wake();
  }

  /** Ends every sleep and every pause: there will be no work any more. */
  end(): void {
    this.wake();
    for (const wake of [...this.#pauses]) wake();
  }

  sleep(ms: number | undefined): Promise<void> {
    return wait(this.#sleepers, ms);
  }

  /** A refusal that no returned slot makes undone is waited out. */
  pause(ms: number): Promise<void> {
    return wait(this.#pauses, ms);
  }
}

/** Waits for the time, without one for ever, or until it is woken by its entry among `waits`. */
function wait(waits: Set<() => void>, ms: number | undefined): Promise<void> {
  return new Promise((resolve) => {
    const wake = (): void => {
      clearTimeout(timer);
      waits.delete(wake);
      resolve();
    };
    const timer = ms === undefined ? undefined : setTimeout(wake, ms);
    waits.add(wake);
  });
}

export class BacklogAllocator {
  /** What happened, by tenant. */
  readonly counts = new Map<string, TenantCounts>();
  readonly #options: AllocatorOptions;
  readonly #client: AllocatorClient;
  readonly #lanes = new Map<string, Lane>();
  readonly #hands: Promise<void>[] = [];
  readonly #policyEpoch: number;
  #generation: Promise<string>;
  #stopped = false;
  /** Why it stopped by itself. */
  stopReason: string | undefined;

  constructor(options: AllocatorOptions) {
    this.#options = options;
    this.#client = new AllocatorClient(options);
    this.#policyEpoch = options.policyEpoch ?? 1;
    this.#generation = options.generation();
  }

  /** Puts a request into its tenant's backlog; resolves with its result, never rejects. */
  submit(work: Work): Promise<WorkResult> {
    if (this.#stopped) return Promise.resolve(STOPPED);
    return new Promise((done) => {
      this.#lane(work.partition).add({ work, done });
    });
  }

  /** Ends when the requests that are out have their results; those in the backlogs get none. */
  async stop(reason?: string): Promise<void> {
    this.#stopped = true;
    this.stopReason ??= reason;
    for (const lane of this.#lanes.values()) {
      for (let item = lane.take(); item !== undefined; item = lane.take()) item.done(STOPPED);
      lane.end();
    }
    await Promise.all(this.#hands);
  }

  #lane(partition: string): Lane {
    const known = this.#lanes.get(partition);
    if (known !== undefined) return known;
    const lane = new Lane();
    this.#lanes.set(partition, lane);
    for (let hand = 0; hand < this.#options.outstanding; hand += 1) {
      this.#hands.push(this.#work(lane));
    }
    return lane;
  }

  /** One hand: has at most one credit at a time. */
  async #work(lane: Lane): Promise<void> {
    while (!this.#stopped) {
      const item = lane.take();
      if (item === undefined) {
        await lane.sleep(undefined);
        continue;
      }
      const counts = this.#countsOf(item.work.tenant);
      const result = await this.#carry(lane, item.work, counts);
      if (result.status >= 200 && result.status < 300) counts.served += 1;
      else counts.failed += 1;
      item.done(result);
      lane.wake();
    }
  }

  /** Takes one request from its turn to its result. */
  async #carry(lane: Lane, work: Work, counts: TenantCounts): Promise<WorkResult> {
    while (!this.#stopped) {
      const ask = await this.#ask(work);
      const step = await this.#try(lane, work, ask, counts);
      if (step.kind === "result") return step.result;
      counts.replaced += 1;
      if (step.waitMs > 0) await lane.pause(step.waitMs);
    }
    return STOPPED;
  }

  async #try(lane: Lane, work: Work, ask: CreditAsk, counts: TenantCounts): Promise<Step> {
    const issued = await this.#repeat(lane, () => this.#client.issue(ask), counts);
    const { credit } = issued.body;
    if (issued.status !== 200 || typeof credit !== "string") return this.#refused(issued, ask);
    counts.issued += 1;
    const { dispatchDelayMs = 0 } = this.#options;
    if (dispatchDelayMs > 0) await new Promise((done) => setTimeout(done, dispatchDelayMs));
    // From here on the request is on its way: the credit gets its whole life once more.
    const dispatch = `dispatch-${ask.requestId}`;
    const armed = await this.#repeat(lane, () => this.#client.arm(credit, ask, dispatch), counts);
    if (armed.status !== 200) {
      // Whatever is wrong with it, its slot must not wait for its end.
      await this.#client.cancel(credit);
      return this.#refused(armed, ask);
    }
    const answer = await this.#client.infer(credit, ask, work.body);
    const { status, code } = answer;
    if (status >= 200 && status < 300) return { kind: "result", result: { status, code } };
    // A refusal may have come before the credit was redeemed: then it still has its slot.
    await this.#client.cancel(credit);
    const again = status === 429 || status === 503 || isGone(code);
    return again
      ? { kind: "replace", waitMs: this.#waitMs(answer) }
      : { kind: "result", result: { status, code } };
  }

  /** Repeats a call while there is no answer, no slot, or no Weir that takes new work. */
  async #repeat(
    lane: Lane,
    call: () => Promise<ClientAnswer>,
    counts: TenantCounts,
  ): Promise<ClientAnswer> {
    for (;;) {
      const answer = await call();
      if (answer.status === 429) counts.refused += 1;
      if (this.#stopped || ![0, 429, 503].includes(answer.status)) return answer;
      await lane.sleep(this.#waitMs(answer));
    }
  }

  /** What follows from a refusal of the API. */
  async #refused({ status, code }: ClientAnswer, ask: CreditAsk): Promise<Step> {
    if (isGone(code) || code === "capacity_credit_request_conflict") {
      return { kind: "replace", waitMs: 0 };
    }
    if (code === "capacity_credit_wrong_generation") {
      // Somebody else may have taken over. Only who starts this allocator can say that it goes on.
      this.#generation = this.#options.generation();
      if ((await this.#generation) !== ask.generation) return { kind: "replace", waitMs: 0 };
    }
    if (code === "capacity_credit_wrong_generation" || status === 401 || status === 404) {
      void this.stop(`Weir refuses this allocator: ${code}`);
    }
    return { kind: "result", result: { status, code } };
  }

  async #ask({ tenant, partition, model, estimateTokens }: Work): Promise<CreditAsk> {
    return {
      generation: await this.#generation,
      policyEpoch: this.#policyEpoch,
      partition,
      model,
      tenant,
      requestId: randomUUID(),
      estimateTokens,
    };
  }

  #waitMs({ retryAfterMs = RETRY_MS }: ClientAnswer): number {
    return Math.min(retryAfterMs, this.#options.retryMaxMs ?? RETRY_MAX_MS);
  }

  #countsOf(tenant: string): TenantCounts {
    const counts = this.counts.get(tenant) ?? {
      served: 0,
      failed: 0,
      issued: 0,
      refused: 0,
      replaced: 0,
    };
    this.counts.set(tenant, counts);
    return counts;
  }
}

/** The credit is no more, so a new one is needed. */
function isGone(code: string): boolean {
  return ["unknown", "expired", "cancelled", "already_redeemed"].some(
    (state) => code === `capacity_credit_${state}`,
  );
}
