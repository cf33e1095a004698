// Which fields has one record of a batch? Reads the two spellings of an event, positional arrays and maps,
// into the same form, and leaves the meaning to the reader of the batch (kv-batch.ts). Only what can be
// used later is kept: block hashes as texts, token ids as numbers, and single values. Every size has a
// limit, which ends the reading.

import { NO_SINGLE_VALUE, type Integers, type MessageCursor, type Way } from "./kv-msgpack.js";

/** A prompt of 256 k tokens in blocks of 16. */
export const EVENT_MAX_BLOCKS = 16_384;
/** Engines use hashes of 8 to 32 bytes. */
export const HASH_MAX_BYTES = 64;
/** Hashes between two stops of the reading. */
const HASHES_PER_STEP = 256;

/** What was wrong with a batch. */
export type BatchProblem = "malformed" | "too_large";

/** Single values by the names of their fields; nil is as good as absent. */
export type Fields = ReadonlyMap<string, unknown>;

/** An event as it stands in the batch; single values are kept by their field's name unless nil. */
export interface RawEvent {
  tag: unknown;
  hashes: readonly string[] | undefined;
  tokens: Integers | undefined;
  /** Blocks before the first one with a key of its own; NO_SINGLE_VALUE = the field is no list. */
  unkeyed: number | typeof NO_SINGLE_VALUE;
  readonly fields: Map<string, unknown>;
}

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

/** Fields with single values; all others are passed over. */
const SINGLE_FIELDS: ReadonlySet<string> = new Set([
  ...["parent_block_hash", "block_size", "lora_id", "lora_name", "cache_salt", "metadata"],
  ...["medium", "group_idx", "kv_cache_spec_kind", "locality", "ownership"],
]);

/** Ends the reading of a batch; readBatch tells what it says. */
export class Refused extends Error {
  readonly reason: BatchProblem;
  constructor(reason: BatchProblem, message: string) {
    super(message);
    this.reason = reason;
  }
}

export function* readRaw(cursor: MessageCursor): Way<RawEvent> {
  const raw: RawEvent = {
    tag: undefined,
    hashes: undefined,
    tokens: undefined,
    unkeyed: Number.POSITIVE_INFINITY,
    fields: new Map(),
  };
  const elements = cursor.array();
  if (elements !== undefined) {
    if (elements > 0) raw.tag = yield* cursor.single();
    const names = typeof raw.tag === "string" ? positionsOf(raw.tag) : undefined;
    if (names === undefined) throw malformed(`an event has the unknown type ${nameOf(raw.tag)}`);
    for (let index = 1; index < elements; index += 1) {
      yield* readField(cursor, names[index - 1], raw);
    }
    return raw;
  }
  const pairs = cursor.map();
  if (pairs === undefined) throw malformed("an event is neither a list nor a map");
  for (let index = 0; index < pairs; index += 1) {
    const name = yield* cursor.single();
    if (name === "type") raw.tag = yield* cursor.single();
    else yield* readField(cursor, name, raw);
  }
  return raw;
}

function positionsOf(tag: string): readonly string[] | undefined {
  return Object.hasOwn(POSITIONS, tag) ? POSITIONS[tag] : undefined;
}

function* readField(cursor: MessageCursor, name: unknown, raw: RawEvent): Way<void> {
  if (name === "block_hashes") raw.hashes = yield* readHashes(cursor);
  else if (name === "token_ids") raw.tokens = yield* cursor.integers();
  else if (name === "extra_keys") raw.unkeyed = yield* readUnkeyed(cursor);
  else if (typeof name === "string" && SINGLE_FIELDS.has(name)) {
    const value = yield* cursor.single();
    if (value !== null) raw.fields.set(name, value);
  } else yield* cursor.skip();
}

function* readHashes(cursor: MessageCursor): Way<readonly string[]> {
  const count = cursor.array();
  if (count === undefined) throw malformed("block_hashes is no list");
  atMost("an event", count, EVENT_MAX_BLOCKS, "blocks");
  const hashes: string[] = [];
  for (let index = 0; index < count; index += 1) {
    hashes.push(hashOf(yield* cursor.single()));
    if (index % HASHES_PER_STEP === HASHES_PER_STEP - 1) yield;
  }
  return hashes;
}

/** Elements of `extra_keys` before the first that is neither nil nor an empty list. */
function* readUnkeyed(cursor: MessageCursor): Way<RawEvent["unkeyed"]> {
  const count = cursor.array();
  if (count === undefined) {
    const isNil = (yield* cursor.single()) === null;
    return isNil ? Number.POSITIVE_INFINITY : NO_SINGLE_VALUE;
  }
  let unkeyed = Number.POSITIVE_INFINITY;
  for (let index = 0; index < count; index += 1) {
    const keys = cursor.array();
    const isPlain = keys === undefined ? (yield* cursor.single()) === null : keys === 0;
    if (!isPlain) unkeyed = Math.min(unkeyed, index);
    for (let key = 0; key < (keys ?? 0); key += 1) yield* cursor.skip();
    if (index % HASHES_PER_STEP === HASHES_PER_STEP - 1) yield;
  }
  return unkeyed;
}

export function hashOf(value: unknown): string {
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

export function nameOf(tag: unknown): string {
  return typeof tag === "string" ? JSON.stringify(tag.slice(0, 40)) : `of kind ${typeof tag}`;
}

export function atMost(what: string, size: number, limit: number, unit: string): void {
  if (size <= limit) return;
  const allowed = `at most ${String(limit)} are allowed`;
  throw new Refused("too_large", `${what} has ${String(size)} ${unit}; ${allowed}`);
}

export function malformed(detail: string): Refused {
  return new Refused("malformed", detail);
}
