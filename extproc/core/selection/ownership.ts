// Who holds the longest known beginning of a prompt, among the workers that may be asked? What the
// engines publish comes first, for prompts that are tokens and models whose owners come from events:
// there any full block counts. Else the successes that Weir has seen count, when they cover more than
// `cache_threshold` of the prompt: a match of a common greeting is no reason to go anywhere.
//
// The longest match of all may be held only by workers that cannot be asked (unhealthy, or serving
// another partition). Who holds a prefix holds its beginning too, so halving the length finds the
// longest match among the others in a few lookups; in the common case there is one.

import type { PromptContent } from "../identity/prompt.js";
import type { ModelId } from "../model/ids.js";
import type { OwnershipSource, SelectionConfig } from "../model/selection-config.js";
import type { MonotonicMs } from "../model/time.js";
import type { BlockKeys, PrefixHasher } from "../prefixes/block-keys.js";
import type { CommittedIndex } from "../prefixes/committed-index.js";
import type { EventIndex, EventMatch } from "../prefixes/event-index.js";
import type { OwnerMatch } from "../prefixes/owner-match.js";
import type { Worker } from "../workers/worker.js";

export interface OwnershipOptions {
  readonly selection: SelectionConfig;
  readonly hasher: PrefixHasher;
  readonly committed: CommittedIndex;
  readonly events: EventIndex;
}

/**
 * A prompt as a waiting request keeps it: the keys of its blocks instead of its text. Its tokens are
 * kept too where the engines' events may have to be asked, whose block size can change meanwhile.
 */
export interface HashedPrompt {
  readonly model: ModelId;
  /** Its chain under Weir's own block size: what a success commits. */
  readonly keys: BlockKeys;
  /** Of the part that is looked at, and of one block: characters of a text, else tokens. */
  readonly length: number;
  readonly blockLength: number;
  readonly tokens: Uint32Array | undefined;
  /** Of the whole prompt, 1 or more. */
  readonly inputTokens: number;
  /** Prompts that came with it, itself included; undefined when they could not be counted. */
  readonly prompts: number | undefined;
}

/** A prompt as the indexes know prompts. */
export interface PromptPrefix extends HashedPrompt {
  /** What the engines' events say about it; undefined when they can say nothing. */
  readonly published: PublishedPrefix | undefined;
}

interface PublishedPrefix {
  readonly tokens: Uint32Array;
  readonly match: EventMatch;
}

/** Why nobody of the workers asked about counts as an owner. */
export type OwnershipMiss = "no_owner" | "no_usable_owner" | "short_match";

export interface Ownership {
  /** The prefix that protections and pending owners are bound to: the match, else the whole prompt. */
  readonly keys: BlockKeys;
  /** Its blocks, 1 or more. */
  readonly blocks: number;
  readonly matchedBlocks: number;
  /** What named the owners; undefined without owners. */
  readonly source: OwnershipSource | undefined;
  /** In the order of the workers asked about. */
  readonly owners: readonly Worker[];
  readonly miss: OwnershipMiss;
  /** When an owner's holding was last confirmed; undefined when events named it. */
  readonly lastSuccessAt: (owner: Worker) => MonotonicMs | undefined;
}

export class OwnershipLookup {
  readonly #options: OwnershipOptions;

  constructor(options: OwnershipOptions) {
    this.#options = options;
  }

  /** The keys of a prompt, to be made when it arrives. O(length of the part that is looked at). */
  hash(model: ModelId, ownership: OwnershipSource, prompt: PromptContent): HashedPrompt {
    const { hasher, selection } = this.#options;
    const { block_chars, block_size, max_prefix_blocks: maxBlocks } = selection;
    const { inputTokens, prompts } = prompt;
    if (prompt.kind === "text") {
      const keys = hasher.text(model, prompt.text, block_chars, maxBlocks);
      const length = Math.min(prompt.text.length, block_chars * maxBlocks);
      return {
        model,
        keys,
        length,
        blockLength: block_chars,
        tokens: undefined,
        inputTokens,
        prompts,
      };
    }
    const keys = hasher.tokens(model, prompt.tokens, block_size, maxBlocks);
    const length = Math.min(prompt.tokens.length, block_size * maxBlocks);
    const tokens = ownership === "events" ? prompt.tokens : undefined;
    return { model, keys, length, blockLength: block_size, tokens, inputTokens, prompts };
  }

  /** The prefix of a prompt; undefined when it has no full block. O(blocks). */
  read(prompt: HashedPrompt): PromptPrefix | undefined {
    const published = this.#published(prompt);
    const blocks = Math.max(prompt.keys.count, published?.match.keys.count ?? 0);
    return blocks > 0 ? prefixOf(prompt, published) : undefined;
  }

  /** Every chain under which something can be recorded about the prompt. */
  chains({ keys, published }: PromptPrefix): readonly BlockKeys[] {
    const own = published?.match.keys;
    return own === undefined || own === keys ? [keys] : [own, keys];
  }

  /** Who of `among` holds the longest match. */
  find(prefix: PromptPrefix, among: readonly Worker[], now: MonotonicMs): Ownership {
    const { committed, events, selection } = this.#options;
    const { model, keys, published } = prefix;
    if (published !== undefined) {
      const { match, tokens } = published;
      const held = longestHeld(match, among, (blocks) =>
        events.match(model, tokens.subarray(0, blocks * match.blockSize), match.blockSize),
      );
      if (held.owners.length > 0) return owned("events", match.keys, held);
    }
    const longest = committed.match(keys, now);
    const held = longestHeld(longest, among, (blocks) =>
      committed.match({ words: keys.words, count: blocks }, now),
    );
    const part = (held.match.blocks * prefix.blockLength) / prefix.length;
    if (held.owners.length > 0 && part > selection.cache_threshold) {
      return owned("committed", keys, held);
    }
    const known = longest.blocks > 0 || (published?.match.blocks ?? 0) > 0;
    const unusable = known ? "no_usable_owner" : "no_owner";
    return unowned(prefix, held.owners.length > 0 ? "short_match" : unusable);
  }

  #published({ model, tokens }: HashedPrompt): PublishedPrefix | undefined {
    const { events } = this.#options;
    if (tokens === undefined || !events.hasData(model)) return undefined;
    return { tokens, match: events.match(model, tokens) };
  }
}

function prefixOf(prompt: HashedPrompt, published: PublishedPrefix | undefined): PromptPrefix {
  const { model, keys, length, blockLength, tokens, inputTokens, prompts } = prompt;
  return { model, keys, length, blockLength, tokens, inputTokens, prompts, published };
}

interface Held {
  readonly match: OwnerMatch;
  readonly owners: readonly Worker[];
}

/** The longest beginning of a match that one of the workers holds. */
function longestHeld(
  longest: OwnerMatch,
  among: readonly Worker[],
  matchOf: (blocks: number) => OwnerMatch,
): Held {
  let held: Held = { match: longest, owners: holders(longest, among) };
  if (held.owners.length > 0 || among.length === 0) return held;
  let low = 0;
  let high = longest.blocks - 1;
  while (low < high) {
    const middle = low + Math.ceil((high - low) / 2);
    const match = matchOf(middle);
    const owners = holders(match, among);
    if (owners.length > 0) {
      held = { match, owners };
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return held;
}

function holders({ owners }: OwnerMatch, among: readonly Worker[]): readonly Worker[] {
  if (owners.length === 0) return [];
  const generations = new Set(owners.map(({ generation }) => generation));
  return among.filter((worker) => generations.has(worker.identity.generation));
}

function owned(source: OwnershipSource, keys: BlockKeys, { match, owners }: Held): Ownership {
  return {
    keys,
    blocks: match.blocks,
    matchedBlocks: match.blocks,
    source,
    owners,
    miss: "no_owner",
    lastSuccessAt: (owner) =>
      match.owners.find(({ generation }) => generation === owner.identity.generation)
        ?.lastSuccessAt,
  };
}

function unowned({ keys, published }: PromptPrefix, miss: OwnershipMiss): Ownership {
  const own = published?.match.keys;
  const whole = own !== undefined && own.count > 0 ? own : keys;
  return {
    keys: whole,
    blocks: whole.count,
    matchedBlocks: 0,
    source: undefined,
    owners: [],
    miss,
    lastSuccessAt: () => undefined,
  };
}
