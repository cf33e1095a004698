// Goal: under a load of a higher class that never ends, a starved class gets its promotions, and the
// higher class still gets at least three quarters of the dispatches. Method: one slot, so that the
// worker's log is the exact order of service; a dozen interactive clients of which each sends its
// next request when the last one is answered, so that one of them always waits; and more bulk
// requests than can be served meanwhile.
import { expect } from "chai";
import {
  classTable,
  expectAccounted,
  expectServed,
  openChat,
  scrape,
  watchArrivals,
} from "../support/class-chat.js";
import { startStack, type Stack } from "../support/stack.js";

const THRESHOLD_SECS = 1;
/** Dispatches looked back on, and how many of them may be promotions that pass a higher class. */
const WINDOW = 64;
const PROMOTIONS = 16;
const WINDOWS = 3;
const INTERACTIVE_CLIENTS = 12;
const BULK = 80;

describe("a starved class through Envoy", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 1,
      mock: { slots: 64 },
      config: {
        fair_share: { max_queued_requests_per_tenant: 200 },
        scheduler: {
          max_concurrent_requests: 1,
          queue_size: 200,
          default_max_class: "system",
          classes: classTable({ bulk: { starvation_threshold_secs: THRESHOLD_SECS } }),
        },
      },
    });
  });
  after(() => stack.stop());

  it("is promoted, and the class above keeps three of four dispatches", async () => {
    const [worker] = stack.workers;
    if (worker === undefined) throw new Error("the stack has no worker");
    const arrivals = watchArrivals(worker);
    let loaded = true;
    let sent = 0;
    const body = { max_tokens: 1 };
    const clients = Array.from({ length: INTERACTIVE_CLIENTS }, async () => {
      while (loaded) {
        sent += 1;
        const name = `interactive-${String(sent)}`;
        expectServed(await openChat(stack, { class: "interactive", name, body }).answer);
      }
    });
    await stack.until("interactive requests wait", () => (stack.held()["queued"] ?? 0) > 5);
    const bulkSentAt = performance.now();
    const bulk = Array.from({ length: BULK }, (_, index) =>
      openChat(stack, { class: "bulk", name: `bulk-${String(index)}`, body }),
    );
    const ofBulk = (): readonly string[] =>
      [...arrivals.seen.keys()].filter((name) => name.startsWith("bulk"));
    /** What was served from the first bulk request on. */
    const served = (): readonly string[] => {
      const names = [...arrivals.seen.keys()];
      const first = names.findIndex((name) => name.startsWith("bulk"));
      return first < 0 ? [] : names.slice(first);
    };
    await stack.until("three windows of dispatches", () => served().length >= WINDOWS * WINDOW);
    const underLoad = served().slice(0, WINDOWS * WINDOW);
    loaded = false;
    await Promise.all(clients);
    for (const { answer } of bulk) expectServed(await answer);
    arrivals.stop();

    const [first = ""] = ofBulk();
    const firstAfterMs = (arrivals.seen.get(first) ?? 0) - bulkSentAt;
    expect(firstAfterMs).to.be.at.least(THRESHOLD_SECS * 1_000);
    for (let window = 0; window < WINDOWS; window += 1) {
      const names = underLoad.slice(window * WINDOW, (window + 1) * WINDOW);
      const promoted = names.filter((name) => name.startsWith("bulk")).length;
      // All it may have and no more: whoever waits longer than the threshold is always there.
      expect(promoted, `window ${String(window)}`).to.equal(PROMOTIONS);
    }

    await stack.idle();
    await expectAccounted(stack, sent + BULK);
    const series = await scrape(stack);
    const promotions = "weir_scheduler_starvation_promotion_total";
    expect(series(promotions, { class: "bulk" })).to.equal(BULK);
    expect(series(promotions)).to.equal(BULK);
    expect(worker.state()).to.include({ cancelled: 0, peak_running: 1, served: sent + BULK });
  });
});
