// Who answered a prompt that began like this one: examples, and any history against a naive map.

import { expect } from "chai";
import fc from "fast-check";
import type { MonotonicMs } from "../../../extproc/core/model/time.js";
import {
  CommittedIndex,
  FORGOTTEN_AT_ONCE,
  type OwnerMatch,
} from "../../../extproc/core/prefixes/committed-index.js";
import { CHUNK_RECORDS } from "../../../extproc/core/prefixes/record-store.js";
import { at, HOLDING_BYTES, keysOf, ManyKeys, range } from "./support.js";

const TTL_MS = 600_000;
const ROOMY = 1_000_000;

const index = (maxBytesPerWorker = ROOMY): CommittedIndex =>
  new CommittedIndex({ maxBytesPerWorker, ttlMs: TTL_MS });

/** Blocks of the longest prefix and its owners' generations. */
const found = ({ blocks, owners }: OwnerMatch): readonly [number, readonly number[]] => [
  blocks,
  owners.map(({ generation }) => generation),
];

describe("CommittedIndex", () => {
  it("names nobody before the first success, for an unknown prompt and for one without blocks", () => {
    const committed = index();
    expect(committed.match(keysOf(1, 2), at(0))).to.deep.equal({ blocks: 0, owners: [] });
    committed.commit(keysOf(1, 2), 5, at(0));
    expect(found(committed.match(keysOf(2, 1), at(0)))).to.deep.equal([0, []]);
    expect(found(committed.match(keysOf(), at(0)))).to.deep.equal([0, []]);
    committed.commit(keysOf(), 6, at(0));
    expect(committed.blocksOf(6)).to.equal(0);
  });

  it("names every worker that holds the longest prefix, and when it last succeeded there", () => {
    const committed = index();
    committed.commit(keysOf(1, 2), 9, at(1));
    committed.commit(keysOf(1, 2, 3), 4, at(2));
    committed.commit(keysOf(1, 2), 7, at(3));
    expect(committed.match(keysOf(1, 2, 8), at(4))).to.deep.equal({
      blocks: 2,
      owners: [
        { generation: 4, lastSuccessAt: at(2) },
        { generation: 7, lastSuccessAt: at(3) },
        { generation: 9, lastSuccessAt: at(1) },
      ],
    });
    expect(found(committed.match(keysOf(1, 2, 3, 4), at(4)))).to.deep.equal([3, [4]]);
  });

  it("tells the last success on the matched blocks, not on a longer or a shorter prompt", () => {
    const committed = index();
    committed.commit(keysOf(1, 2), 1, at(1));
    committed.commit(keysOf(1), 1, at(5));
    const last = (...blocks: number[]): MonotonicMs | undefined =>
      committed.match(keysOf(...blocks), at(6)).owners[0]?.lastSuccessAt;
    expect([last(1, 2), last(1)]).to.deep.equal([at(1), at(5)]);
  });

  it("forgets a prefix 600 s after its last success, to the millisecond", () => {
    const committed = index();
    committed.commit(keysOf(1, 2), 1, at(0));
    committed.commit(keysOf(1), 1, at(100));
    expect(found(committed.match(keysOf(1, 2), at(599.999)))).to.deep.equal([2, [1]]);
    expect(found(committed.match(keysOf(1, 2), at(600)))).to.deep.equal([1, [1]]);
    expect(found(committed.match(keysOf(1, 2), at(700)))).to.deep.equal([0, []]);
  });

  it("sweeps what has expired, no more than its budget at a time, and says whether more is left", () => {
    const committed = index();
    committed.commit(keysOf(1, 2, 3), 1, at(0));
    committed.commit(keysOf(1, 2), 2, at(0));
    committed.commit(keysOf(9), 2, at(1));
    expect(committed.sweep(at(599), 10)).to.equal(false);
    expect([committed.blocksOf(1), committed.blocksOf(2)]).to.deep.equal([3, 3]);
    expect(committed.sweep(at(600), 4)).to.equal(true);
    expect([committed.blocksOf(1), committed.blocksOf(2)]).to.deep.equal([0, 2]);
    expect(committed.sweep(at(600), 1)).to.equal(false);
    expect(committed.blocksOf(2)).to.equal(1);
  });

  it("evicts the least recently used holding first, at the limit's first block too many", () => {
    const committed = index(4 * HOLDING_BYTES);
    committed.commit(keysOf(1, 2), 1, at(0));
    committed.commit(keysOf(5, 6), 1, at(1));
    expect(found(committed.match(keysOf(1, 2), at(2)))).to.deep.equal([2, [1]]);
    committed.commit(keysOf(1, 2), 1, at(2));
    committed.commit(keysOf(7), 1, at(3));
    // 5, 6 were used longest ago, and the end of a prefix goes before its beginning.
    expect(found(committed.match(keysOf(5, 6), at(3)))).to.deep.equal([1, [1]]);
    expect(found(committed.match(keysOf(1, 2), at(3)))).to.deep.equal([2, [1]]);
    expect(committed.blocksOf(1)).to.equal(4);
  });

  it("evicts a worker's holdings for that worker only", () => {
    const committed = index(2 * HOLDING_BYTES);
    committed.commit(keysOf(1, 2), 1, at(0));
    for (const block of range(10, 20)) committed.commit(keysOf(block), 2, at(block));
    expect(found(committed.match(keysOf(1, 2), at(30)))).to.deep.equal([2, [1]]);
    expect([committed.blocksOf(1), committed.blocksOf(2)]).to.deep.equal([2, 2]);
  });

  it("keeps the first blocks of a prompt that is longer than the limit, none below one holding", () => {
    const committed = index(2 * HOLDING_BYTES);
    committed.commit(keysOf(1, 2, 3), 1, at(0));
    expect(found(committed.match(keysOf(1, 2, 3), at(0)))).to.deep.equal([2, [1]]);
    const tiny = index(HOLDING_BYTES - 1);
    tiny.commit(keysOf(1), 1, at(0));
    expect(found(tiny.match(keysOf(1), at(0)))).to.deep.equal([0, []]);
  });

  it("forgets a worker at once, and gives its memory to others before it takes more", () => {
    const bytesMax = 2 * CHUNK_RECORDS * HOLDING_BYTES;
    const committed = index(bytesMax);
    const many = new ManyKeys();
    for (let generation = 1; generation <= 4; generation += 1) {
      for (let count = 0; count < 3 * CHUNK_RECORDS; count += 1) {
        committed.commit(many.next(), generation, at(generation));
      }
      const mine = many.keys;
      expect(found(committed.match(mine, at(5)))).to.deep.equal([1, [generation]]);
      committed.forget(generation);
      expect(found(committed.match(mine, at(5)))).to.deep.equal([0, []]);
      expect(committed.blocksOf(generation)).to.equal(0);
      expect(committed.bytes).to.be.at.most(bytesMax);
    }
    let sweeps = 1;
    while (committed.sweep(at(5), 1_000)) sweeps += 1;
    // 8,191 records are within two chunks; each sweep may release 1,000.
    expect(sweeps).to.equal(9);
  });

  it("forgets what is older than a success that the engine no longer had, and nothing younger", () => {
    const committed = index();
    committed.commit(keysOf(1, 2), 1, at(1));
    committed.commit(keysOf(5), 1, at(2));
    committed.commit(keysOf(6), 1, at(3));
    committed.commit(keysOf(1, 2), 2, at(1));
    expect(committed.forgetOlder(1, at(2))).to.equal(2);
    expect(found(committed.match(keysOf(1, 2), at(4)))).to.deep.equal([2, [2]]);
    expect(found(committed.match(keysOf(5), at(4)))).to.deep.equal([1, [1]]);
    expect(found(committed.match(keysOf(6), at(4)))).to.deep.equal([1, [1]]);
    expect(committed.forgetOlder(1, at(2))).to.equal(0);
    expect(committed.forgetOlder(3, at(2))).to.equal(0);
    committed.commit(keysOf(1, 2), 1, at(4));
    expect(found(committed.match(keysOf(1, 2), at(4)))).to.deep.equal([2, [1, 2]]);
  });

  it("lets no stale holding match, however many there are to release", () => {
    const committed = index(100_000 * HOLDING_BYTES);
    const first = keysOf(1);
    committed.commit(first, 1, at(1));
    const many = new ManyKeys();
    for (let count = 0; count < FORGOTTEN_AT_ONCE; count += 1) {
      committed.commit(many.next(), 1, at(2));
    }
    committed.commit(keysOf(2), 1, at(3));
    const last = many.keys;
    expect(found(committed.match(last, at(4)))).to.deep.equal([1, [1]]);
    // One holding more than a call releases: the last one waits for the sweep, but matches no more.
    expect(committed.forgetOlder(1, at(3))).to.equal(FORGOTTEN_AT_ONCE);
    expect(found(committed.match(last, at(4)))).to.deep.equal([0, []]);
    expect(committed.blocksOf(1)).to.equal(2);
    expect(committed.sweep(at(4), 10)).to.equal(false);
    expect(committed.blocksOf(1)).to.equal(1);
    expect(found(committed.match(keysOf(2), at(4)))).to.deep.equal([1, [1]]);
  });

  it("keeps 100,000 distinct prefixes of two workers within their bytes, the newest of each", () => {
    const bytesMax = 1_000_000;
    const committed = index(bytesMax);
    const many = new ManyKeys();
    for (let count = 0; count < 100_000; count += 1) {
      committed.commit(many.next(), count % 2, at(count));
    }
    expect(committed.bytes).to.be.at.most(2 * bytesMax);
    // Four chunks of 4,096 records and their buckets fit into a million bytes; one record is none.
    expect([committed.blocksOf(0), committed.blocksOf(1)]).to.deep.equal([16_383, 16_383]);
    expect(committed.bytes).to.equal(2 * 4 * CHUNK_RECORDS * HOLDING_BYTES);
    const again = new ManyKeys();
    const newest = 2 * 16_383;
    for (let count = 0; count < 100_000; count += 1) {
      const { blocks } = committed.match(again.next(), at(count - 100_000 + 1));
      if (blocks !== (count < 100_000 - newest ? 0 : 1)) expect.fail(`prefix ${String(count)}`);
    }
  });
});

/** What the index stands for, done the obvious way: a list of holdings per worker, oldest first. */
class NaiveIndex {
  readonly #workers = new Map<number, { key: string; lastSuccessAt: number }[]>();
  readonly #holdingsMax: number;

  constructor(holdingsMax: number) {
    this.#holdingsMax = holdingsMax;
  }

  #holdings(generation: number): { key: string; lastSuccessAt: number }[] {
    return this.#workers.get(generation) ?? [];
  }

  match(prompt: readonly number[], now: number): readonly [number, readonly string[]] {
    for (let blocks = prompt.length; blocks > 0; blocks -= 1) {
      const owners = [...this.#workers.keys()].flatMap((generation) => {
        const live = this.#holdings(generation).filter((held) => now - held.lastSuccessAt < TTL_MS);
        const needed = range(1, blocks).map((count) => prompt.slice(0, count).join());
        const held = needed.map((key) => live.find((each) => each.key === key)?.lastSuccessAt);
        const last = held.at(-1);
        return held.includes(undefined) || last === undefined
          ? []
          : [`${String(generation)}@${String(last)}`];
      });
      if (owners.length > 0) return [blocks, owners.sort()];
    }
    return [0, []];
  }

  commit(prompt: readonly number[], generation: number, now: number): void {
    const holdings = [...this.#holdings(generation)];
    for (let count = prompt.length; count > 0; count -= 1) {
      const key = prompt.slice(0, count).join();
      const known = holdings.findIndex((each) => each.key === key);
      if (known >= 0) holdings.splice(known, 1);
      holdings.push({ key, lastSuccessAt: now });
    }
    this.#workers.set(generation, holdings.slice(-this.#holdingsMax));
  }

  forgetOlder(generation: number, time: number): number {
    const holdings = this.#holdings(generation);
    const left = holdings.filter(({ lastSuccessAt }) => lastSuccessAt >= time);
    this.#workers.set(generation, left);
    return holdings.length - left.length;
  }

  forget(generation: number): void {
    this.#workers.delete(generation);
  }

  sweep(now: number): void {
    for (const generation of this.#workers.keys())
      this.forgetOlder(generation, now - TTL_MS + 1e-3);
  }

  blocksOf(generation: number): number {
    return this.#holdings(generation).length;
  }
}

describe("CommittedIndex against a naive map", () => {
  const generation = fc.nat(3);
  const prompt = fc.array(fc.nat(2), { maxLength: 6 });
  const step = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({ kind: fc.constant("commit" as const), prompt, generation }),
    },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant("match" as const), prompt }) },
    fc.record({ kind: fc.constant("older" as const), generation, secondsAgo: fc.nat(900) }),
    fc.record({ kind: fc.constant("forget" as const), generation }),
    fc.record({ kind: fc.constant("sweep" as const), budget: fc.nat(5) }),
    {
      weight: 3,
      arbitrary: fc.record({ kind: fc.constant("wait" as const), seconds: fc.nat(300) }),
    },
  );

  it("says the same after any history, at any limit", () => {
    fc.assert(
      fc.property(
        fc.array(step, { maxLength: 80 }),
        fc.integer({ min: 1, max: 30 }),
        (steps, holdingsMax) => {
          const committed = index(holdingsMax * HOLDING_BYTES);
          const naive = new NaiveIndex(holdingsMax);
          let now = 0;
          for (const each of steps) {
            if (each.kind === "wait") now += each.seconds;
            else if (each.kind === "commit") {
              committed.commit(keysOf(...each.prompt), each.generation, at(now));
              naive.commit(each.prompt, each.generation, now * 1_000);
            } else if (each.kind === "older") {
              const time = now - each.secondsAgo;
              const count = committed.forgetOlder(each.generation, at(time));
              expect(count).to.equal(naive.forgetOlder(each.generation, time * 1_000));
            } else if (each.kind === "forget") {
              committed.forget(each.generation);
              naive.forget(each.generation);
            } else if (each.kind === "sweep") {
              // With less than a budget of 1 nothing moves, and it still tells the truth.
              while (committed.sweep(at(now), each.budget) && each.budget > 0);
              if (each.budget > 0) naive.sweep(now * 1_000);
            } else {
              const { blocks, owners } = committed.match(keysOf(...each.prompt), at(now));
              const said = owners.map((o) => `${String(o.generation)}@${String(o.lastSuccessAt)}`);
              expect([blocks, said.sort()]).to.deep.equal(naive.match(each.prompt, now * 1_000));
            }
            for (const worker of range(0, 3)) {
              expect(committed.blocksOf(worker)).to.equal(naive.blocksOf(worker));
            }
          }
        },
      ),
      { numRuns: 500 },
    );
  });
});
