import { expect } from "chai";
import { DeferredQueue } from "../../../extproc/edge/runtime/deferred-queue.js";

const nextTurn = (): Promise<void> =>
  new Promise((resolve) => {
    setImmediate(resolve);
  });

const unexpected = (error: unknown): void => {
  throw error;
};

describe("DeferredQueue", () => {
  it("handles nothing in the turn that brings it, and everything in order when the turn is over", async () => {
    const handled: number[] = [];
    const queue = new DeferredQueue<number>((item) => handled.push(item), unexpected);
    for (const item of [1, 2, 3]) queue.push(item);
    await Promise.resolve();
    expect(handled).to.deep.equal([]);
    await nextTurn();
    expect(handled).to.deep.equal([1, 2, 3]);
    queue.push(4);
    await nextTurn();
    expect(handled).to.deep.equal([1, 2, 3, 4]);
  });

  it("handles what waits at once when drained, and nothing twice", async () => {
    const handled: number[] = [];
    const queue = new DeferredQueue<number>((item) => handled.push(item), unexpected);
    queue.push(1);
    queue.drain();
    expect(handled).to.deep.equal([1]);
    queue.push(2);
    queue.drain();
    queue.drain();
    await nextTurn();
    expect(handled).to.deep.equal([1, 2]);
  });

  it("takes what comes in while it handles, and handles it too", async () => {
    const handled: number[] = [];
    const queue = new DeferredQueue<number>((item) => {
      handled.push(item);
      if (item === 1) queue.push(2);
    }, unexpected);
    queue.push(1);
    queue.drain();
    expect(handled).to.deep.equal([1]);
    await nextTurn();
    expect(handled).to.deep.equal([1, 2]);
  });

  it("reports an item that fails and handles the others", async () => {
    const handled: number[] = [];
    const faults: unknown[] = [];
    const broken = new Error("broken");
    const queue = new DeferredQueue<number>(
      (item) => {
        if (item === 2) throw broken;
        handled.push(item);
      },
      (error) => faults.push(error),
    );
    for (const item of [1, 2, 3]) queue.push(item);
    await nextTurn();
    expect(handled).to.deep.equal([1, 3]);
    expect(faults).to.deep.equal([broken]);
  });
});
