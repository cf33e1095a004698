// What does one batch of an engine's KV events say? Reads the payload that vLLM's publisher sends, and
// SGLang's with it: `[timestamp, events, rank]`, each event a tagged record that holds what changed in the
// cache. Records come in two spellings, by the engine's version: positional arrays whose first element is
// the tag, or maps with the tag under `type`; both are read, also mixed, and fields of later versions are
// ignored. An event type that is unknown is an error, for it may say that blocks are gone. Engine hashes
// become texts: decimal for 64-bit integers (as unsigned), hex for byte strings. Every size has a limit;
// what is wrong is told without the content. Events come one by one as they are read, so that reading can
// pause anywhere; of a batch with a fault, what came before it has been given out already.

import { MessageCursor, MessageFault, NO_SINGLE_VALUE } from "./kv-msgpack.js";
import {
  atMost,
  hashOf,
  malformed,
  nameOf,
  readRaw,
  Refused,
  type BatchProblem,
  type Fields,
  type RawEvent,
} from "./kv-raw-event.js";

/** Six times what a step with 128 k tokens publishes. */
export const MESSAGE_MAX_BYTES = 4 * 1024 * 1024;
/** An engine tells every evicted block in an event of its own, and some 10 k of them in a step at worst. */
export const BATCH_MAX_EVENTS = 65_536;
/**
 * Blocks stored and removed by one batch: a million tokens in blocks of 16. A step stores some 8 k and
 * evicts some 10 k at worst; each costs a few microseconds.
 */
export const BATCH_MAX_BLOCKS = 65_536;
/** Hybrid models have blocks of some 1,000 tokens; common ones have 16 to 128. */
export const BLOCK_MAX_TOKENS = 4_096;
/** Where the blocks of an event lie. */
export interface KvPlace {
  /** The engine's own GPU memory; false = another tier, or storage shared with others. */
  readonly onGpu: boolean;
  /** Group of layers with a cache of its own; undefined = the engine has one, or does not tell. */
  readonly group: number | undefined;
}

export interface KvStored extends KvPlace {
  readonly kind: "stored";
  readonly hashes: readonly string[];
  readonly parent: string | undefined;
  /** How many of the first blocks depend on nothing but tokens; read only for those. */
  readonly plainBlocks: number;
  /** Tokens of the plain blocks, one after the other. */
  readonly tokens: Uint32Array;
  readonly blockSize: number;
  /** False = the group keeps only part of a prompt, such as a sliding window. */
  readonly keepsAll: boolean;
}

export interface KvRemoved extends KvPlace {
  readonly kind: "removed";
  readonly hashes: readonly string[];
}

export type KvEvent = KvStored | KvRemoved | { readonly kind: "cleared" };

export interface BatchFault {
  readonly reason: BatchProblem;
  readonly detail: string;
}

/** Kinds of attention whose cache keeps every block of a prompt until it is evicted. */
const KINDS_THAT_KEEP_ALL = ["full_attention", "mla_attention", "sink_full_attention"];

/** Fields that make a block one of another prompt than its tokens tell. */
const KEYED_FIELDS = ["lora_id", "lora_name", "cache_salt", "metadata"];

/**
 * Reads a batch: gives out its events in order, and undefined where it may pause. Ends with what is wrong;
 * undefined when all was read.
 */
export function* readBatch(
  payload: Uint8Array,
): Generator<KvEvent | undefined, BatchFault | undefined, void> {
  try {
    atMost("the message", payload.length, MESSAGE_MAX_BYTES, "bytes");
    const cursor = new MessageCursor(payload);
    yield* readEvents(cursor);
    cursor.end();
    return undefined;
  } catch (error) {
    if (error instanceof Refused) return { reason: error.reason, detail: error.message };
    if (!(error instanceof MessageFault)) throw error;
    return { reason: "malformed", detail: `no MessagePack: ${error.message}` };
  }
}

/** Finds the list of events: the second element of an array, or `events` of a map. */
function* readEvents(cursor: MessageCursor): Generator<KvEvent | undefined, void, void> {
  const elements = cursor.array();
  const pairs = elements === undefined ? cursor.map() : undefined;
  if (elements === undefined && pairs === undefined) yield* cursor.skip();
  let isFound = false;
  for (let index = 0; index < (elements ?? pairs ?? 0); index += 1) {
    const isList = pairs === undefined ? index === 1 : (yield* cursor.single()) === "events";
    if (isList) yield* readList(cursor);
    else yield* cursor.skip();
    isFound ||= isList;
  }
  if (!isFound) throw malformed("the batch has no list of events");
}

function* readList(cursor: MessageCursor): Generator<KvEvent | undefined, void, void> {
  const count = cursor.array();
  if (count === undefined) throw malformed("the batch has no list of events");
  atMost("the batch", count, BATCH_MAX_EVENTS, "events");
  let blocks = 0;
  for (let index = 0; index < count; index += 1) {
    const raw = yield* readRaw(cursor);
    blocks += raw.hashes?.length ?? 0;
    atMost("the batch", blocks, BATCH_MAX_BLOCKS, "blocks");
    yield eventOf(raw);
  }
}

function eventOf(raw: RawEvent): KvEvent {
  switch (raw.tag) {
    case "BlockStored":
      return storedOf(raw);
    case "BlockRemoved":
      return { kind: "removed", ...placeOf(raw.fields), hashes: hashesOf(raw) };
    case "AllBlocksCleared":
      return { kind: "cleared" };
    default:
      throw malformed(`an event has the unknown type ${nameOf(raw.tag)}`);
  }
}

function storedOf(raw: RawEvent): KvStored {
  const { fields, tokens: ids } = raw;
  const hashes = hashesOf(raw);
  const parent = fields.get("parent_block_hash");
  const kind = optionalText(fields, "kv_cache_spec_kind");
  const event = {
    kind: "stored" as const,
    ...placeOf(fields),
    hashes,
    parent: parent === undefined ? undefined : hashOf(parent),
    keepsAll: kind === undefined || KINDS_THAT_KEEP_ALL.includes(kind),
  };
  const plainBlocks = plainBlocksOf(raw, hashes.length);
  // Only blocks that can be used are checked further: others have sizes and tokens of their own kind.
  if (plainBlocks === 0 || !event.onGpu || !event.keepsAll) {
    return { ...event, plainBlocks: 0, tokens: new Uint32Array(0), blockSize: 0 };
  }
  const blockSize = wholeOf(fields, "block_size", 1);
  atMost("a block", blockSize, BLOCK_MAX_TOKENS, "tokens");
  if (ids === undefined) throw malformed("token_ids is no list");
  // Groups of a hybrid model name only the last blocks of what they computed; they do not keep all.
  if (ids.values.length !== hashes.length * blockSize) {
    const blocks = `${String(hashes.length)} blocks of ${String(blockSize)}`;
    throw malformed(`${String(ids.values.length)} token ids stand for ${blocks}`);
  }
  if (ids.firstOther < plainBlocks * blockSize) {
    throw malformed("a token id is no whole number of 32 bits");
  }
  return {
    ...event,
    plainBlocks,
    tokens: ids.values.subarray(0, plainBlocks * blockSize),
    blockSize,
  };
}

/**
 * The first blocks whose hash covers nothing but tokens. An adapter, a cache salt, an image or a pair of
 * tokens in one place makes a block, and all behind it, those of another prompt than the tokens tell.
 */
function plainBlocksOf({ fields, tokens, unkeyed }: RawEvent, blocks: number): number {
  if (KEYED_FIELDS.some((name) => fields.has(name)) || tokens?.isNested === true) return 0;
  if (unkeyed === NO_SINGLE_VALUE) throw malformed("extra_keys is no list");
  return Math.min(unkeyed, blocks);
}

function placeOf(fields: Fields): KvPlace {
  const medium = optionalText(fields, "medium");
  const isOwn = !fields.has("ownership") && optionalText(fields, "locality") !== "REMOTE";
  const group = fields.has("group_idx") ? wholeOf(fields, "group_idx", 0) : undefined;
  return { onGpu: isOwn && (medium === undefined || medium.toUpperCase() === "GPU"), group };
}

function hashesOf({ hashes }: RawEvent): readonly string[] {
  if (hashes === undefined) throw malformed("block_hashes is no list");
  return hashes;
}

function wholeOf(fields: Fields, name: string, min: number): number {
  const value = fields.get(name);
  if (typeof value === "number" && Number.isInteger(value) && value >= min) return value;
  throw malformed(`${name} is no whole number of at least ${String(min)}`);
}

function optionalText(fields: Fields, name: string): string | undefined {
  const value = fields.get(name);
  if (value === undefined || typeof value === "string") return value;
  throw malformed(`${name} is no text`);
}
