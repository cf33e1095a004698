// An engine's publisher on loopback, as vLLM documents it: a PUB socket with [topic, sequence, payload],
// and a ROUTER socket that answers [delimiter, topic, sequence, payload] for each batch it keeps and ends
// with sequence -1. An XPUB socket stands for PUB: on the wire they are the same, and it tells when a
// subscription has come, so that a test never publishes into the void.
import { Router, XPublisher } from "zeromq";

export interface PublisherOptions {
  /** Undefined = a free port. */
  readonly port?: number;
  readonly topic?: string;
  /** Undefined = a free port; null = no replay at all. */
  readonly replayPort?: number | null;
  /** `old` leaves the topic out of replayed batches, as the first versions did. */
  readonly replayForm?: "old" | "new";
}

export interface KvPublisher {
  readonly port: number;
  readonly replayPort: number;
  readonly endpoint: string;
  readonly replayEndpoint: string;
  /** Batches that the replay endpoint gives, by sequence, oldest first. */
  readonly kept: Map<number, Buffer>;
  /** First sequences asked for at the replay endpoint. */
  readonly asked: number[];
  /** Sequences left out of every answer once, as if lost on the way. */
  readonly lostOnce: Set<number>;
  /** Sequence behind which the next answer breaks off, its end included. */
  cutOnceAfter: number | undefined;
  /** Leaves questions unanswered. */
  silent: boolean;
  /** Resolves when so many subscriptions have come since the start. */
  subscribed(count?: number): Promise<void>;
  /** Publishes a batch and keeps it. */
  publish(sequence: number, payload: Buffer): Promise<void>;
  /** Keeps a batch that never reaches the subscribers. */
  lose(sequence: number, payload: Buffer): void;
  sendRaw(frames: readonly Buffer[]): Promise<void>;
  close(): void;
}

export function sequenceBytes(sequence: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(sequence));
  return bytes;
}

export async function startPublisher(options: PublisherOptions = {}): Promise<KvPublisher> {
  const topic = Buffer.from(options.topic ?? "");
  const publisher = new XPublisher({ linger: 0, sendHighWaterMark: 0 });
  await publisher.bind(`tcp://127.0.0.1:${String(options.port ?? 0)}`);
  const router = new Router({ linger: 0, sendHighWaterMark: 0 });
  if (options.replayPort !== null) {
    await router.bind(`tcp://127.0.0.1:${String(options.replayPort ?? 0)}`);
  }
  const port = portOf(publisher.lastEndpoint);
  const replayPort = options.replayPort === null ? 0 : portOf(router.lastEndpoint);
  let subscriptions = 0;
  let tell: () => void = () => undefined;
  void (async () => {
    for await (const [frame] of publisher) {
      if (frame?.[0] !== 1) continue;
      subscriptions += 1;
      tell();
    }
  })();
  const engine: KvPublisher = {
    port,
    replayPort,
    endpoint: `tcp://127.0.0.1:${String(port)}`,
    replayEndpoint: `tcp://127.0.0.1:${String(replayPort)}`,
    kept: new Map(),
    asked: [],
    lostOnce: new Set(),
    cutOnceAfter: undefined,
    silent: false,
    subscribed: async (count = 1) => {
      while (subscriptions < count) await new Promise<void>((resolve) => (tell = resolve));
    },
    publish: async (sequence, payload) => {
      engine.kept.set(sequence, payload);
      await publisher.send([topic, sequenceBytes(sequence), payload]);
    },
    lose: (sequence, payload) => {
      engine.kept.set(sequence, payload);
    },
    sendRaw: (frames) => publisher.send([...frames]),
    close: () => {
      publisher.close();
      router.close();
    },
  };
  if (options.replayPort !== null) void answerReplays(router, engine, options, topic);
  return engine;
}

async function answerReplays(
  router: Router,
  engine: KvPublisher,
  options: PublisherOptions,
  topic: Buffer,
): Promise<void> {
  const label = options.replayForm === "old" ? [] : [topic];
  for await (const frames of router) {
    const [client, delimiter, start] = frames;
    // vLLM takes exactly three parts and an empty delimiter.
    if (frames.length !== 3 || client === undefined) continue;
    if (delimiter?.length !== 0 || start?.length !== 8) continue;
    const from = Number(start.readBigUInt64BE());
    engine.asked.push(from);
    if (engine.silent) continue;
    const last = engine.cutOnceAfter;
    engine.cutOnceAfter = undefined;
    for (const [sequence, payload] of engine.kept) {
      if (last !== undefined && sequence > last) break;
      if (sequence < from || engine.lostOnce.delete(sequence)) continue;
      await router.send([client, delimiter, ...label, sequenceBytes(sequence), payload]);
    }
    if (last !== undefined) continue;
    const emptyLabel = label.map(() => Buffer.alloc(0));
    await router.send([client, delimiter, ...emptyLabel, sequenceBytes(-1), Buffer.alloc(0)]);
  }
}

function portOf(endpoint: string | null): number {
  return Number(endpoint?.split(":").at(-1));
}
