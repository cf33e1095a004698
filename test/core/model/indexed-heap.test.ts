// The heap against a sorted list: whatever enters, leaves or moves, the first is the least.

import { expect } from "chai";
import fc from "fast-check";
import { IndexedHeap, type HeapNode } from "../../../extproc/core/model/indexed-heap.js";

interface Member {
  readonly id: number;
  rank: number;
}

const before = (one: Member, other: Member): boolean =>
  one.rank === other.rank ? one.id < other.id : one.rank < other.rank;

describe("IndexedHeap", () => {
  it("has no first and no second while it is empty, and no second with one member", () => {
    const heap = new IndexedHeap<Member>(before);
    expect([heap.size, heap.first, heap.second]).to.deep.equal([0, undefined, undefined]);
    const only = { id: 1, rank: 1 };
    heap.push(only);
    expect([heap.size, heap.first, heap.second]).to.deep.equal([1, only, undefined]);
  });

  it("takes a member out once, and never one of another heap", () => {
    const heap = new IndexedHeap<Member>(before);
    const other = new IndexedHeap<Member>(before);
    const node = heap.push({ id: 1, rank: 1 });
    const stranger = other.push({ id: 2, rank: 1 });
    expect([heap.remove(stranger), heap.remove(node), heap.remove(node)]).to.deep.equal([
      false,
      true,
      false,
    ]);
    expect([heap.size, other.size]).to.deep.equal([0, 1]);
  });

  it("names the least and the next to it, whatever entered, left or moved", () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("push" as const), rank: fc.nat(9) }),
      fc.record({ kind: fc.constant("remove" as const), at: fc.nat(30) }),
      fc.record({ kind: fc.constant("move" as const), at: fc.nat(30), rank: fc.nat(9) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const heap = new IndexedHeap<Member>(before);
        const nodes: HeapNode<Member>[] = [];
        for (const [id, each] of steps.entries()) {
          if (each.kind === "push") nodes.push(heap.push({ id, rank: each.rank }));
          else {
            const at = each.at % Math.max(1, nodes.length);
            const node = nodes[at];
            if (node === undefined) continue;
            if (each.kind === "remove") {
              expect(heap.remove(node)).to.equal(true);
              nodes.splice(at, 1);
            } else {
              node.value.rank = each.rank;
              heap.moved(node);
            }
          }
          const sorted = nodes.map(({ value }) => value).sort((a, b) => (before(a, b) ? -1 : 1));
          expect([heap.size, heap.first, heap.second]).to.deep.equal([
            sorted.length,
            sorted[0],
            sorted[1],
          ]);
        }
      }),
      { numRuns: 300 },
    );
  });
});
