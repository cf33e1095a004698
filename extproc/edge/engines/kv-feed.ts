// What does one rank of one engine publish about its KV cache? Subscribes to it and keeps a view that can
// be trusted. Batches are numbered from 0. One that was seen is ignored; missed ones are asked for at the
// replay endpoint, in order; when they cannot be had the view is cleared, for blocks may have gone
// unnoticed, and a recovery is counted. The numbers begin anew when the engine restarts, with an empty
// cache: a 0, or after a broken connection any number already passed, clears the view. ZeroMQ reconnects
// by itself, with backoff; a broken connection alone clears nothing, since a blip of the network loses no
// block, but the engine may have been another one meanwhile whose numbers happen to go on where ours
// stopped: the last batch is asked for again then, and it must be the same. State: the last batch, whether
// a connection broke since, and the view. Milliseconds. Nothing is thrown out of a feed.

import { setTimeout as pause } from "node:timers/promises";
import { Subscriber } from "zeromq";
import { readBatch, type BatchProblem } from "./kv-batch.js";
import type { KvFeedView } from "./kv-feed-view.js";
import { askReplay, REPLAY_MAX_BATCHES, REPLAY_WAIT_MS, type ReplayEnd } from "./kv-replay.js";
import { connectOptions, MESSAGE_MAX_WIRE_BYTES, nextTurn, readSequence } from "./kv-wire.js";

/** First wait before the next attempt to connect; it doubles up to the longest. */
const RECONNECT_MIN_MS = 100;
const RECONNECT_MAX_MS = 30_000;
/** ZeroMQ gives a connection up for good when the peer breaks the protocol; it is opened anew then. */
const GIVEN_UP_AFTER_MS = 1_000;
/** Batches in stock while the feed waits for a replay: ten seconds of 100 steps a second. */
const FEED_HIGH_WATER_BATCHES = 1_000;
/** A long replay may lose batches on its way; it is asked for again where it broke off. */
const REPLAY_MAX_ATTEMPTS = 3;

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
  readonly replayWaitMs?: number;
}

const NO_PAYLOAD = Buffer.alloc(0);

interface SeenBatch {
  readonly sequence: number;
  readonly payload: Buffer;
}

export class KvFeed {
  readonly #options: KvFeedOptions;
  readonly #stop = new AbortController();
  readonly #ended: Promise<void>;
  #socket: Subscriber | undefined;
  #last: SeenBatch | undefined;
  /** The connection broke after the last batch: the engine may be another one. */
  #isDoubtful = false;
  #reopenMs = RECONNECT_MIN_MS;

  constructor(options: KvFeedOptions) {
    this.#options = options;
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
        this.#options.listener.failed("connect", messageOf(error));
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
      receiveHighWaterMark: FEED_HIGH_WATER_BATCHES,
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
      this.#distrust("malformed", `a fault: ${messageOf(error)}`);
    }
  }

  async #follow(batch: SeenBatch): Promise<void> {
    const isDoubtful = this.#isDoubtful;
    this.#isDoubtful = false;
    const last = this.#last;
    if (last !== undefined && batch.sequence <= last.sequence) {
      if (batch.sequence > 0 && !isDoubtful) return;
      this.#startOver();
    } else if (last !== undefined && isDoubtful && !(await this.#isStillThe(last))) {
      this.#startOver();
    }
    if (batch.sequence > this.#next) await this.#fetchUntil(batch.sequence);
    if (!this.#isStopped) this.#apply(batch);
  }

  get #next(): number {
    return this.#last === undefined ? 0 : this.#last.sequence + 1;
  }

  /** Whether the engine still has this very batch; true as well when that cannot be found out. */
  async #isStillThe(last: SeenBatch): Promise<boolean> {
    let isSame = true;
    await this.#ask(last.sequence, (sequence, payload) => {
      isSame = sequence !== last.sequence || payload.equals(last.payload);
      return false;
    });
    return isSame;
  }

  /** Applies what was missed before `until`, as far as it can be had. */
  async #fetchUntil(until: number): Promise<void> {
    const { replayEndpoint } = this.#options;
    if (replayEndpoint !== undefined && until - this.#next > REPLAY_MAX_BATCHES) {
      this.#lose(until - REPLAY_MAX_BATCHES);
    }
    for (let attempt = 0; attempt < REPLAY_MAX_ATTEMPTS && this.#next < until; attempt += 1) {
      if (replayEndpoint === undefined || this.#isStopped) break;
      const from = this.#next;
      await this.#ask(from, (sequence, payload) => {
        if (this.#isStopped || sequence >= until) return false;
        if (sequence < this.#next) return true;
        if (sequence > this.#next) {
          // In the midst of an answer one was lost on the way; at its begin the engine has no older one.
          if (this.#next > from) return false;
          this.#lose(sequence);
        }
        this.#apply({ sequence, payload });
        return sequence + 1 < until;
      });
      if (this.#next === from) break;
    }
    if (this.#next < until && !this.#isStopped) this.#lose(until);
  }

  async #ask(from: number, take: (sequence: number, payload: Buffer) => boolean): Promise<void> {
    const { replayEndpoint: endpoint, replayWaitMs: waitMs = REPLAY_WAIT_MS } = this.#options;
    if (endpoint === undefined) return;
    const question = { endpoint, from, waitMs, signal: this.#stop.signal };
    const end: ReplayEnd = await askReplay(question, take);
    if (end.kind !== "failed" || this.#isStopped) return;
    this.#options.listener.failed("replay", `from ${String(from)}: ${end.detail}`);
  }

  /** Goes on at `sequence` without the batches before it. */
  #lose(sequence: number): void {
    const isFirst = this.#last === undefined;
    const missed = `${String(sequence - this.#next)} batches from ${String(this.#next)} are missing`;
    this.#last = { sequence: sequence - 1, payload: NO_PAYLOAD };
    // Before the first batch nothing is known that could be wrong.
    if (isFirst) return;
    this.#options.view.clear();
    this.#options.listener.recovered(missed);
  }

  /** The engine has restarted: its cache was empty when its numbers began anew. */
  #startOver(): void {
    this.#last = undefined;
    this.#options.view.clear();
  }

  #apply(batch: SeenBatch): void {
    this.#last = batch;
    const { view, listener } = this.#options;
    const result = readBatch(batch.payload);
    if (result.kind === "problem") {
      this.#distrust(result.reason, `batch ${String(batch.sequence)}: ${result.detail}`);
      return;
    }
    for (const event of result.events) {
      if (!view.apply(event)) this.#distrust("too_large", "the engine's cache has too many blocks");
    }
    listener.received(result.events.length);
  }

  /** What came cannot be read, so it is not known what it took away. */
  #distrust(reason: BatchProblem, detail: string): void {
    if (this.#isStopped) return;
    this.#options.view.clear();
    this.#options.listener.failed(reason, detail);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
