// What does this worker publish about its cache? The bytes of vLLM's KV events as version 0.29 writes
// them: `[timestamp, events, rank]` in MessagePack, each event a map with its tag under `type`. They are
// written here by hand, so that a reader is never tested against its own library. Blocks go by the first
// 64 bits of their key. Token ids stand for the text: four characters are one token, and a text that was
// made from token ids (four base-36 digits each) gives those very ids back.
import type { PromptBlock } from "./kv-cache.js";

/** Ids below are four base-36 digits; ids of other texts lie above, below 2^31. */
const DIGIT_IDS = 36 ** 4;
const HASHED_IDS = 2 ** 31 - DIGIT_IDS;

/** Token ids of a text whose length is a multiple of four. */
export function tokenIdsOf(text: string): number[] {
  const ids: number[] = [];
  for (let at = 0; at < text.length; at += 4) ids.push(tokenIdOf(text.slice(at, at + 4)));
  return ids;
}

function tokenIdOf(piece: string): number {
  if (/^[0-9a-z]{4}$/.test(piece)) return Number.parseInt(piece, 36);
  let hash = 0x811c9dc5; // FNV-1a over the four UTF-16 units
  for (let i = 0; i < piece.length; i += 1) {
    hash = Math.imul(hash ^ piece.charCodeAt(i), 0x01000193) >>> 0;
  }
  return DIGIT_IDS + (hash % HASHED_IDS);
}

/** The 64 bits that a block goes by. */
function hashOf(key: string): bigint {
  return Buffer.from(key, "base64").readBigUInt64BE(0);
}

/** One event for each run of blocks that follow each other. */
export function storedEvents(blocks: readonly PromptBlock[], blockTokens: number): Buffer[] {
  const runs: PromptBlock[][] = [];
  for (const block of blocks) {
    const run = runs.at(-1);
    const isNext = run !== undefined && block.parent !== undefined;
    if (isNext && run.at(-1)?.key === block.parent) run.push(block);
    else runs.push([block]);
  }
  return runs.map((run) => {
    const parent = run[0]?.parent;
    return map([
      ["type", text("BlockStored")],
      ["block_hashes", array(run.map(({ key }) => uint64(hashOf(key))))],
      ["parent_block_hash", parent === undefined ? NIL : uint64(hashOf(parent))],
      ["token_ids", array(run.flatMap((block) => tokenIdsOf(block.text).map(whole)))],
      ["block_size", whole(blockTokens)],
      ["lora_id", NIL],
      ["medium", text("GPU")],
      ["lora_name", NIL],
      ["extra_keys", array(run.map(() => NIL))],
      ["group_idx", whole(0)],
      ["kv_cache_spec_kind", text("full_attention")],
    ]);
  });
}

/** An engine tells every evicted block in an event of its own. */
export function removedEvents(keys: readonly string[]): Buffer[] {
  return keys.map((key) =>
    map([
      ["type", text("BlockRemoved")],
      ["block_hashes", array([uint64(hashOf(key))])],
      ["medium", text("GPU")],
      ["group_idx", whole(0)],
    ]),
  );
}

export function clearedEvent(): Buffer {
  return map([["type", text("AllBlocksCleared")]]);
}

/** A batch of rank 0. */
export function batch(epochSeconds: number, events: readonly Buffer[]): Buffer {
  return array([float64(epochSeconds), array(events), whole(0)]);
}

const NIL = Buffer.from([0xc0]);

function uint64(value: bigint): Buffer {
  const bytes = Buffer.alloc(9, 0xcf);
  bytes.writeBigUInt64BE(value, 1);
  return bytes;
}

/** A whole number from 0 to 2^32 - 1, as short as it can be written. */
function whole(value: number): Buffer {
  if (value < 0x80) return Buffer.from([value]);
  if (value < 0x100) return Buffer.from([0xcc, value]);
  const bytes = Buffer.alloc(value < 0x1_0000 ? 3 : 5);
  bytes[0] = value < 0x1_0000 ? 0xcd : 0xce;
  bytes.writeUIntBE(value, 1, bytes.length - 1);
  return bytes;
}

function float64(value: number): Buffer {
  const bytes = Buffer.alloc(9, 0xcb);
  bytes.writeDoubleBE(value, 1);
  return bytes;
}

/** A text of at most 31 bytes. */
function text(value: string): Buffer {
  return Buffer.concat([Buffer.from([0xa0 | Buffer.byteLength(value)]), Buffer.from(value)]);
}

function array(items: readonly Buffer[]): Buffer {
  const head = Buffer.from([0xdd, 0, 0, 0, 0]);
  head.writeUInt32BE(items.length, 1);
  return Buffer.concat([items.length < 16 ? Buffer.from([0x90 | items.length]) : head, ...items]);
}

/** A map of at most 15 fields. */
function map(fields: readonly (readonly [name: string, value: Buffer])[]): Buffer {
  const parts = fields.flatMap(([name, value]) => [text(name), value]);
  return Buffer.concat([Buffer.from([0x80 | fields.length]), ...parts]);
}
