// Which of an engine's events concern the prompts that Weir can match? A prompt is matched by its tokens
// alone, so exactness goes before coverage: blocks of an adapter, with a cache salt or behind an image are
// not those of a plain prompt and are kept from the index, which for its part drops every block that
// follows one it does not know; so are blocks outside the GPU. Of an engine with several cache groups the
// first one that keeps whole prompts speaks for all. Engines may hold one block in several copies, each
// told when it is stored and when it is evicted; a block is gone when its last copy is. State: the copies
// of every block of one feed's view, by engine hash, as many as the engine's cache has blocks.

import type { EventIndex, KvView } from "../../core/prefixes/event-index.js";
import type { KvEvent, KvPlace, KvRemoved, KvStored } from "./kv-batch.js";

/** Blocks that are passed on at once, and their tokens: a part of a millisecond. */
const PIECE_MAX_BLOCKS = 128;
const PIECE_MAX_TOKENS = 4_096;

/** 16 million tokens in blocks of 16, above any engine's cache; some 100 MB in this map at worst. */
const VIEW_MAX_BLOCKS = 1_048_576;

export type KvSink = Pick<EventIndex, "stored" | "removed" | "cleared">;

export class KvFeedView {
  readonly #view: KvView;
  readonly #sink: KvSink;
  readonly #maxBlocks: number;
  /** Copies of each plain block, by hash; 1 or more. */
  readonly #copies = new Map<string, number>();
  /** The cache group that speaks for the engine; undefined until it has stored a block. */
  #group: number | undefined;

  constructor(view: KvView, sink: KvSink, maxBlocks: number = VIEW_MAX_BLOCKS) {
    this.#view = view;
    this.#sink = sink;
    this.#maxBlocks = maxBlocks;
  }

  /**
   * Takes one event, in pieces between which the caller may do something else, or leave it at that. False
   * when the view holds more blocks than are followed, and was emptied.
   */
  *apply(event: KvEvent): Generator<undefined, boolean, void> {
    switch (event.kind) {
      case "stored":
        if (this.#concerns(event)) yield* this.#stored(event);
        break;
      case "removed":
        if (event.onGpu && this.#isGroup(event)) yield* this.#removed(event);
        break;
      case "cleared":
        this.clear();
        break;
    }
    if (this.#copies.size <= this.#maxBlocks) return true;
    this.clear();
    return false;
  }

  /** Nothing is known of the engine's cache any more. */
  clear(): void {
    this.#copies.clear();
    this.#group = undefined;
    this.#sink.cleared(this.#view);
  }

  #concerns(event: KvStored): boolean {
    if (!event.onGpu || !event.keepsAll) return false;
    this.#group ??= event.group ?? 0;
    return this.#isGroup(event);
  }

  #isGroup({ group }: KvPlace): boolean {
    return group === undefined || this.#group === undefined || group === this.#group;
  }

  *#stored(event: KvStored): Generator<undefined, void, void> {
    const { hashes, plainBlocks, parent, tokens, blockSize } = event;
    const piece = Math.max(1, Math.min(PIECE_MAX_BLOCKS, Math.floor(PIECE_MAX_TOKENS / blockSize)));
    for (let from = 0; from < plainBlocks; from += piece) {
      const blocks = hashes.slice(from, Math.min(from + piece, plainBlocks)).map((hash, index) => {
        this.#copies.set(hash, (this.#copies.get(hash) ?? 0) + 1);
        const at = (from + index) * blockSize;
        return { hash, tokens: tokens.subarray(at, at + blockSize) };
      });
      const before = from === 0 ? parent : hashes[from - 1];
      this.#sink.stored(this.#view, { blocks, parent: before, blockSize });
      yield;
    }
  }

  *#removed({ hashes }: KvRemoved): Generator<undefined, void, void> {
    for (let from = 0; from < hashes.length; from += PIECE_MAX_BLOCKS) {
      const gone: string[] = [];
      for (const hash of hashes.slice(from, from + PIECE_MAX_BLOCKS)) {
        const copies = this.#copies.get(hash) ?? 0;
        if (copies > 1) this.#copies.set(hash, copies - 1);
        else if (this.#copies.delete(hash)) gone.push(hash);
      }
      if (gone.length > 0) this.#sink.removed(this.#view, gone);
      yield;
    }
  }
}
