import { expect } from "chai";
import { Sweeper } from "../../../extproc/edge/runtime/sweeper.js";

/** The next turn of the event loop and a little more. */
const turns = async (count: number): Promise<void> => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((done) => setImmediate(done));
};

describe("Sweeper", () => {
  it("goes on turn by turn while there is more, then waits for the next period", async () => {
    const left = [true, true, false];
    let sweeps = 0;
    await new Promise<void>((done) => {
      const sweeper = new Sweeper(1, () => {
        sweeps += 1;
        const more = left.shift() ?? false;
        if (!more) {
          sweeper.stop();
          done();
        }
        return more;
      });
      sweeper.start();
    });
    expect(sweeps).to.equal(3);
    await turns(3);
    expect(sweeps, "stopped").to.equal(3);
  });
});
