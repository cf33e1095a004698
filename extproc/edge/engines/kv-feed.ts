// What does one rank of one engine publish about its KV cache? Subscribes to it and keeps a view that can
// be trusted. Batches are numbered from 0; missed ones are asked for at the replay endpoint, in order; when
// they cannot be had the view is cleared, for blocks may have gone unnoticed, and a recovery is counted. The
// numbers begin anew when the engine restarts, with an empty cache: a 0, after a broken connection any
// number already passed, and any other passed number unless it is one of the last batches word for word,
// clears the view. ZeroMQ reconnects by itself, with backoff; a broken connection alone clears nothing,
// since a blip of the network loses no block, but the engine may have been another one meanwhile whose
// numbers happen to go on where ours stopped: the last batch is asked for again then, and it must be the
// same. State: the last batches, whether a connection broke since, and the view. Milliseconds. Nothing is
// thrown out of a feed.

import { setTimeout as pause } from "node:timers/promises";
import { Subscriber } from "zeromq";
import { applyBatch } from "./kv-apply.js";
import type { BatchProblem } from "./kv-raw-event.js";
import type { KvFeedView } from "./kv-feed-view.js";
import { KvHistory, type SeenBatch } from "./kv-history.js";
import { askReplay, REPLAY_MAX_BATCHES, REPLAY_WAIT_MS, type ReplayEnd } from "./kv-replay.js";
import {
  connectOptions,
  faultOf,
  MESSAGE_MAX_WIRE_BYTES,
  nextTurn,
  readSequence,
} from "./kv-wire.js";
import { SlicedWork } from "../runtime/sliced-work.js";

/** First wait before the next attempt to connect; it doubles up to the longest. */
const RECONNECT_MIN_MS = 100;
const RECONNECT_MAX_MS = 30_000;
/** ZeroMQ gives a connection up for good when the peer breaks the protocol; it is opened anew then. */
const GIVEN_UP_AFTER_MS = 1_000;
/**
 * An engine drops what a slow reader has no room for, a thousand batches further; the rest of a long replay
 * is asked for again where it broke off. So many questions are enough for REPLAY_MAX_BATCHES.
 */
const REPLAY_MAX_ATTEMPTS = 12;
/**
 * The most batches that one message may jump over while the connection lasts: eleven hours of 100 steps a
 * second. A greater jump is believed when the next batch goes on from it.
 */
export const SEQUENCE_MAX_JUMP = 4_000_000;

export type KvFailure = BatchProblem | "connect" | "replay";

export interface KvFeedOptions {
  readonly endpoint: string;
  readonly replayEndpoint: string | undefined;
  readonly topic: string;
  readonly view: KvFeedView;
  readonly listener: {
    /** The view was cleared because batches are missing. */
    recovered(detail: string): void;
    failed(reason: KvFailure, detail: string): void;
    received(events: number): void;
  };
  /** Shared by all feeds of the process. */
  readonly work?: SlicedWork;
  readonly replayWaitMs?: number;
}

export class KvFeed {
  readonly #options: KvFeedOptions;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  #socket: Subscriber | undefined;
  readonly #work: SlicedWork;
  readonly #seen = new KvHistory();
  /** The number that a message jumped to and that was not believed. */
  #absurd: number | undefined;
  /** The connection broke after the last batch: the engine may be another one. */
  #isDoubtful = false;
  #reopenMs = RECONNECT_MIN_MS;

  constructor(options: KvFeedOptions) {
    this.#options = options;
    this.#work = options.work ?? new SlicedWork();
    this.#ended = this.#run();
  }

  /** Ends the feed for good; nothing reaches the view after this call. */
  stop(): Promise<void> {
    this.#stop.abort();
    this.#socket?.close();
    return this.#ended;
  }

  get #isStopped(): boolean {
    return this.#stop.signal.aborted;
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      try {
        await this.#listen();
      } catch (error) {
        this.#options.listener.failed("connect", faultOf(error));
      }
      await this.#pauseBeforeReopening();
    }
  }

  async #pauseBeforeReopening(): Promise<void> {
    this.#isDoubtful = true;
    const waitMs = this.#reopenMs;
    this.#reopenMs = Math.min(2 * waitMs, RECONNECT_MAX_MS);
    await pause(waitMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
  }

  /** Takes batches until the socket is closed. */
  async #listen(): Promise<void> {
    const { endpoint, topic } = this.#options;
    const socket = new Subscriber({
      ...connectOptions(endpoint),
      reconnectInterval: RECONNECT_MIN_MS,
      reconnectMaxInterval: RECONNECT_MAX_MS,
      maxMessageSize: MESSAGE_MAX_WIRE_BYTES,
    });
    this.#socket = socket;
    const endWatch = this.#watch(socket);
    try {
      socket.subscribe(topic);
      socket.connect(endpoint);
      for await (const frames of socket) {
        await this.#take(frames);
        await nextTurn();
      }
    } finally {
      endWatch();
      socket.close();
    }
  }

  /** Notes broken connections, and closes a socket that ZeroMQ has given up. */
  #watch(socket: Subscriber): () => void {
    const { listener } = this.#options;
    let givenUp: NodeJS.Timeout | undefined;
    let isBroken = false;
    const endWatch = (): void => {
      clearTimeout(givenUp);
    };
    socket.events.on("handshake", () => {
      endWatch();
      this.#reopenMs = RECONNECT_MIN_MS;
      // Once more than at the break: batches from before it may have been in stock.
      if (isBroken) this.#isDoubtful = true;
      isBroken = false;
    });
    socket.events.on("connect:retry", () => {
      endWatch();
      if (!this.#isStopped) listener.failed("connect", "no connection; it is tried again");
    });
    socket.events.on("disconnect", () => {
      isBroken = true;
      this.#isDoubtful = true;
      endWatch();
      givenUp = setTimeout(() => {
        listener.failed("connect", "the connection broke the protocol or a limit of its own");
        socket.close();
      }, GIVEN_UP_AFTER_MS);
    });
    return endWatch;
  }

  async #take(frames: readonly Buffer[]): Promise<void> {
    try {
      const [, sequenceFrame, payload] = frames;
      const sequence = sequenceFrame === undefined ? undefined : readSequence(sequenceFrame);
      if (frames.length !== 3 || sequence === undefined || payload === undefined) {
        this.#distrust("malformed", "a message is not topic, sequence of 8 bytes, payload");
        return;
      }
      await this.#follow({ sequence, payload });
    } catch (error) {
      this.#distrust("malformed", `a fault: ${faultOf(error)}`);
    }
  }

  async #follow(batch: SeenBatch): Promise<void> {
    const { last } = this.#seen;
    const isDoubtful = this.#isDoubtful;
    if (last !== undefined && !isDoubtful && batch.sequence - last > SEQUENCE_MAX_JUMP) {
      const isReal = this.#absurd === batch.sequence - 1;
      this.#absurd = batch.sequence;
      if (!isReal) {
        this.#distrust("malformed", `batch ${String(batch.sequence)} follows ${String(last)}`);
        return;
      }
    }
    this.#absurd = undefined;
    this.#isDoubtful = false;
    if (last !== undefined && batch.sequence <= last) {
      const isUnexpected = batch.sequence > 0 && !isDoubtful;
      if (isUnexpected && this.#seen.has(batch)) return;
      this.#startOver();
      const detail = `number ${String(batch.sequence)} came again after ${String(last)}`;
      if (isUnexpected) this.#options.listener.recovered(`${detail}: the engine has started over`);
    } else if (last !== undefined && isDoubtful && !(await this.#isStillThe(last))) {
      this.#startOver();
    }
    if (batch.sequence > this.#seen.next) await this.#fetchUntil(batch.sequence);
    if (!this.#isStopped) await this.#apply(batch);
  }

  /** Whether the engine still has this very batch; true as well when that cannot be found out. */
  async #isStillThe(last: number): Promise<boolean> {
    let isSame = true;
    await this.#ask(last, (sequence, payload) => {
      isSame = sequence !== last || this.#seen.has({ sequence, payload });
      return Promise.resolve(false);
    });
    return isSame;
  }

  /** Applies what was missed before `until`, as far as it can be had. */
  async #fetchUntil(until: number): Promise<void> {
    const { replayEndpoint } = this.#options;
    const seen = this.#seen;
    if (replayEndpoint !== undefined && until - seen.next > REPLAY_MAX_BATCHES) {
      this.#lose(until - REPLAY_MAX_BATCHES);
    }
    for (let attempt = 0; attempt < REPLAY_MAX_ATTEMPTS && seen.next < until; attempt += 1) {
      if (replayEndpoint === undefined || this.#isStopped) break;
      const from = seen.next;
      await this.#ask(from, async (sequence, payload) => {
        if (this.#isStopped || sequence >= until) return false;
        if (sequence < seen.next) return true;
        if (sequence > seen.next) {
          // In the midst of an answer one was lost on the way; at its begin the engine has no older one.
          if (seen.next > from) return false;
          this.#lose(sequence);
        }
        await this.#apply({ sequence, payload });
        return sequence + 1 < until;
      });
      if (seen.next === from) break;
    }
    if (seen.next < until && !this.#isStopped) this.#lose(until);
  }

  async #ask(
    from: number,
    take: (sequence: number, payload: Buffer) => Promise<boolean>,
  ): Promise<void> {
    const { replayEndpoint: endpoint, replayWaitMs: waitMs = REPLAY_WAIT_MS } = this.#options;
    if (endpoint === undefined) return;
    const question = { endpoint, from, waitMs, signal: this.#stop.signal };
    const end: ReplayEnd = await askReplay(question, take);
    if (end.kind !== "failed" || this.#isStopped) return;
    this.#options.listener.failed("replay", `from ${String(from)}: ${end.detail}`);
  }

  /** Goes on at `sequence` without the batches before it. */
  #lose(sequence: number): void {
    const { last, next } = this.#seen;
    this.#seen.skipTo(sequence);
    // Before the first batch nothing is known that could be wrong.
    if (last === undefined) return;
    this.#options.view.clear();
    const missed = `${String(sequence - next)} batches from ${String(next)} are missing`;
    this.#options.listener.recovered(missed);
  }

  /** The engine has restarted: its cache was empty when its numbers began anew. */
  #startOver(): void {
    this.#seen.clear();
    this.#options.view.clear();
  }

  async #apply(batch: SeenBatch): Promise<void> {
    this.#seen.add(batch);
    const { view, listener } = this.#options;
    try {
      const steps = applyBatch(batch.payload, view);
      const applied = await this.#work.run(steps, this.#stop.signal);
      if (applied === undefined) return;
      if (applied.problem === undefined) listener.received(applied.events);
      else {
        const { reason, detail } = applied.problem;
        this.#distrust(reason, `batch ${String(batch.sequence)}: ${detail}`);
      }
    } catch (error) {
      this.#distrust("malformed", `a fault: ${faultOf(error)}`);
    }
  }

  /** What came cannot be read, so it is not known what it took away. */
  #distrust(reason: BatchProblem, detail: string): void {
    if (this.#isStopped) return;
    this.#options.view.clear();
    this.#options.listener.failed(reason, detail);
  }
}
