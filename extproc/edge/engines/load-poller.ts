// When is each worker asked for its load, and where does the answer go? Workers stand in groups; each
// group is asked as a whole, at its own interval, all its healthy workers at once, and what came back is
// published in one step when the last of them has answered or failed, so that a reader never sees half
// of a group. The next round of a group begins only after the one before has ended: a slow worker is
// never asked twice at once. Rounds are spread by a little jitter, so that groups and processes do not
// march in step. A worker that has just become healthy is asked at once, but no group more often than once
// a second, so that a fleet that comes up one by one does not ask itself to death. One worker's failure costs its
// own entry and nothing else. Milliseconds throughout.

import type { ApiKeySource, EngineKind } from "../../core/model/config.js";
import type { Rng } from "../../core/model/rng.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { TelemetryFailure } from "../../core/workers/telemetry.js";
import type { TelemetryDelivery, TelemetryStore } from "../../core/workers/telemetry-store.js";
import type { Worker, WorkerIdentity } from "../../core/workers/worker.js";
import { readApiKey, type ApiKeyResult } from "../runtime/api-key.js";
import { EngineClient } from "./engine-client.js";
import { deadlineAfter } from "./http-get.js";

/** Often enough to follow a fleet, seldom enough to cost the engines nothing. */
export const POLL_INTERVAL_DEFAULT_MS = 10_000;
export const POLL_INTERVAL_MIN_MS = 1_000;
/** For all requests of one poll together; an engine that needs longer is overloaded or gone. */
export const POLL_TIMEOUT_DEFAULT_MS = 5_000;
/** A round begins up to this share of its interval early or late. */
export const POLL_JITTER = 0.1;

/** How one worker is asked. */
export interface PollSettings {
  /** Where its metrics are, `http://host:port`: the worker's own url unless they have another port. */
  readonly baseUrl: string;
  /** Undefined = found out by asking. */
  readonly engine: EngineKind | undefined;
  readonly apiKey: ApiKeySource | undefined;
  /** Undefined = the default; the smallest of a group counts for the whole group. */
  readonly intervalMs: number | undefined;
}

export interface TelemetryReport {
  readonly worker: WorkerIdentity;
  readonly reason: TelemetryFailure;
  /** What was found where, without secrets. */
  readonly detail: string;
  /** True when only some fields are unknown and the rest of the sample is in use. */
  readonly sampleKept: boolean;
}

/** Plans a call; the returned function takes it back. */
export type After = (delayMs: number, run: () => void) => () => void;

export interface LoadPollerOptions {
  readonly workers: () => Iterable<Worker>;
  readonly settingsOf: (worker: Worker) => PollSettings;
  /** Name of a worker's group, usually its partition. */
  readonly groupOf: (worker: Worker) => string;
  readonly store: TelemetryStore;
  readonly now: () => MonotonicMs;
  readonly rng: Rng;
  /** Called for every failed poll and for every sample with impossible fields. */
  readonly onReport: (report: TelemetryReport) => void;
  /** Called when what follows from a publication failed; polling goes on. */
  readonly onFault: (error: unknown) => void;
  readonly defaultIntervalMs?: number;
  readonly timeoutMs?: number;
  readonly after?: After;
}

interface Group {
  readonly name: string;
  members: readonly Worker[];
  intervalMs: number;
  /** The workers of the last round that have been healthy ever since. */
  asked: Set<string>;
  /** When a worker of the group was last asked. */
  askedAt: number;
  round: Promise<void> | undefined;
  /** Another round is due as soon as this one has ended. */
  again: boolean;
  cancelTimer: () => void;
}

interface Client {
  readonly settings: PollSettings;
  readonly engine: EngineClient;
}

export class LoadPoller {
  readonly #options: LoadPollerOptions;
  readonly #groups = new Map<string, Group>();
  /** By identity: a replaced worker gets a client that has learned nothing. */
  readonly #clients = new Map<string, Client>();
  readonly #stop = new AbortController();

  constructor(options: LoadPollerOptions) {
    this.#options = options;
  }

  /** Follows the workers there are now: to be called at the start and on every change of the registry. */
  sync(): void {
    if (this.#stop.signal.aborted) return;
    const byName = new Map<string, Worker[]>();
    const keys = new Set<string>();
    for (const worker of this.#options.workers()) {
      const name = this.#options.groupOf(worker);
      const members = byName.get(name);
      if (members === undefined) byName.set(name, [worker]);
      else members.push(worker);
      keys.add(keyOf(worker.identity));
    }
    for (const key of this.#clients.keys()) if (!keys.has(key)) this.#clients.delete(key);
    for (const [name, group] of this.#groups) {
      if (byName.has(name)) continue;
      group.cancelTimer();
      group.members = [];
      this.#groups.delete(name);
    }
    for (const [name, members] of byName) this.#syncGroup(name, members);
  }

  /** Ends every poll and plans none; resolves when nothing is under way any more. */
  async stop(): Promise<void> {
    this.#stop.abort();
    const rounds = [...this.#groups.values()].map(({ round }) => round);
    for (const group of this.#groups.values()) group.cancelTimer();
    this.#groups.clear();
    await Promise.all(rounds.filter((round) => round !== undefined));
  }

  #syncGroup(name: string, members: readonly Worker[]): void {
    const intervalMs = this.#intervalOf(members);
    let group = this.#groups.get(name);
    if (group === undefined) {
      const asked = new Set<string>();
      const fresh = { asked, askedAt: Number.NEGATIVE_INFINITY, round: undefined, again: false };
      group = { name, members, intervalMs, ...fresh, cancelTimer: () => undefined };
      this.#groups.set(name, group);
      this.#begin(group);
      return;
    }
    let hasNew = false;
    for (const { healthy, identity } of members) {
      const key = keyOf(identity);
      if (!healthy) group.asked.delete(key);
      else if (!group.asked.has(key)) hasNew = true;
    }
    const isPaceNew = group.intervalMs !== intervalMs;
    group.members = members;
    group.intervalMs = intervalMs;
    if (hasNew || isPaceNew) this.#begin(group);
  }

  #intervalOf(members: readonly Worker[]): number {
    const { defaultIntervalMs = POLL_INTERVAL_DEFAULT_MS, settingsOf } = this.#options;
    const own = members.map((worker) => settingsOf(worker).intervalMs ?? defaultIntervalMs);
    return Math.max(POLL_INTERVAL_MIN_MS, Math.min(...own));
  }

  /** Begins a round as soon as may be: after the one under way, and a second after it began. */
  #begin(group: Group): void {
    group.cancelTimer();
    if (group.round !== undefined) {
      group.again = true;
      return;
    }
    const delayMs = group.askedAt + POLL_INTERVAL_MIN_MS - this.#options.now();
    if (delayMs > 0) this.#beginAfter(group, delayMs);
    else group.round = this.#round(group);
  }

  #beginAfter(group: Group, delayMs: number): void {
    const { after = afterTimeout } = this.#options;
    group.cancelTimer = after(delayMs, () => {
      this.#begin(group);
    });
  }

  #publish(members: readonly Worker[], deliveries: readonly TelemetryDelivery[]): void {
    const { now, store } = this.#options;
    const urls = members.map(({ identity }) => identity.url);
    try {
      for (const worker of store.publish(urls, deliveries, now()).stale) {
        this.#report(worker, "stale", "it repeats one old sample");
      }
    } catch (error) {
      this.#options.onFault(error);
    }
  }

  async #round(group: Group): Promise<void> {
    const { now, rng } = this.#options;
    const startedAt = now();
    const { members } = group;
    const healthy = members.filter((worker) => worker.healthy);
    if (healthy.length > 0) group.askedAt = startedAt;
    group.asked = new Set(healthy.map(({ identity }) => keyOf(identity)));
    const polled = await Promise.all(healthy.map((worker) => this.#poll(worker)));
    group.round = undefined;
    // A group that has ended publishes nothing: its workers may stand in another one by now.
    if (this.#stop.signal.aborted || this.#groups.get(group.name) !== group) return;
    const deliveries = polled.filter((delivery) => delivery !== undefined);
    this.#publish(members, deliveries);
    if (group.again) {
      group.again = false;
      this.#begin(group);
      return;
    }
    const jitter = 1 - POLL_JITTER + (2 * POLL_JITTER * rng.below(1_001)) / 1_000;
    const periodMs = Math.max(POLL_INTERVAL_MIN_MS, group.intervalMs * jitter);
    this.#beginAfter(group, Math.max(0, startedAt + periodMs - now()));
  }

  async #poll(worker: Worker): Promise<TelemetryDelivery | undefined> {
    const { timeoutMs = POLL_TIMEOUT_DEFAULT_MS, now } = this.#options;
    const { identity, runtime } = worker;
    const deadline = deadlineAfter(timeoutMs, this.#stop.signal);
    try {
      const { settings, engine } = this.#clientOf(worker);
      const key = await keyWithin(deadline.signal, settings.apiKey);
      const apiKey = key?.kind === "key" ? key.key : undefined;
      const result = await engine.poll({ signal: deadline.signal, apiKey, now });
      if (this.#stop.signal.aborted) return undefined;
      if (result.kind === "unknown") {
        const keyProblem = key?.kind === "problem" ? `; ${key.problem}` : "";
        this.#report(identity, result.reason, result.detail + keyProblem);
        return undefined;
      }
      const { sample, at } = result;
      if (sample.invalidFields.length > 0) {
        const detail = `impossible values of ${sample.invalidFields.join(", ")}`;
        this.#report(identity, "invalid_value", detail, true);
      }
      return { identity, sample, observedAt: at, liveLoad: runtime.liveLoad };
    } catch (error) {
      // A fault of one poll must not take the rest of the group with it.
      this.#report(identity, "malformed", error instanceof Error ? error.message : "a fault");
      return undefined;
    } finally {
      deadline.end();
    }
  }

  #clientOf(worker: Worker): Client {
    const key = keyOf(worker.identity);
    let client = this.#clients.get(key);
    if (client === undefined) {
      const settings = this.#options.settingsOf(worker);
      client = { settings, engine: new EngineClient(settings.baseUrl, settings.engine) };
      this.#clients.set(key, client);
    }
    return client;
  }

  #report(
    worker: WorkerIdentity,
    reason: TelemetryFailure,
    detail: string,
    sampleKept = false,
  ): void {
    this.#options.onReport({ worker, reason, detail, sampleKept });
  }
}

function keyOf({ url, id, generation, revision }: WorkerIdentity): string {
  return JSON.stringify([url, id, generation, revision]);
}

const afterTimeout: After = (delayMs, run) => {
  const timer = setTimeout(run, delayMs);
  return () => {
    clearTimeout(timer);
  };
};

/** Reads a key, but no longer than the poll may take: a file on a mount that hangs never ends. */
async function keyWithin(
  signal: AbortSignal,
  source: ApiKeySource | undefined,
): Promise<ApiKeyResult | undefined> {
  if (source === undefined) return undefined;
  let give: (result: ApiKeyResult) => void = () => undefined;
  const late = new Promise<ApiKeyResult>((resolve) => (give = resolve));
  const onAbort = (): void => {
    give({ kind: "problem", problem: "the API key could not be read in time" });
  };
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([readApiKey(source), late]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
