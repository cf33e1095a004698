// Profiles this process between two calls: own time of functions, and bytes allocated by them, those
// that are garbage already included. What V8's inspector gives, as far as it is read here.

import { Session } from "node:inspector/promises";

export interface Frame {
  readonly functionName: string;
  readonly url: string;
}

export interface Profile {
  /** Microseconds of each function's own. */
  readonly micros: readonly (readonly [Frame, number])[];
  /** Bytes that each function allocated itself. */
  readonly bytes: readonly (readonly [Frame, number])[];
}

const SAMPLING_MICROS = 500;
/** One in so many bytes is sampled, on average. */
const SAMPLING_BYTES = 16_384;

interface HeapNode {
  readonly callFrame: Frame;
  readonly selfSize: number;
  readonly children: readonly HeapNode[];
}

export class Profiler {
  readonly #session = new Session();

  async start(): Promise<void> {
    this.#session.connect();
    await this.#session.post("Profiler.enable");
    await this.#session.post("Profiler.setSamplingInterval", { interval: SAMPLING_MICROS });
    const options = {
      samplingInterval: SAMPLING_BYTES,
      includeObjectsCollectedByMajorGC: true,
      includeObjectsCollectedByMinorGC: true,
    };
    await this.#session.post("HeapProfiler.startSampling", options);
    await this.#session.post("Profiler.start");
  }

  async stop(): Promise<Profile> {
    const { profile: cpu } = await this.#session.post("Profiler.stop");
    const { profile: heap } = await this.#session.post("HeapProfiler.stopSampling");
    this.#session.disconnect();
    const frames = new Map(cpu.nodes.map(({ id, callFrame }) => [id, callFrame]));
    const micros = (cpu.samples ?? []).flatMap((id, index) => {
      const frame = frames.get(id);
      return frame === undefined ? [] : [[frame, cpu.timeDeltas?.[index] ?? 0] as const];
    });
    return { micros: summed(micros), bytes: summed(ownBytes(heap.head)) };
  }
}

function ownBytes(node: HeapNode): (readonly [Frame, number])[] {
  return [[node.callFrame, node.selfSize], ...node.children.flatMap(ownBytes)];
}

function summed(entries: readonly (readonly [Frame, number])[]): (readonly [Frame, number])[] {
  const sums = new Map<string, [Frame, number]>();
  for (const [{ functionName, url }, amount] of entries) {
    const key = `${functionName} ${url}`;
    const sum = sums.get(key);
    if (sum === undefined) sums.set(key, [{ functionName, url }, amount]);
    else sum[1] += amount;
  }
  return [...sums.values()].sort(([, a], [, b]) => b - a);
}
