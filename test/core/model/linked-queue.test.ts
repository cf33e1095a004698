import { expect } from "chai";
import fc from "fast-check";
import { LinkedQueue, type QueueNode } from "../../../extproc/core/model/linked-queue.js";

describe("LinkedQueue", () => {
  it("gives values back in the order of arrival", () => {
    const queue = new LinkedQueue<string>();
    for (const value of ["a", "b", "c"]) queue.push(value);
    expect([queue.shift(), queue.shift(), queue.shift(), queue.shift()]).to.deep.equal([
      "a",
      "b",
      "c",
      undefined,
    ]);
  });

  it("removes a member once, and refuses a member of another queue", () => {
    const queue = new LinkedQueue<string>();
    const other = new LinkedQueue<string>();
    const node = queue.push("a");
    expect(other.remove(node)).to.equal(false);
    expect(queue.remove(node)).to.equal(true);
    expect(queue.remove(node)).to.equal(false);
    expect(queue.size).to.equal(0);
  });

  it("agrees with an array under any order of push, shift and remove", () => {
    const step = fc.oneof(
      fc.constant({ kind: "push" as const, at: 0 }),
      fc.constant({ kind: "shift" as const, at: 0 }),
      fc.record({ kind: fc.constant("remove" as const), at: fc.nat(30) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const queue = new LinkedQueue<number>();
        const nodes: QueueNode<number>[] = [];
        let model: number[] = [];
        let next = 0;
        for (const { kind, at } of steps) {
          if (kind === "push") {
            nodes.push(queue.push(next));
            model.push(next);
            next += 1;
          } else if (kind === "shift") {
            expect(queue.shift()).to.equal(model.shift());
          } else {
            const node = nodes[at];
            if (node !== undefined) {
              expect(queue.remove(node)).to.equal(model.includes(node.value));
              model = model.filter((value) => value !== node.value);
            }
          }
          expect(queue.size).to.equal(model.length);
          expect(queue.head).to.equal(model[0]);
        }
      }),
    );
  });
});
