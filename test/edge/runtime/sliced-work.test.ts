// Goal: work that takes long never holds up a turn of the event loop for more than its slice. Method: a
// clock that each step moves, and turns that the test gives.
import { expect } from "chai";
import { SLICE_MS, SlicedWork } from "../../../extproc/edge/runtime/sliced-work.js";

describe("SlicedWork", () => {
  function start(): {
    readonly work: SlicedWork;
    readonly done: string[];
    readonly steps: (name: string, count: number, stepMs: number) => Generator<undefined, string>;
    readonly turn: () => readonly string[];
    readonly isIdle: () => boolean;
  } {
    let clockMs = 0;
    const turns: (() => void)[] = [];
    const done: string[] = [];
    const work = new SlicedWork(
      () => clockMs,
      (turn) => turns.push(turn),
    );
    function* steps(name: string, count: number, stepMs: number): Generator<undefined, string> {
      for (let step = 1; step <= count; step += 1) {
        clockMs += stepMs;
        done.push(name);
        yield;
      }
      return name;
    }
    const turn = (): readonly string[] => {
      done.length = 0;
      turns.shift()?.();
      return [...done];
    };
    return { work, done, steps, turn, isIdle: () => turns.length === 0 };
  }
  const { signal } = new AbortController();

  it("does steps until the slice is over, and the rest in the next turns", async () => {
    const { work, done, steps, turn, isIdle } = start();
    const result = work.run(steps("a", 5, SLICE_MS / 2), signal);
    expect(done).to.deep.equal([]);
    expect([turn(), turn(), turn()]).to.deep.equal([["a", "a"], ["a", "a"], ["a"]]);
    expect(isIdle()).to.equal(true);
    expect(await result).to.equal("a");
  });

  it("gives all work one slice per turn together, the next work first", async () => {
    const { work, steps, turn, isIdle } = start();
    const results = ["a", "b", "c"].map((name) => work.run(steps(name, 2, SLICE_MS), signal));
    const turns = Array.from({ length: 6 }, () => turn().join(""));
    expect(turns).to.deep.equal(["a", "b", "c", "a", "b", "c"]);
    while (!isIdle()) turn();
    expect(await Promise.all(results)).to.deep.equal(["a", "b", "c"]);
  });

  it("does several short ones in one turn", async () => {
    const { work, steps, turn, isIdle } = start();
    const results = ["a", "b", "c"].map((name) => work.run(steps(name, 1, SLICE_MS / 8), signal));
    expect(turn()).to.deep.equal(["a", "b", "c"]);
    expect(isIdle()).to.equal(true);
    expect(await Promise.all(results)).to.deep.equal(["a", "b", "c"]);
    const later = work.run(steps("d", 1, 0), signal);
    turn();
    expect(await later).to.equal("d");
  });

  it("does no further step when its signal fires, and rejects when a step fails", async () => {
    const { work, steps, turn } = start();
    const stop = new AbortController();
    const stopped = work.run(steps("a", 9, SLICE_MS), stop.signal);
    const failed = work.run(
      {
        next: () => {
          throw new Error("no room");
        },
      },
      signal,
    );
    expect(turn()).to.deep.equal(["a"]);
    stop.abort();
    expect(turn()).to.deep.equal([]);
    expect(await stopped).to.equal(undefined);
    expect(await failed.catch(String)).to.equal("Error: no room");
  });
});
