// What vLLM puts on the wire, spelled out byte by byte: one batch of each event in both spellings, the
// positional one of older versions and the maps of newer ones (0.29). Every batch has the timestamp 1.5
// and rank 0. The two blocks stored have the engine hashes 0xdeadbeef12345678 and 7 and four tokens each.
import { encode } from "@msgpack/msgpack";

function bytes(...parts: readonly string[]): Buffer {
  return Buffer.from(parts.join("").replace(/\s+/g, ""), "hex");
}

/** `[1.5, [` and what stands after the one event: `], 0]`. */
const HEAD = "93 cb 3ff8000000000000 91";
const TAIL = "00";

const BLOCK_STORED = "ab 426c6f636b53746f726564";
const BLOCK_REMOVED = "ac 426c6f636b52656d6f766564";
const ALL_BLOCKS_CLEARED = "b0 416c6c426c6f636b73436c6561726564";
const GPU = "a3 475055";
const NIL = "c0";
const HASHES = "92 cf deadbeef12345678 07";
const TOKENS = "98 01 02 03 cd012c 05 06 07 ce00011170";

export const FIRST_HASH = "16045690981402826360";
export const SECOND_HASH = "7";
export const FIRST_TOKENS = [1, 2, 3, 300];
export const SECOND_TOKENS = [5, 6, 7, 70_000];

export const POSITIONAL = {
  stored: bytes(HEAD, "98", BLOCK_STORED, HASHES, NIL, TOKENS, "04", NIL, GPU, NIL, TAIL),
  /** As the first versions wrote it: without medium, LoRA name and rank. */
  storedAtFirst: bytes(
    ...["92 cb 3ff8000000000000 91"],
    ...["96", BLOCK_STORED, HASHES, NIL, TOKENS, "04", NIL],
  ),
  removed: bytes(HEAD, "93", BLOCK_REMOVED, "91 07", GPU, TAIL),
  cleared: bytes(HEAD, "91", ALL_BLOCKS_CLEARED, TAIL),
};

const KEY = {
  type: "a4 74797065",
  blockHashes: "ac 626c6f636b5f686173686573",
  parentBlockHash: "b1 706172656e745f626c6f636b5f68617368",
  tokenIds: "a9 746f6b656e5f696473",
  blockSize: "aa 626c6f636b5f73697a65",
  loraId: "a7 6c6f72615f6964",
  medium: "a6 6d656469756d",
  loraName: "a9 6c6f72615f6e616d65",
  extraKeys: "aa 65787472615f6b657973",
  groupIdx: "a9 67726f75705f696478",
  kind: "b2 6b765f63616368655f737065635f6b696e64",
};
const FULL_ATTENTION = "ae 66756c6c5f617474656e74696f6e";

export const MAPS = {
  stored: bytes(
    ...[HEAD, "8b", KEY.type, BLOCK_STORED, KEY.blockHashes, HASHES, KEY.parentBlockHash, NIL],
    ...[KEY.tokenIds, TOKENS, KEY.blockSize, "04", KEY.loraId, NIL, KEY.medium, GPU],
    ...[KEY.loraName, NIL, KEY.extraKeys, "92 c0 c0", KEY.groupIdx, "00", KEY.kind, FULL_ATTENTION],
    TAIL,
  ),
  removed: bytes(
    ...[HEAD, "84", KEY.type, BLOCK_REMOVED, KEY.blockHashes, "91 07", KEY.medium, GPU],
    ...[KEY.groupIdx, "00"],
    TAIL,
  ),
  cleared: bytes(HEAD, "81", KEY.type, ALL_BLOCKS_CLEARED, TAIL),
};

/** A stored event as newer versions spell it, with fields changed or added. */
export function storedEvent(fields: Readonly<Record<string, unknown>> = {}): unknown {
  return {
    type: "BlockStored",
    block_hashes: [11],
    parent_block_hash: null,
    token_ids: [1, 2, 3, 4],
    block_size: 4,
    lora_id: null,
    medium: "GPU",
    lora_name: null,
    ...fields,
  };
}

export function removedEvent(
  hashes: readonly unknown[],
  fields: Readonly<Record<string, unknown>> = {},
): unknown {
  return { type: "BlockRemoved", block_hashes: hashes, medium: "GPU", ...fields };
}

export function batchOf(...events: readonly unknown[]): Buffer {
  return Buffer.from(encode([1.5, events, 0], { useBigInt64: true }));
}

/** A batch that stores one block of four tokens, all of them `hash`, at the start of a prompt. */
export function storing(hash: number): Buffer {
  return batchOf(
    storedEvent({ block_hashes: [hash], token_ids: [hash, hash, hash, hash], group_idx: 0 }),
  );
}
