// What the engines say that they hold: examples, and any stream of events against naive lists.

import { expect } from "chai";
import fc from "fast-check";
import { modelId } from "../../../extproc/core/model/ids.js";
import {
  EventIndex,
  type KvBlock,
  type KvView,
} from "../../../extproc/core/prefixes/event-index.js";
import { MODEL_MAX_BLOCK_SIZES } from "../../../extproc/core/prefixes/event-views.js";
import { CHUNK_RECORDS } from "../../../extproc/core/prefixes/record-store.js";
import { BLOCK_BYTES, hasher, MODEL, range } from "./support.js";

const OTHER_MODEL = modelId("k4");

interface Sketch {
  readonly blocksMax?: number;
  readonly defaultBlockSize?: number;
  readonly maxBlocks?: number;
}

function index({
  blocksMax = 1_000,
  defaultBlockSize = 4,
  maxBlocks = 64,
}: Sketch = {}): EventIndex {
  const maxBytesPerWorker = blocksMax * BLOCK_BYTES;
  return new EventIndex({ hasher, maxBytesPerWorker, defaultBlockSize, maxBlocks });
}

const view = (generation: number, rank = 0, model = MODEL): KvView => ({ generation, rank, model });

/** Blocks of the tokens, named by their last token behind `prefix`. */
function blocksOf(tokens: readonly number[], size: number, prefix = "h"): KvBlock[] {
  return Array.from({ length: Math.ceil(tokens.length / size) }, (_, block) => {
    const own = tokens.slice(block * size, (block + 1) * size);
    return { hash: `${prefix}${String(own.at(-1))}`, tokens: own };
  });
}

function store(
  events: EventIndex,
  of: KvView,
  tokens: readonly number[],
  parent?: string,
  blockSize = 4,
): void {
  events.stored(of, { blocks: blocksOf(tokens, blockSize), parent, blockSize });
}

/** Blocks of the longest prefix and its owners' generations. */
function found(
  events: EventIndex,
  tokens: readonly number[],
  model = MODEL,
): readonly [number, readonly number[]] {
  const { blocks, owners } = events.match(model, tokens);
  return [blocks, owners.map(({ generation }) => generation)];
}

describe("EventIndex", () => {
  it("C-10 names the worker of a full match of 4 blocks, the deeper of two, and both of equal ones", () => {
    const events = index();
    expect(found(events, range(1, 16))).to.deep.equal([0, []]);
    store(events, view(1), range(1, 16));
    expect(found(events, range(1, 16))).to.deep.equal([4, [1]]);
    expect(found(events, range(50, 70))).to.deep.equal([0, []]);
    expect(found(events, range(1, 3))).to.deep.equal([0, []]);
    store(events, view(2), range(1, 8));
    expect(found(events, range(1, 16))).to.deep.equal([4, [1]]);
    store(events, view(2), range(9, 16), "h8");
    store(events, view(2), range(100, 400));
    expect(found(events, range(1, 19))).to.deep.equal([4, [1, 2]]);
  });

  it("C-12 takes the block size that the events tell (8) over the configured one (4)", () => {
    const events = index({ defaultBlockSize: 4 });
    expect(events.blockSizeOf(MODEL)).to.equal(4);
    store(events, view(1), range(1, 16), undefined, 8);
    expect([events.blockSizeOf(MODEL), events.blockSizeOf(OTHER_MODEL)]).to.deep.equal([8, 4]);
    expect(found(events, range(1, 16))).to.deep.equal([2, [1]]);
    expect(found(events, range(1, 7))).to.deep.equal([0, []]);
  });

  it("gives the prompt's keys along, cut at the model's block size and the most blocks", () => {
    const events = index({ maxBlocks: 3 });
    const { keys, owners } = events.match(MODEL, range(1, 19));
    expect([keys.count, owners.length]).to.deep.equal([3, 0]);
    expect([...keys.words]).to.deep.equal([...hasher.tokens(MODEL, range(1, 12), 4, 3).words]);
    store(events, view(1), range(1, 4));
    expect(events.match(MODEL, range(1, 4)).owners).to.deep.equal([
      { generation: 1, lastSuccessAt: undefined },
    ]);
  });

  it("keeps what one worker holds when another one publishes blocks of another size", () => {
    const events = index();
    store(events, view(1), range(1, 16));
    store(events, view(2), range(1, 8), undefined, 8);
    expect(found(events, range(1, 16))).to.deep.equal([4, [1]]);
    store(events, view(1), range(17, 20), "h16");
    expect(found(events, range(1, 20))).to.deep.equal([5, [1]]);
    expect([events.blocksOf(1), events.blocksOf(2)]).to.deep.equal([5, 1]);
    expect(events.unknownParentBlocks).to.equal(0);
  });

  it("clears a view that changes its own block size, and nothing else", () => {
    const events = index();
    for (const of of [view(1, 0), view(1, 1), view(2), view(2, 0, OTHER_MODEL)]) {
      store(events, of, range(1, 8));
    }
    store(events, view(1, 0), range(1, 8), undefined, 8);
    expect([events.blocksOf(1), events.blocksOf(2)]).to.deep.equal([3, 4]);
    // Behind a block of the old size, blocks of a new one have no known place.
    store(events, view(2), range(9, 24), "h8", 16);
    expect([events.blocksOf(2), events.unknownParentBlocks]).to.deep.equal([2, 1]);
    expect(found(events, range(1, 8), OTHER_MODEL)).to.deep.equal([2, [2]]);
  });

  it("takes the block size with the most matched tokens, then with the most owners", () => {
    const events = index();
    const seen = (tokens: readonly number[]): readonly [number, number, readonly number[]] => {
      const { blocks, blockSize, owners } = events.match(MODEL, tokens);
      return [blocks, blockSize, owners.map(({ generation }) => generation)];
    };
    store(events, view(1), range(1, 12));
    store(events, view(2), range(1, 8), undefined, 8);
    expect(seen(range(1, 16))).to.deep.equal([3, 4, [1]]);
    store(events, view(2), range(9, 16), "h8", 8);
    expect(seen(range(1, 16))).to.deep.equal([2, 8, [2]]);
    // 8 tokens are held in blocks of both sizes: as many owners, then one more with blocks of 4.
    expect(seen(range(1, 8))).to.deep.equal([1, 8, [2]]);
    store(events, view(3), range(1, 8));
    expect(seen(range(1, 8))).to.deep.equal([2, 4, [1, 3]]);
    expect(events.match(MODEL, range(1, 8), 8).owners).to.have.length(1);
    const { keys } = events.match(MODEL, range(1, 8));
    expect([...keys.words]).to.deep.equal([...hasher.tokens(MODEL, range(1, 8), 4, 64).words]);
  });

  it("takes the largest size in use for the model's, and the configured one when none is", () => {
    const events = index();
    store(events, view(1), range(1, 16), undefined, 8);
    store(events, view(2), range(1, 16), undefined, 16);
    expect(events.blockSizeOf(MODEL)).to.equal(16);
    events.removed(view(2), ["h16"]);
    expect(events.blockSizeOf(MODEL)).to.equal(8);
    events.forget(1);
    expect([events.blockSizeOf(MODEL), events.hasData(MODEL)]).to.deep.equal([4, false]);
  });

  it("keeps blocks of 4 sizes of a model and refuses those of a fifth, until one goes", () => {
    const events = index();
    const sizes = [1, 2, 3, 4, 5];
    for (const size of sizes) store(events, view(size), range(1, 60), undefined, size);
    expect(MODEL_MAX_BLOCK_SIZES).to.equal(4);
    expect(sizes.map((size) => events.blocksOf(size))).to.deep.equal([60, 30, 20, 15, 0]);
    expect([events.refusedSizeBlocks, events.blockSizeOf(MODEL)]).to.deep.equal([12, 4]);
    store(events, view(6), range(1, 60), undefined, 3);
    store(events, view(7, 0, OTHER_MODEL), range(1, 60), undefined, 5);
    events.cleared(view(2));
    store(events, view(5), range(1, 60), undefined, 5);
    expect([5, 6, 7].map((size) => events.blocksOf(size))).to.deep.equal([12, 20, 12]);
    expect(events.refusedSizeBlocks).to.equal(12);
    // An emptied view of the refused size is still open, and has no claim to it.
    events.removed(
      view(5),
      range(1, 60).map((last) => `h${String(last)}`),
    );
    store(events, view(2), range(1, 60), undefined, 2);
    store(events, view(5), range(1, 60), undefined, 5);
    expect([events.blocksOf(2), events.blocksOf(5)]).to.deep.equal([30, 0]);
  });

  it("ignores blocks of another size than the event's, and those behind them", () => {
    const events = index();
    const [first, second, third] = blocksOf(range(1, 12), 4);
    const short = { hash: "short", tokens: [5, 6] };
    if (first === undefined || second === undefined || third === undefined) return;
    const blocks = [first, short, second];
    events.stored(view(1), { blocks, parent: undefined, blockSize: 4 });
    expect(found(events, range(1, 12))).to.deep.equal([1, [1]]);
    expect(events.misfitBlocks).to.equal(2);
    events.stored(view(1), { blocks: [third], parent: "short", blockSize: 4 });
    expect(events.unknownParentBlocks).to.equal(1);
    for (const blockSize of [0, -4, 1.5, 3]) {
      events.stored(view(2), { blocks: [third], parent: undefined, blockSize });
    }
    expect([events.blocksOf(2), events.blockSizeOf(MODEL)]).to.deep.equal([0, 4]);
  });

  it("drops blocks behind an unknown parent rather than call the worker an owner falsely", () => {
    const events = index();
    store(events, view(1), range(5, 8), "h4");
    expect(events.unknownParentBlocks).to.equal(1);
    expect(found(events, range(5, 8))).to.deep.equal([0, []]);
    expect([events.hasData(MODEL), events.blocksOf(1)]).to.deep.equal([false, 0]);
    // Another rank's, another worker's and another model's names are unknown too.
    store(events, view(1), range(1, 4));
    for (const other of [view(1, 1), view(2), view(1, 0, OTHER_MODEL)]) {
      store(events, other, range(5, 8), "h4");
    }
    expect(events.unknownParentBlocks).to.equal(4);
    store(events, view(1), range(5, 8), "h4");
    expect(found(events, range(1, 8))).to.deep.equal([2, [1]]);
  });

  it("keeps no blocks behind the most that a prompt is looked at for", () => {
    const events = index({ maxBlocks: 2 });
    store(events, view(1), range(1, 12));
    expect([events.blocksOf(1), found(events, range(1, 12))]).to.deep.equal([2, [2, [1]]]);
    store(events, view(1), range(9, 12), "h8");
    expect(events.blocksOf(1)).to.equal(2);
  });

  it("ends a match at a removed block, and forgets nothing for a name it never heard", () => {
    const events = index();
    store(events, view(1), range(1, 12));
    events.removed(view(1), ["h8", "never", "h8"]);
    expect(found(events, range(1, 12))).to.deep.equal([1, [1]]);
    events.removed(view(2), ["h4"]);
    events.removed(view(1, 1), ["h4"]);
    expect([events.blocksOf(1), events.blocksOf(2)]).to.deep.equal([2, 0]);
    store(events, view(1), range(5, 8), "h4");
    expect(found(events, range(1, 12))).to.deep.equal([3, [1]]);
  });

  it("counts a name that is stored twice once, so that one removal ends it", () => {
    const events = index();
    store(events, view(1), range(1, 8));
    store(events, view(1), range(1, 8));
    expect(events.blocksOf(1)).to.equal(2);
    events.removed(view(1), ["h4"]);
    expect(found(events, range(1, 8))).to.deep.equal([0, []]);
  });

  it("owns a block as long as one of two ranks holds it", () => {
    const events = index();
    store(events, view(1), range(1, 4));
    store(events, view(1, 1), range(1, 4));
    expect(found(events, range(1, 4))).to.deep.equal([1, [1]]);
    events.removed(view(1), ["h4"]);
    expect(found(events, range(1, 4))).to.deep.equal([1, [1]]);
    events.removed(view(1, 1), ["h4"]);
    expect(found(events, range(1, 4))).to.deep.equal([0, []]);
  });

  it("keeps a block once however many names a view tells for it, and is rid of it with the first", () => {
    const events = index();
    const named = (hash: string): void => {
      const blocks = [{ hash, tokens: range(1, 4) }];
      events.stored(view(1), { blocks, parent: undefined, blockSize: 4 });
    };
    for (const name of ["a", "b", "c", "b"]) named(name);
    expect([events.blocksOf(1), events.renamedBlocks]).to.deep.equal([1, 3]);
    events.removed(view(1), ["b"]);
    expect(found(events, range(1, 4))).to.deep.equal([1, [1]]);
    events.removed(view(1), ["a"]);
    expect(found(events, range(1, 4))).to.deep.equal([0, []]);
  });

  it("calls a worker no owner of a prefix that only two of its ranks together hold", () => {
    const events = index();
    store(events, view(1, 0), range(1, 16));
    store(events, view(1, 1), range(1, 32));
    events.removed(view(1, 1), ["h4", "h8", "h12", "h16"]);
    expect(found(events, range(1, 32))).to.deep.equal([4, [1]]);
    expect(events.blocksOf(1)).to.equal(8);
    // Ranks that hold as much make one owner.
    store(events, view(1, 2), range(1, 16));
    expect(found(events, range(1, 32))).to.deep.equal([4, [1]]);
  });

  it("clears one view, or forgets one worker, and leaves the others", () => {
    const events = index();
    for (const of of [view(1, 0), view(1, 1), view(2)]) store(events, of, range(1, 8));
    store(events, view(1, 0), range(21, 24));
    events.cleared(view(1, 0));
    events.cleared(view(7));
    expect([found(events, range(21, 24)), found(events, range(1, 8))]).to.deep.equal([
      [0, []],
      [2, [1, 2]],
    ]);
    events.forget(1);
    events.forget(7);
    expect(found(events, range(1, 8))).to.deep.equal([2, [2]]);
    expect([events.blocksOf(1), events.hasData(MODEL)]).to.deep.equal([0, true]);
    events.forget(2);
    expect([events.hasData(MODEL), events.hasData(OTHER_MODEL)]).to.deep.equal([false, false]);
    store(events, view(3), range(1, 8));
    expect(found(events, range(1, 8))).to.deep.equal([2, [3]]);
  });

  it("evicts the least recently stored blocks at the first one too many, a prefix's end first", () => {
    const events = index({ blocksMax: 4 });
    store(events, view(1), range(1, 8));
    store(events, view(1), range(11, 18));
    expect([found(events, range(1, 8)), events.blocksOf(1)]).to.deep.equal([[2, [1]], 4]);
    store(events, view(1), range(21, 24));
    expect([found(events, range(1, 8)), events.blocksOf(1)]).to.deep.equal([[1, [1]], 4]);
    // The evicted name is unknown: neither a parent nor to be removed.
    events.removed(view(1), ["h8"]);
    store(events, view(1), range(31, 34), "h8");
    expect([events.unknownParentBlocks, events.blocksOf(1)]).to.deep.equal([1, 4]);
    store(events, view(2), range(1, 40));
    expect([found(events, range(1, 40)), events.blocksOf(2)]).to.deep.equal([[4, [2]], 4]);
  });

  it("takes a block that is stored again as the newest one", () => {
    const events = index({ blocksMax: 3 });
    for (const first of [1, 11, 21, 1, 31]) store(events, view(1), range(first, first + 3));
    const depths = [1, 11, 21, 31].map((first) => found(events, range(first, first + 3))[0]);
    expect(depths).to.deep.equal([1, 0, 1, 1]);
  });

  it("shares a worker's limit among its ranks: the fullest gives way", () => {
    const events = index({ blocksMax: 4 });
    store(events, view(1, 0), range(1, 16));
    store(events, view(1, 1), range(101, 108));
    expect(found(events, range(1, 16))).to.deep.equal([2, [1]]);
    expect(found(events, range(101, 108))).to.deep.equal([2, [1]]);
    expect(events.blocksOf(1)).to.equal(4);
  });

  it("takes of equally full ranks the one that was opened first, by blocks that have a place", () => {
    const events = index({ blocksMax: 2 });
    store(events, view(1, 0), range(5, 8), "unheard");
    store(events, view(1, 1), range(1, 4));
    store(events, view(1, 0), range(11, 14));
    store(events, view(1, 0), range(21, 24));
    const depths = [1, 11, 21].map((first) => found(events, range(first, first + 3))[0]);
    expect(depths).to.deep.equal([0, 1, 1]);
  });

  it("stays within its bytes however often a view is cleared and filled again", () => {
    const blocksMax = CHUNK_RECORDS;
    const events = index({ blocksMax, maxBlocks: 1_000 });
    for (let round = 0; round < 4; round += 1) {
      for (let prompt = 0; prompt < 10; prompt += 1) {
        const first = 1 + 10_000 * prompt + 100_000 * round;
        store(events, view(1), range(first, first + 1_999));
      }
      expect(events.blocksOf(1)).to.equal(CHUNK_RECORDS - 1);
      expect(events.bytes).to.be.at.most(blocksMax * BLOCK_BYTES);
      events.cleared(view(1));
      expect([events.blocksOf(1), events.hasData(MODEL)]).to.deep.equal([0, false]);
    }
  });
});

/** What the index stands for, done the obvious way: for each view its blocks, oldest first. */
class NaiveEvents {
  readonly #workers = new Map<number, Map<number, { hash: string; chain: string }[]>>();
  readonly #blocksMax: number;
  readonly #maxBlocks: number;

  constructor(blocksMax: number, maxBlocks: number) {
    this.#blocksMax = blocksMax;
    this.#maxBlocks = maxBlocks;
  }

  #ranks(generation: number): Map<number, { hash: string; chain: string }[]> {
    const ranks =
      this.#workers.get(generation) ?? new Map<number, { hash: string; chain: string }[]>();
    this.#workers.set(generation, ranks);
    return ranks;
  }

  stored(
    generation: number,
    rank: number,
    names: readonly string[],
    tokens: readonly number[],
    parent: string | undefined,
  ): void {
    const ranks = this.#ranks(generation);
    const blocks = ranks.get(rank) ?? [];
    const behind = blocks.find(({ hash }) => hash === parent)?.chain;
    if (parent !== undefined && behind === undefined) return;
    ranks.set(rank, blocks);
    const before = behind?.split(",") ?? [];
    const room = Math.min(this.#maxBlocks - before.length, this.#blocksMax, names.length);
    for (let count = room; count > 0; count -= 1) {
      const hash = names[count - 1] ?? "";
      const chain = [...before, ...tokens.slice(0, count)].join();
      const known = blocks.findIndex((each) => each.hash === hash);
      const same = blocks[known]?.chain === chain;
      if (known >= 0) blocks.splice(known, 1);
      const first = blocks.findIndex((each) => each.chain === chain);
      if (first >= 0) {
        blocks.push(...blocks.splice(first, 1));
        continue;
      }
      if (!same && this.blocksOf(generation) >= this.#blocksMax) {
        [...ranks.values()].reduce((a, b) => (b.length > a.length ? b : a)).shift();
      }
      blocks.push({ hash, chain });
    }
  }

  removed(generation: number, rank: number, hash: string): void {
    const blocks = this.#ranks(generation).get(rank) ?? [];
    const known = blocks.findIndex((each) => each.hash === hash);
    if (known >= 0) blocks.splice(known, 1);
  }

  cleared(generation: number, rank: number): void {
    this.#ranks(generation).delete(rank);
  }

  forget(generation: number): void {
    this.#workers.delete(generation);
  }

  blocksOf(generation: number): number {
    return [...this.#ranks(generation).values()].reduce((sum, { length }) => sum + length, 0);
  }

  match(tokens: readonly number[]): readonly [number, readonly number[]] {
    for (let blocks = Math.min(tokens.length, this.#maxBlocks); blocks > 0; blocks -= 1) {
      const owners = [...this.#workers.keys()].filter((generation) => {
        return [...this.#ranks(generation).values()].some((rank) => {
          const held = rank.map(({ chain }) => chain);
          return range(1, blocks).every((count) => held.includes(tokens.slice(0, count).join()));
        });
      });
      if (owners.length > 0) return [blocks, owners.sort((a, b) => a - b)];
    }
    return [0, []];
  }
}

describe("EventIndex against naive lists", () => {
  const generation = fc.nat(2);
  const rank = fc.nat(1);
  const name = fc.nat(9).map(String);
  const token = fc.nat(1);
  const step = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant("stored" as const),
        generation,
        rank,
        blocks: fc.array(fc.record({ hash: name, token }), { minLength: 1, maxLength: 4 }),
        parent: fc.option(name, { nil: undefined }),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({ kind: fc.constant("removed" as const), generation, rank, name }),
    },
    fc.record({ kind: fc.constant("cleared" as const), generation, rank }),
    fc.record({ kind: fc.constant("forget" as const), generation }),
  );

  it("says the same after any stream of events of several workers and ranks, at any limit", () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 60 }),
        fc.array(fc.array(token, { maxLength: 7 }), { minLength: 4, maxLength: 4 }),
        fc.integer({ min: 1, max: 20 }),
        (steps, prompts, blocksMax) => {
          const events = index({ blocksMax, maxBlocks: 5, defaultBlockSize: 1 });
          const naive = new NaiveEvents(blocksMax, 5);
          for (const each of steps) {
            if (each.kind === "stored") {
              const blocks = each.blocks.map(({ hash, token }) => ({ hash, tokens: [token] }));
              const names = each.blocks.map(({ hash }) => hash);
              const tokens = each.blocks.map(({ token }) => token);
              const { parent } = each;
              events.stored(view(each.generation, each.rank), { blocks, parent, blockSize: 1 });
              naive.stored(each.generation, each.rank, names, tokens, parent);
            } else if (each.kind === "removed") {
              events.removed(view(each.generation, each.rank), [each.name]);
              naive.removed(each.generation, each.rank, each.name);
            } else if (each.kind === "cleared") {
              events.cleared(view(each.generation, each.rank));
              naive.cleared(each.generation, each.rank);
            } else {
              events.forget(each.generation);
              naive.forget(each.generation);
            }
            for (const prompt of prompts) {
              expect(found(events, prompt)).to.deep.equal(naive.match(prompt));
            }
            for (const worker of range(0, 2)) {
              expect(events.blocksOf(worker)).to.equal(naive.blocksOf(worker));
            }
          }
        },
      ),
      { numRuns: 500 },
    );
  });
});
