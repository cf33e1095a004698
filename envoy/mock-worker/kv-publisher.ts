// How do others learn what this worker's cache holds? A publisher as vLLM has it: a PUB socket sends
// [topic, sequence, payload], and a ROUTER socket answers a question (empty delimiter, first sequence) with
// [delimiter, topic, sequence, payload] for each of the last 10,000 batches from there on, then with
// sequence -1. Every change of the cache is a batch, numbered from 0. A test can have batches dropped on
// their way, which only the replay still has, or the numbers begin anew. State: number and kept batches.
// The only file of the worker that needs a package.
import { Publisher, Router } from "zeromq";
import type { CacheObserver, PromptBlock } from "./kv-cache.js";
import { batch, clearedEvent, removedEvents, storedEvents } from "./kv-events.js";

/** What vLLM keeps unless it is told otherwise. */
const KEPT_BATCHES = 10_000;
const TOPIC = Buffer.alloc(0);
const NOTHING = Buffer.alloc(0);

/** Spelled as on the wire of /mock/state. */
export interface KvPublisherState {
  readonly port: number;
  readonly replay_port: number | null;
  /** Batches published since the numbers began. */
  readonly batches: number;
}

export interface KvPublisher extends CacheObserver {
  state(): KvPublisherState;
  dropNext(batches: number): void;
  restart(): void;
  close(): void;
}

export interface KvPublisherOptions {
  readonly host: string;
  readonly port: number;
  readonly replayPort: number | undefined;
  readonly blockTokens: number;
}

interface Kept {
  readonly sequence: number;
  readonly payload: Buffer;
}

/** Opens the sockets; rejects when an address cannot be bound. */
export async function startKvPublisher(options: KvPublisherOptions): Promise<KvPublisher> {
  const { host, port, replayPort, blockTokens } = options;
  const publisher = new Publisher({ linger: 0, sendHighWaterMark: 100_000 });
  const router = replayPort === undefined ? undefined : new Router({ linger: 0 });
  const close = (): void => {
    publisher.close();
    router?.close();
  };
  const place = `tcp://${host.includes(":") ? `[${host}]` : host}`;
  try {
    await publisher.bind(`${place}:${String(port)}`);
    await router?.bind(`${place}:${String(replayPort)}`);
  } catch (error) {
    close();
    throw error;
  }
  let kept: Kept[] = [];
  let sequence = 0;
  let dropped = 0;
  const publish = (events: readonly Buffer[]): void => {
    const payload = batch(Date.now() / 1000, events);
    kept.push({ sequence, payload });
    if (kept.length > KEPT_BATCHES) kept.shift();
    // A PUB socket without room, or without subscribers, lets messages go.
    if (dropped > 0) dropped -= 1;
    else void publisher.send([TOPIC, sequenceBytes(sequence), payload]).catch(() => undefined);
    sequence += 1;
  };
  if (router !== undefined) void answerReplays(router, () => kept);
  const ports = {
    port: portOf(publisher.lastEndpoint),
    replay_port: router === undefined ? null : portOf(router.lastEndpoint),
  };
  return {
    stored: (blocks: readonly PromptBlock[]) => {
      publish(storedEvents(blocks, blockTokens));
    },
    removed: (keys) => {
      publish(removedEvents(keys));
    },
    cleared: () => {
      publish([clearedEvent()]);
    },
    state: () => ({ ...ports, batches: sequence }),
    dropNext: (batches) => {
      dropped = batches;
    },
    restart: () => {
      kept = [];
      sequence = 0;
    },
    close,
  };
}

async function answerReplays(router: Router, kept: () => readonly Kept[]): Promise<void> {
  for await (const frames of router) {
    const [client, delimiter, start] = frames;
    if (frames.length !== 3 || client === undefined || start?.length !== 8) continue;
    const from = start.readBigUInt64BE();
    const answer = (...parts: Buffer[]): Promise<void> =>
      // A client that has gone away meanwhile needs no answer.
      router.send([client, delimiter ?? NOTHING, ...parts]).catch(() => undefined);
    for (const { sequence, payload } of [...kept()]) {
      if (BigInt(sequence) >= from) await answer(TOPIC, sequenceBytes(sequence), payload);
    }
    await answer(NOTHING, sequenceBytes(-1), NOTHING);
  }
}

function sequenceBytes(sequence: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(sequence));
  return bytes;
}

function portOf(endpoint: string | null): number {
  return Number(endpoint?.split(":").at(-1));
}
