// An event index that only writes down what it is told, and what it would hold after it.
import type { KvStored, KvView } from "../../../extproc/core/prefixes/event-index.js";
import type { KvSink } from "../../../extproc/edge/engines/kv-feed-view.js";

export class SinkLog implements KvSink {
  readonly lines: string[] = [];
  readonly #held = new Map<string, Set<string>>();

  /** Hashes that a view holds, in the order they came. */
  held(generation = 1, rank = 0): readonly string[] {
    return [...(this.#held.get(`${String(generation)}/${String(rank)}`) ?? [])];
  }

  stored(view: KvView, { blocks, parent, blockSize }: KvStored): void {
    for (const { hash } of blocks) this.#set(view).add(hash);
    const what = blocks.map(({ hash, tokens }) => `${hash}:${Array.from(tokens).join(",")}`);
    const place = `behind ${parent ?? "nothing"} size ${String(blockSize)}`;
    this.#write(view, `stored ${what.join(" ")} ${place}`);
  }

  removed(view: KvView, hashes: readonly string[]): void {
    for (const hash of hashes) this.#set(view).delete(hash);
    this.#write(view, `removed ${hashes.join(" ")}`);
  }

  cleared(view: KvView): void {
    this.#set(view).clear();
    this.#write(view, "cleared");
  }

  #set({ generation, rank }: KvView): Set<string> {
    const key = `${String(generation)}/${String(rank)}`;
    const held = this.#held.get(key) ?? new Set();
    this.#held.set(key, held);
    return held;
  }

  #write({ generation, rank, model }: KvView, what: string): void {
    this.lines.push(`${String(generation)}/${String(rank)} ${model} ${what}`);
  }
}
