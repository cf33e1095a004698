// Goal: the index hears of exactly those blocks that a plain prompt can be served from.
import { expect } from "chai";
import { modelId } from "../../../extproc/core/model/ids.js";
import { KvFeedView } from "../../../extproc/edge/engines/kv-feed-view.js";
import { readWhole, resultOf } from "./kv-batch-reading.js";
import { batchOf, removedEvent, storedEvent } from "./kv-events-bytes.js";
import { SinkLog } from "./kv-sink-log.js";

const VIEW = { generation: 3, rank: 1, model: modelId("demo") };

describe("KvFeedView", () => {
  function start(maxBlocks?: number): {
    readonly sink: SinkLog;
    readonly apply: (...events: readonly unknown[]) => readonly boolean[];
  } {
    const sink = new SinkLog();
    const view = new KvFeedView(VIEW, sink, maxBlocks);
    const apply = (...events: readonly unknown[]): readonly boolean[] => {
      const batch = readWhole(batchOf(...events));
      if (batch.kind === "problem") throw new Error(batch.detail);
      return batch.events.map((event) => resultOf(view.apply(event)));
    };
    return { sink, apply };
  }

  it("passes stored blocks on with their own tokens, their parent and their size", () => {
    const { sink, apply } = start();
    apply(
      storedEvent({
        block_hashes: [1, 2],
        parent_block_hash: 9,
        token_ids: [5, 6, 7, 8],
        block_size: 2,
      }),
    );
    expect(sink.lines).to.deep.equal(["3/1 demo stored 1:5,6 2:7,8 behind 9 size 2"]);
  });

  it("tells that a block is gone when its last copy is", () => {
    const { sink, apply } = start();
    apply(storedEvent({ block_hashes: [1] }), storedEvent({ block_hashes: [1] }));
    sink.lines.length = 0;
    apply(removedEvent([1]));
    expect(sink.lines).to.deep.equal([]);
    apply(removedEvent([1]));
    expect(sink.lines).to.deep.equal(["3/1 demo removed 1"]);
    apply(removedEvent([1]));
    expect(sink.lines).to.deep.equal(["3/1 demo removed 1"]);
  });

  it("counts copies anew after everything was cleared", () => {
    const { sink, apply } = start();
    apply(storedEvent(), storedEvent(), { type: "AllBlocksCleared" }, storedEvent());
    sink.lines.length = 0;
    apply(removedEvent([11]));
    expect(sink.lines).to.deep.equal(["3/1 demo removed 11"]);
  });

  for (const [title, fields] of [
    ["an adapter", { lora_name: "adapter" }],
    ["a key of its own", { extra_keys: [["salt"]] }],
    ["another medium", { medium: "CPU" }],
    ["a group that keeps only a window", { kv_cache_spec_kind: "sliding_window" }],
  ] as const) {
    it(`keeps a block of ${title} to itself, stored and removed`, () => {
      const { sink, apply } = start();
      apply(storedEvent(fields), removedEvent([11]));
      expect(sink.lines).to.deep.equal([]);
    });
  }

  it("keeps a block on the GPU when its copy in another medium is removed", () => {
    const { sink, apply } = start();
    apply(storedEvent());
    sink.lines.length = 0;
    apply(removedEvent([11], { medium: "CPU" }));
    expect(sink.lines).to.deep.equal([]);
  });

  it("lets the first group that keeps whole prompts speak for the engine", () => {
    const { sink, apply } = start();
    const group = (groupIndex: number, kind: string): unknown =>
      storedEvent({ group_idx: groupIndex, kv_cache_spec_kind: kind });
    apply(group(0, "sliding_window"), group(1, "full_attention"), group(2, "full_attention"));
    expect(sink.lines).to.deep.equal(["3/1 demo stored 11:1,2,3,4 behind nothing size 4"]);
    apply(removedEvent([11], { group_idx: 0 }), removedEvent([11], { group_idx: 2 }));
    expect(sink.lines).to.have.length(1);
    apply(removedEvent([11], { group_idx: 1 }));
    expect(sink.lines[1]).to.equal("3/1 demo removed 11");
  });

  it("follows as many blocks as allowed and begins anew at one more", () => {
    const { sink, apply } = start(2);
    expect(
      apply(storedEvent({ block_hashes: [1] }), storedEvent({ block_hashes: [2] })),
    ).to.deep.equal([true, true]);
    expect(apply(storedEvent({ block_hashes: [3] }))).to.deep.equal([false]);
    expect(sink.lines.at(-1)).to.equal("3/1 demo cleared");
    expect(apply(storedEvent({ block_hashes: [4] }))).to.deep.equal([true]);
  });

  it("passes a long event on in pieces of at most 128 blocks and 4,096 tokens, in one chain", () => {
    const { sink, apply } = start();
    const hashes = Array.from({ length: 129 }, (_, i) => i);
    apply(storedEvent({ block_hashes: hashes, token_ids: hashes, block_size: 1 }));
    apply(removedEvent(hashes));
    const words = sink.lines.map((line) => line.split(" "));
    expect(words.map(({ length }) => length)).to.deep.equal([135, 8, 131, 4]);
    expect(sink.lines[1]).to.equal("3/1 demo stored 128:128 behind 127 size 1");
    expect(sink.lines[3]).to.equal("3/1 demo removed 128");
    sink.lines.length = 0;
    const tokens = Array.from({ length: 3 * 2_048 }, (_, i) => i);
    apply(storedEvent({ block_hashes: [1, 2, 3], token_ids: tokens, block_size: 2_048 }));
    apply(storedEvent({ block_hashes: [4], token_ids: tokens.slice(0, 4_096), block_size: 4_096 }));
    const blocks = sink.lines.map((line) => line.match(/ \d+:/g)?.join(""));
    expect(blocks).to.deep.equal([" 1: 2:", " 3:", " 4:"]);
  });
});
