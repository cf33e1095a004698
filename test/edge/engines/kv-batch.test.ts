// Goal: what vLLM documents is read exactly, and what it does not say is never taken for something else.
// Method: its bytes by hand; single fields changed; every limit reached and passed by one.
import { expect } from "chai";
import fc from "fast-check";
import {
  BATCH_MAX_BLOCKS,
  BATCH_MAX_EVENTS,
  BLOCK_MAX_TOKENS,
  MESSAGE_MAX_BYTES,
  type KvEvent,
  type KvRemoved,
  type KvStored,
  readBatch,
} from "../../../extproc/edge/engines/kv-batch.js";
import { EVENT_MAX_BLOCKS, HASH_MAX_BYTES } from "../../../extproc/edge/engines/kv-raw-event.js";
import { readWhole } from "./kv-batch-reading.js";
import {
  batchOf,
  FIRST_HASH,
  FIRST_TOKENS,
  MAPS,
  POSITIONAL,
  removedEvent,
  SECOND_HASH,
  SECOND_TOKENS,
  storedEvent,
} from "./kv-events-bytes.js";

function eventsOf(payload: Uint8Array): readonly KvEvent[] {
  const result = readWhole(payload);
  if (result.kind === "problem") throw new Error(`${result.reason}: ${result.detail}`);
  return result.events;
}

function problemOf(payload: Uint8Array): string {
  const result = readWhole(payload);
  return result.kind === "problem" ? `${result.reason}: ${result.detail}` : "a batch";
}

function storedOf(fields: Readonly<Record<string, unknown>> = {}): KvStored {
  return eventsOf(batchOf(storedEvent(fields)))[0] as KvStored;
}

const removedOf = (fields: Readonly<Record<string, unknown>>): KvRemoved =>
  eventsOf(batchOf(removedEvent([1], fields)))[0] as KvRemoved;

describe("readBatch", () => {
  const stored = {
    kind: "stored",
    hashes: [FIRST_HASH, SECOND_HASH],
    parent: undefined,
    onGpu: true,
    keepsAll: true,
    plainBlocks: 2,
    tokens: Uint32Array.from([...FIRST_TOKENS, ...SECOND_TOKENS]),
    blockSize: 4,
  };

  it("reads the three events as positional arrays, byte for byte", () => {
    const group = undefined;
    expect(eventsOf(POSITIONAL.stored)).to.deep.equal([{ ...stored, group }]);
    expect(eventsOf(POSITIONAL.storedAtFirst)).to.deep.equal([{ ...stored, group }]);
    expect(eventsOf(POSITIONAL.removed)).to.deep.equal([
      { kind: "removed", hashes: ["7"], onGpu: true, group },
    ]);
    expect(eventsOf(POSITIONAL.cleared)).to.deep.equal([{ kind: "cleared" }]);
  });

  it("reads the three events as maps, byte for byte", () => {
    const group = 0;
    expect(eventsOf(MAPS.stored)).to.deep.equal([{ ...stored, group }]);
    expect(eventsOf(MAPS.removed)).to.deep.equal([
      { kind: "removed", hashes: ["7"], onGpu: true, group },
    ]);
    expect(eventsOf(MAPS.cleared)).to.deep.equal([{ kind: "cleared" }]);
  });

  it("keeps the order of a batch's events, in whichever spelling each is", () => {
    const batch = batchOf(["AllBlocksCleared"], storedEvent(), ["BlockRemoved", [11], "GPU"]);
    expect(eventsOf(batch).map(({ kind }) => kind)).to.deep.equal(["cleared", "stored", "removed"]);
  });

  it("writes byte hashes as hex and signed integers as the unsigned ones of the same bits", () => {
    const hashes = [Uint8Array.from([0, 255, 16]), -1, -2n, 2n ** 64n - 1n];
    const { hashes: read, parent } = storedOf({
      block_hashes: hashes,
      parent_block_hash: Uint8Array.from([171]),
      token_ids: Array.from({ length: 16 }, (_, i) => i),
    });
    expect(read).to.deep.equal([
      "00ff10",
      "18446744073709551615",
      "18446744073709551614",
      "18446744073709551615",
    ]);
    expect(parent).to.equal("ab");
  });

  for (const [title, fields] of [
    ["an adapter's id", { lora_id: 0 }],
    ["an adapter's name", { lora_name: "adapter" }],
    ["a cache salt", { cache_salt: "salt" }],
    ["a key on its first block", { extra_keys: [["image", 0]] }],
    ["pairs of tokens", { token_ids: [[1, 2]] }],
    ["a sliding window", { kv_cache_spec_kind: "sliding_window", token_ids: [1, 2, 3, 4, 5, 6] }],
    [
      "another medium, with neither tokens nor size",
      { medium: "CPU", token_ids: [], block_size: 0 },
    ],
    ["another owner", { ownership: "tier" }],
    ["storage elsewhere", { locality: "REMOTE" }],
  ] as const) {
    it(`takes no plain block from an event with ${title}`, () => {
      expect(storedOf(fields).plainBlocks).to.equal(0);
    });
  }

  it("takes the blocks before the first one with a key of its own", () => {
    const event = storedOf({
      block_hashes: [1, 2, 3],
      token_ids: [1, 2, 3, 4, 5, 6],
      block_size: 2,
      extra_keys: [null, [], ["image"]],
    });
    expect(event.plainBlocks).to.equal(2);
    expect([...event.tokens]).to.deep.equal([1, 2, 3, 4]);
  });

  it("tells a medium: none and GPU are the GPU, everything else is not", () => {
    expect(removedOf({ medium: null }).onGpu).to.equal(true);
    expect(removedOf({ medium: "gpu" }).onGpu).to.equal(true);
    expect(removedOf({ medium: "STORAGE" }).onGpu).to.equal(false);
    expect(removedOf({ medium: "" }).onGpu).to.equal(false);
  });

  it("knows the kinds of attention that keep whole prompts", () => {
    for (const kind of ["full_attention", "mla_attention", "sink_full_attention"]) {
      expect(storedOf({ kv_cache_spec_kind: kind }).keepsAll).to.equal(true, kind);
    }
    for (const kind of ["sliding_window", "mamba", "unknown"]) {
      expect(storedOf({ kv_cache_spec_kind: kind }).keepsAll).to.equal(false, kind);
    }
  });

  for (const [title, payload, problem] of [
    ["rubbish", Buffer.from("c1", "hex"), "no MessagePack: no value begins at byte 0"],
    ["a number", Buffer.from("01", "hex"), "the batch has no list of events"],
    [
      "a second message behind the batch",
      Buffer.concat([batchOf(), Buffer.of(1)]),
      "no MessagePack: it goes on after its end at byte 12",
    ],
    [
      "four billion tokens claimed by a few bytes",
      Buffer.from("92 00 91 81 a9 746f6b656e5f696473 dd ffffffff".replace(/ /g, ""), "hex"),
      "no MessagePack: it ends early, after 19 bytes",
    ],
    ["an event that is a number", batchOf(1), "an event is neither a list nor a map"],
    ["an unknown event", batchOf(["BlockMoved", 1]), 'an event has the unknown type "BlockMoved"'],
    ["an event without a type", batchOf({}), "an event has the unknown type of kind undefined"],
    [
      "fewer tokens than the blocks hold",
      batchOf(storedEvent({ token_ids: [1, 2, 3] })),
      "3 token ids stand for 1 blocks of 4",
    ],
    [
      "a token that is no 32-bit integer",
      batchOf(storedEvent({ token_ids: [1, 2, 3, 2 ** 32] })),
      "a token id is no whole number of 32 bits",
    ],
    [
      "a negative token",
      batchOf(storedEvent({ token_ids: [1, 2, 3, -1] })),
      "a token id is no whole number of 32 bits",
    ],
    [
      "blocks of no tokens",
      batchOf(storedEvent({ block_size: 0 })),
      "block_size is no whole number of at least 1",
    ],
    ["hashes that are no list", batchOf(["BlockRemoved", 7]), "block_hashes is no list"],
    [
      "a hash that is a text",
      batchOf(removedEvent(["a"])),
      "a block hash is neither an integer nor bytes",
    ],
    ["a medium that is a number", batchOf(removedEvent([1], { medium: 1 })), "medium is no text"],
  ] as const) {
    it(`refuses ${title}`, () => {
      expect(problemOf(payload)).to.equal(`malformed: ${problem}`);
    });
  }

  it("takes a message of the largest size and refuses one byte more", () => {
    const padded = (bytes: number): Buffer => {
      const empty = batchOf(removedEvent([], { padding: new Uint8Array(65_536) })).length - 65_536;
      return batchOf(removedEvent([], { padding: new Uint8Array(bytes - empty) }));
    };
    expect(padded(MESSAGE_MAX_BYTES).length).to.equal(4_194_304);
    expect(problemOf(padded(MESSAGE_MAX_BYTES))).to.equal("a batch");
    expect(problemOf(padded(MESSAGE_MAX_BYTES + 1))).to.equal(
      "too_large: the message has 4194305 bytes; at most 4194304 are allowed",
    );
  });

  it("takes the most events and refuses one more", () => {
    const events = (count: number): Buffer =>
      batchOf(...Array.from({ length: count }, () => ["AllBlocksCleared"]));
    expect(problemOf(events(BATCH_MAX_EVENTS))).to.equal("a batch");
    expect(problemOf(events(BATCH_MAX_EVENTS + 1))).to.equal(
      "too_large: the batch has 65537 events; at most 65536 are allowed",
    );
  });

  it("takes the most blocks of an event and refuses one more", () => {
    const removed = (count: number): Buffer =>
      batchOf(removedEvent(Array.from({ length: count }, (_, i) => i)));
    expect(problemOf(removed(EVENT_MAX_BLOCKS))).to.equal("a batch");
    expect(problemOf(removed(EVENT_MAX_BLOCKS + 1))).to.equal(
      "too_large: an event has 16385 blocks; at most 16384 are allowed",
    );
  });

  it("takes the most blocks of all events of a batch and refuses one more", () => {
    const events = Array.from({ length: 4 }, () =>
      removedEvent(Array.from({ length: EVENT_MAX_BLOCKS }, (_, i) => i)),
    );
    expect(BATCH_MAX_BLOCKS).to.equal(65_536);
    expect(problemOf(batchOf(...events))).to.equal("a batch");
    expect(problemOf(batchOf(...events, storedEvent()))).to.equal(
      "too_large: the batch has 65537 blocks; at most 65536 are allowed",
    );
  });

  it("pauses every 4,096 values or sooner, in whatever a batch is full of", () => {
    const tokens = Array.from({ length: 300_000 }, () => 1);
    const hashes = Array.from({ length: EVENT_MAX_BLOCKS }, (_, i) => i);
    for (const [event, pauses] of [
      [storedEvent({ token_ids: tokens, block_size: 300_000 }), 73],
      [storedEvent({ token_ids: "none", padding: tokens }), 73],
      [storedEvent({ block_hashes: hashes, medium: "CPU" }), 4],
      [storedEvent({ extra_keys: tokens }), 73],
      [storedEvent({ lora_id: tokens }), 73],
    ] as const) {
      let seen = 0;
      for (const step of readBatch(batchOf(event))) if (step === undefined) seen += 1;
      expect(seen).to.be.at.least(pauses);
    }
  });

  it("takes the largest block and refuses one token more", () => {
    const block = (size: number): Buffer =>
      batchOf(storedEvent({ block_size: size, token_ids: Array<number>(size).fill(1) }));
    expect(problemOf(block(BLOCK_MAX_TOKENS))).to.equal("a batch");
    expect(problemOf(block(BLOCK_MAX_TOKENS + 1))).to.equal(
      "too_large: a block has 4097 tokens; at most 4096 are allowed",
    );
  });

  it("takes the longest hash and refuses one byte more", () => {
    const removed = (bytes: number): Buffer => batchOf(removedEvent([new Uint8Array(bytes)]));
    expect(problemOf(removed(HASH_MAX_BYTES))).to.equal("a batch");
    expect(problemOf(removed(HASH_MAX_BYTES + 1))).to.equal(
      "too_large: a block hash has 65 bytes; at most 64 are allowed",
    );
  });

  it("never throws, whichever byte of a good batch is another", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(POSITIONAL.stored, POSITIONAL.removed, MAPS.stored, MAPS.removed),
        fc.nat(),
        fc.nat({ max: 255 }),
        (batch, at, byte) => {
          const bytes = Buffer.from(batch);
          bytes[at % bytes.length] = byte;
          expect(readWhole(bytes).kind).to.be.oneOf(["batch", "problem"]);
        },
      ),
      { numRuns: 3_000 },
    );
  });
});
