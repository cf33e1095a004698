import { expect } from "chai";
import { FirstByteCell } from "../../../extproc/core/scheduler/first-byte.js";

describe("FirstByteCell", () => {
  it("I1 is preempted once: the first try succeeds, the second does not", () => {
    const cell = new FirstByteCell();
    expect([cell.preempt(), cell.preempt()]).to.deep.equal([true, false]);
    expect(cell.preempted).to.equal(true);
  });

  it("I2 takes one first byte: the first counts, the second does not", () => {
    const cell = new FirstByteCell();
    expect([cell.markFirstByte(120), cell.markFirstByte(130)]).to.deep.equal([true, false]);
    expect(cell.timeToFirstByteMs).to.equal(120);
  });

  it("I3 lets a first byte lose against an earlier preemption", () => {
    const cell = new FirstByteCell();
    cell.preempt();
    expect(cell.markFirstByte(5)).to.equal(false);
    expect(cell.timeToFirstByteMs).to.equal(undefined);
    expect(cell.preempted).to.equal(true);
  });

  it("I4 lets a preemption lose against an earlier first byte", () => {
    const cell = new FirstByteCell();
    cell.markFirstByte(5);
    expect(cell.preempt()).to.equal(false);
    expect(cell.preempted).to.equal(false);
  });

  it("I5 keeps a first byte after 0 ms as 1 and one after the largest time as one less than it", () => {
    const early = new FirstByteCell();
    early.markFirstByte(0);
    expect(early.timeToFirstByteMs).to.equal(1);
    expect(early.preempt()).to.equal(false);
    const late = new FirstByteCell();
    late.markFirstByte(2 ** 32 - 1);
    expect(late.timeToFirstByteMs).to.equal(2 ** 32 - 2);
    expect([late.preempted, late.preempt()]).to.deep.equal([false, false]);
  });
});
