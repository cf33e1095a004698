import { expect } from "chai";
import { after } from "../../../extproc/core/model/time.js";
import { DeadlineTimer, now } from "../../../extproc/edge/runtime/clock.js";

describe("DeadlineTimer", () => {
  it("wakes at the earliest armed moment, once, and not before it", async () => {
    const start = now();
    const wokenAt = await new Promise<number>((resolve) => {
      let woken = 0;
      const timer = new DeadlineTimer(() => {
        woken += 1;
        if (woken === 1) resolve(now());
      });
      timer.arm(after(start, 5_000));
      timer.arm(after(start, 20));
      timer.arm(after(start, 1_000));
      timer.arm(undefined);
    });
    expect(wokenAt - start).to.be.within(20, 900);
  });

  it("wakes at once for a moment that has passed, and can be armed anew from within", async () => {
    let woken = 0;
    await new Promise<void>((resolve) => {
      const timer = new DeadlineTimer(() => {
        woken += 1;
        if (woken === 3) resolve();
        else timer.arm(after(now(), -5));
      });
      timer.arm(after(now(), -1_000));
    });
    expect(woken).to.equal(3);
  });

  it("never wakes before its moment, although a timer of the runtime may fire a little early", async () => {
    // Offsets of a fraction of a millisecond meet every rounding of the runtime's timers.
    for (let index = 0; index < 60; index += 1) {
      const at = after(now(), 1 + index * 0.17);
      const wokenAt = await new Promise<number>((resolve) => {
        const timer = new DeadlineTimer(() => {
          resolve(now());
        });
        timer.arm(at);
      });
      expect(wokenAt).to.be.at.least(at);
    }
  });

  it("does not wake after it was stopped", async () => {
    let woken = 0;
    const timer = new DeadlineTimer(() => {
      woken += 1;
    });
    timer.arm(after(now(), 5));
    timer.stop();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(woken).to.equal(0);
  });
});
