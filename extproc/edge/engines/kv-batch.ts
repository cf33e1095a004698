// What does one batch of an engine's KV events say? Reads the payload that vLLM's publisher sends, and
// SGLang's with it: `[timestamp, events, rank]`, each event a tagged record that holds what changed in the
// cache. Records come in two spellings, by the engine's version: positional arrays whose first element is
// the tag, or maps with the tag under `type`; both are read, also mixed, and fields of later versions are
// ignored. An event type that is unknown is an error, for it may say that blocks are gone. Engine hashes
// become texts: decimal for 64-bit integers (as unsigned), hex for byte strings. Every size has a limit;
// what is wrong is told without the content.

import { decodeMessage } from "./kv-msgpack.js";

/** Four times what a step with 128 k tokens publishes; decoding this much takes some 50 ms. */
export const MESSAGE_MAX_BYTES = 4 * 1024 * 1024;
/** An engine tells every evicted block in an event of its own, and some 10 k of them in a step at worst. */
export const BATCH_MAX_EVENTS = 65_536;
/** A prompt of 256 k tokens in blocks of 16. */
export const EVENT_MAX_BLOCKS = 16_384;
/** Hybrid models have blocks of some 1,000 tokens; common ones have 16 to 128. */
export const BLOCK_MAX_TOKENS = 4_096;
/** Engines use hashes of 8 to 32 bytes. */
export const HASH_MAX_BYTES = 64;

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

export type BatchProblem = "malformed" | "too_large";

export type BatchResult =
  | { readonly kind: "batch"; readonly events: readonly KvEvent[] }
  | { readonly kind: "problem"; readonly reason: BatchProblem; readonly detail: string };

type Fields = Readonly<Record<string, unknown>>;

/** Fields of an event in the order of its positional spelling, after the tag. */
const POSITIONS: Readonly<Record<string, readonly string[]>> = {
  BlockStored: [
    ...["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"],
    ...["lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"],
    ...["kv_cache_spec_sliding_window", "locality", "ownership"],
  ],
  BlockRemoved: ["block_hashes", "medium", "group_idx", "locality", "ownership"],
  AllBlocksCleared: [],
};

/** Kinds of attention whose cache keeps every block of a prompt until it is evicted. */
const KINDS_THAT_KEEP_ALL = ["full_attention", "mla_attention", "sink_full_attention"];

/** Ends the reading of a batch; never leaves this file. */
class Refused extends Error {
  readonly reason: BatchProblem;
  constructor(reason: BatchProblem, message: string) {
    super(message);
    this.reason = reason;
  }
}

export function readBatch(payload: Uint8Array): BatchResult {
  try {
    atMost("the message", payload.length, MESSAGE_MAX_BYTES, "bytes");
    const message = decodeMessage(payload);
    if (message.kind === "problem") throw malformed(`no MessagePack: ${message.detail}`);
    const events = eventsOf(message.value);
    atMost("the batch", events.length, BATCH_MAX_EVENTS, "events");
    return { kind: "batch", events: events.map(readEvent) };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return { kind: "problem", reason: error.reason, detail: error.message };
  }
}

function eventsOf(batch: unknown): readonly unknown[] {
  const events = Array.isArray(batch) ? (batch as unknown[])[1] : asFields(batch)?.["events"];
  if (!Array.isArray(events)) throw malformed("the batch has no list of events");
  return events as readonly unknown[];
}

function readEvent(raw: unknown): KvEvent {
  const { tag, fields } = taggedFields(raw);
  switch (tag) {
    case "BlockStored":
      return readStored(fields);
    case "BlockRemoved":
      return { kind: "removed", ...placeOf(fields), hashes: hashesOf(fields["block_hashes"]) };
    case "AllBlocksCleared":
      return { kind: "cleared" };
    default:
      throw malformed(`an event has the unknown type ${nameOf(tag)}`);
  }
}

function taggedFields(raw: unknown): { readonly tag: unknown; readonly fields: Fields } {
  if (!Array.isArray(raw)) {
    const fields = asFields(raw);
    if (fields === undefined) throw malformed("an event is neither a list nor a map");
    return { tag: fields["type"], fields };
  }
  const [tag, ...values] = raw as unknown[];
  const names = typeof tag === "string" && Object.hasOwn(POSITIONS, tag) ? POSITIONS[tag] : [];
  const fields = Object.fromEntries((names ?? []).map((name, index) => [name, values[index]]));
  return { tag, fields };
}

function readStored(fields: Fields): KvStored {
  const hashes = hashesOf(fields["block_hashes"]);
  const parent = fields["parent_block_hash"];
  const kind = optionalText(fields, "kv_cache_spec_kind");
  const event = {
    kind: "stored" as const,
    ...placeOf(fields),
    hashes,
    parent: isAbsent(parent) ? undefined : hashOf(parent),
    keepsAll: kind === undefined || KINDS_THAT_KEEP_ALL.includes(kind),
  };
  const plainBlocks = plainBlocksOf(fields, hashes.length);
  // Only blocks that can be used are checked further: others have sizes and tokens of their own kind.
  if (plainBlocks === 0 || !event.onGpu || !event.keepsAll) {
    return { ...event, plainBlocks: 0, tokens: new Uint32Array(0), blockSize: 0 };
  }
  const blockSize = wholeOf(fields, "block_size", 1);
  atMost("a block", blockSize, BLOCK_MAX_TOKENS, "tokens");
  const ids = fields["token_ids"];
  if (!Array.isArray(ids)) throw malformed("token_ids is no list");
  // Groups of a hybrid model name only the last blocks of what they computed; they do not keep all.
  if (ids.length !== hashes.length * blockSize) {
    const blocks = `${String(hashes.length)} blocks of ${String(blockSize)}`;
    throw malformed(`${String(ids.length)} token ids stand for ${blocks}`);
  }
  const tokens = tokensOf(ids as readonly unknown[], plainBlocks * blockSize);
  return { ...event, plainBlocks, tokens, blockSize };
}

/**
 * The first blocks whose hash covers nothing but tokens. An adapter, a cache salt, an image or a pair of
 * tokens in one place makes a block, and all behind it, those of another prompt than the tokens tell.
 */
function plainBlocksOf(fields: Fields, blocks: number): number {
  const keyed = ["lora_id", "lora_name", "cache_salt", "metadata"];
  if (keyed.some((name) => !isAbsent(fields[name]))) return 0;
  const ids = fields["token_ids"];
  if (Array.isArray(ids) && Array.isArray(ids[0])) return 0;
  const extra = fields["extra_keys"];
  if (isAbsent(extra)) return blocks;
  if (!Array.isArray(extra)) throw malformed("extra_keys is no list");
  const first = extra.findIndex(
    (keys) => !isAbsent(keys) && !(Array.isArray(keys) && keys.length === 0),
  );
  return first < 0 ? blocks : Math.min(first, blocks);
}

function placeOf(fields: Fields): KvPlace {
  const medium = optionalText(fields, "medium");
  const isOwn = isAbsent(fields["ownership"]) && optionalText(fields, "locality") !== "REMOTE";
  const group = isAbsent(fields["group_idx"]) ? undefined : wholeOf(fields, "group_idx", 0);
  return { onGpu: isOwn && (medium === undefined || medium.toUpperCase() === "GPU"), group };
}

function hashesOf(value: unknown): readonly string[] {
  if (!Array.isArray(value)) throw malformed("block_hashes is no list");
  atMost("an event", value.length, EVENT_MAX_BLOCKS, "blocks");
  return value.map(hashOf);
}

function hashOf(value: unknown): string {
  if (typeof value === "bigint") return BigInt.asUintN(64, value).toString();
  if (typeof value === "number" && Number.isSafeInteger(value)) {
    return value < 0 ? BigInt.asUintN(64, BigInt(value)).toString() : String(value);
  }
  if (!(value instanceof Uint8Array) || value.length === 0) {
    throw malformed("a block hash is neither an integer nor bytes");
  }
  atMost("a block hash", value.length, HASH_MAX_BYTES, "bytes");
  return Buffer.from(value.buffer, value.byteOffset, value.length).toString("hex");
}

function tokensOf(ids: readonly unknown[], count: number): Uint32Array {
  const tokens = new Uint32Array(count);
  for (let i = 0; i < count; i += 1) {
    const id = ids[i];
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id > 0xffff_ffff) {
      throw malformed("a token id is no whole number of 32 bits");
    }
    tokens[i] = id;
  }
  return tokens;
}

function wholeOf(fields: Fields, name: string, min: number): number {
  const value = fields[name];
  if (typeof value === "number" && Number.isInteger(value) && value >= min) return value;
  throw malformed(`${name} is no whole number of at least ${String(min)}`);
}

function optionalText(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  if (isAbsent(value)) return undefined;
  if (typeof value === "string") return value;
  throw malformed(`${name} is no text`);
}

function asFields(value: unknown): Fields | undefined {
  const isMap = typeof value === "object" && value !== null && !(value instanceof Uint8Array);
  return isMap ? (value as Fields) : undefined;
}

function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

function nameOf(tag: unknown): string {
  return typeof tag === "string" ? JSON.stringify(tag.slice(0, 40)) : `of kind ${typeof tag}`;
}

function atMost(what: string, size: number, limit: number, unit: string): void {
  if (size <= limit) return;
  const allowed = `at most ${String(limit)} are allowed`;
  throw new Refused("too_large", `${what} has ${String(size)} ${unit}; ${allowed}`);
}

function malformed(detail: string): Refused {
  return new Refused("malformed", detail);
}
