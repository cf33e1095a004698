// Engines behind a stack that publish what their KV caches hold, like vLLM: warmed behind Weir's back
// with prompts of token ids, and asked how many blocks they have. The last engine keeps no batches for a
// replay.

import { expect } from "chai";
import type { MockWorkerOptions } from "../../envoy/mock-worker/options.js";
import { startMockWorker, type MockWorker } from "../../envoy/mock-worker/server.js";
import { selectionOf } from "./cached-chat.js";
import { request } from "./http-client.js";
import { freePorts } from "./ports.js";
import { JSON_HEADERS, startStack, type Stack } from "./stack.js";

/** Of the engines; the shipped block of Weir has 16 tokens, until the events tell otherwise. */
export const BLOCK_TOKENS = 8;
export const WORKERS = 3;
const KV_BLOCKS = 40;

/** Full blocks of token ids that begin no other prompt, and a begun block behind them. */
export function promptOf(name: number, blocks: number): readonly number[] {
  return Array.from({ length: blocks * BLOCK_TOKENS + 3 }, (_, index) => 1_000 * name + index);
}

export const bodyOf = (prompt: readonly number[]): string =>
  JSON.stringify({ model: "demo", prompt, max_tokens: 2 });

export interface Engines {
  readonly stack: Stack;
  readonly workers: MockWorker[];
  readonly options: readonly Partial<MockWorkerOptions>[];
  readonly stop: () => Promise<void>;
}

/** Has a worker compute a prompt without Weir. */
export async function warmAt({ port }: MockWorker, prompt: readonly number[]): Promise<void> {
  const path = "/v1/completions";
  const { status } = await request({ port, path, headers: JSON_HEADERS, body: bodyOf(prompt) });
  expect(status).to.equal(200);
}

/** Blocks that each worker is known to hold by its events, in the workers' order. */
export async function eventBlocks(stack: Stack): Promise<readonly number[]> {
  return (await selectionOf(stack)).workers.map((worker) => worker.event_blocks);
}

/**
 * Engines that publish; the last one has no replay.
 *
 * @param warmUp what each of them computes before Weir starts
 */
export async function startEngines(warmUp: readonly (readonly number[])[] = []): Promise<Engines> {
  const ports = await freePorts(2 * WORKERS);
  const portAt = (index: number): number => ports[index] ?? 0;
  const base = { blockChars: 4 * BLOCK_TOKENS, kvBlocks: KV_BLOCKS, port: 0 };
  const hasReplay = (index: number): boolean => index < WORKERS - 1;
  const options = Array.from({ length: WORKERS }, (_, index) => ({
    ...base,
    kvEventsPort: portAt(2 * index),
    ...(hasReplay(index) ? { kvReplayPort: portAt(2 * index + 1) } : {}),
  }));
  const workers = await Promise.all(options.map((one) => startMockWorker(one)));
  for (const worker of workers) {
    for (const prompt of warmUp) await warmAt(worker, prompt);
  }
  const tcp = (port: number): string => `tcp://127.0.0.1:${String(port)}`;
  const stack = await startStack({
    workers: 0,
    config: {
      models: { demo: { policy: "cache_aware", ownership: "events" } },
      health: { interval_secs: 0.5, timeout_secs: 0.45 },
      workers: workers.map(({ url }, index) => ({
        url,
        cluster: `worker_${String(index + 1)}`,
        engine: "vllm",
        models: ["demo"],
        kv_events: {
          endpoint: tcp(portAt(2 * index)),
          ...(hasReplay(index) ? { replay_endpoint: tcp(portAt(2 * index + 1)) } : {}),
        },
      })),
    },
  });
  return {
    stack,
    workers,
    options: options.map((one, index) => ({ ...one, port: workers[index]?.port ?? 0 })),
    stop: async () => {
      await stack.stop();
      await Promise.all(workers.map((worker) => worker.close(0)));
    },
  };
}

/** Starts an engine again at its old ports, which it may take a moment to get back. */
export async function restartEngine(
  { stack, workers, options }: Engines,
  index: number,
): Promise<void> {
  await workers[index]?.close(0);
  await stack.until("the ports are free again", async () => {
    const started = await startMockWorker(options[index] ?? {}).catch(() => undefined);
    if (started !== undefined) workers[index] = started;
    return started !== undefined;
  });
}
