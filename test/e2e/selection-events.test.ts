// Goal: with `ownership: events` a token prompt goes where the engine itself says that its blocks are,
// also when Weir has never seen a success there; what an engine drops is forgotten, and missed events
// make nothing up. Method: workers that publish like vLLM, warmed behind Weir's back.
import { expect } from "chai";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import { ask, selectionOf, type Asked, type WorkerBooks } from "../support/cached-chat.js";
import { scrape } from "../support/class-chat.js";
import { request } from "../support/http-client.js";
import {
  BLOCK_TOKENS,
  bodyOf,
  eventBlocks,
  promptOf,
  restartEngine,
  startEngines,
  warmAt,
  WORKERS,
  type Engines,
} from "../support/kv-engines.js";
import type { Stack } from "../support/stack.js";

describe("workers that publish what their KV caches hold, through Envoy", function () {
  this.timeout(60_000);
  let engines: Engines;
  let stack: Stack;
  /** Names of prompts; none is used twice. */
  let names = 0;
  const fresh = (blocks: number): readonly number[] => promptOf((names += 1), blocks);

  before(async () => {
    engines = await startEngines();
    stack = engines.stack;
    // A subscription takes a moment, and what was published before it is not told.
    for (const index of engines.workers.keys()) {
      await stack.until("its events arrive", async () => {
        await warm(index, fresh(1));
        return (await books(index)).event_blocks > 0;
      });
      await flush(index);
    }
    await untilKnown();
  });
  after(() => engines.stop());

  function workerAt(index: number): MockWorker {
    const worker = engines.workers[index];
    if (worker === undefined) throw new Error(`no worker ${String(index)}`);
    return worker;
  }

  const warm = (index: number, prompt: readonly number[]): Promise<void> =>
    warmAt(workerAt(index), prompt);

  const complete = (prompt: readonly number[]): Promise<Asked> =>
    ask(stack, { path: "/v1/completions", body: bodyOf(prompt) });

  async function books(index: number): Promise<WorkerBooks> {
    const { workers } = await selectionOf(stack);
    const { url } = workerAt(index);
    const found = workers.find((worker) => worker.url === url);
    if (found === undefined) throw new Error(`${url} is not on the page`);
    return found;
  }

  /** Waits until Weir knows as many blocks of these workers as they have. */
  async function untilKnown(
    indices: readonly number[] = [...engines.workers.keys()],
  ): Promise<void> {
    for (const index of indices) {
      const { blocks } = workerAt(index).state().cache;
      await stack.until(
        `${String(blocks)} blocks of worker ${String(index)}`,
        async () => (await books(index)).event_blocks === blocks,
      );
    }
  }

  const recoveries = async (index: number): Promise<number> =>
    (await scrape(stack))("weir_kv_event_sequence_gap_recoveries_total", {
      worker: workerAt(index).url,
    });

  async function flush(index: number): Promise<void> {
    const { port } = workerAt(index);
    await request({ port, method: "POST", path: "/reset_prefix_cache" });
  }

  /** The prompt goes to the worker that has so many of its blocks, and is found there. */
  async function expectAt(
    index: number,
    prompt: readonly number[],
    matchedBlocks: number,
  ): Promise<void> {
    const { worker, decision, record } = await complete(prompt);
    expect(decision).to.include({
      result: "owner_match",
      ownership: "events",
      owners: 1,
      matchedBlocks,
    });
    expect(worker).to.equal(workerAt(index).url);
    expect(record.cachedTokens).to.equal(matchedBlocks * BLOCK_TOKENS);
  }

  async function expectUnowned(prompt: readonly number[]): Promise<void> {
    const { decision, record } = await complete(prompt);
    expect(decision).to.include({ result: "no_owner", owners: 0, matchedBlocks: 0 });
    expect(decision?.ownership).to.equal(undefined);
    expect(record.cachedTokens).to.equal(0);
  }

  it("get the token prompts that they were warmed with, though Weir has seen no success there", async () => {
    const prompts = engines.workers.map(() => fresh(4));
    for (const [index, prompt] of prompts.entries()) await warm(index, prompt);
    await untilKnown();
    for (const [index, prompt] of prompts.entries()) {
      expect(await books(index)).to.include({ committed_blocks: 0, processed: 0 });
      await expectAt(index, prompt, 4);
    }
    const [model] = (await selectionOf(stack)).models;
    expect(model).to.include({ ownership: "events", events_block_size: BLOCK_TOKENS });
  });

  it("get a longer prompt at the one that has more of its beginning", async () => {
    const prompt = fresh(6);
    await warm(0, prompt.slice(0, 2 * BLOCK_TOKENS + 1));
    await warm(1, prompt.slice(0, 5 * BLOCK_TOKENS + 1));
    await untilKnown();
    await expectAt(1, prompt, 5);
  });

  it("lose a prompt when their engine evicts it", async () => {
    const early = fresh(3);
    await flush(0);
    await warm(0, early);
    await untilKnown();
    const before = workerAt(0).state().cache.evictions;
    await warm(0, fresh(20));
    // Needs a begun block and one of output as well: 3 + 20 + 20 are three more than there are.
    await warm(0, fresh(18));
    expect(workerAt(0).state().cache.evictions).to.equal(before + 3);
    await untilKnown();
    await expectUnowned(early);
  });

  it("lose every prompt when their engine empties its cache", async () => {
    const prompt = fresh(4);
    await warm(1, prompt);
    await untilKnown();
    await flush(1);
    await stack.until("nothing is known", async () => (await books(1)).event_blocks === 0);
    await expectUnowned(prompt);
  });

  it("keep their prompts over a gap in the events that a replay can fill", async () => {
    const [missed, next] = [fresh(4), fresh(2)];
    const before = await recoveries(0);
    await flush(0);
    await untilKnown();
    workerAt(0).setFaults({ kv_drop: 1 });
    await warm(0, missed);
    await warm(0, next);
    await untilKnown();
    expect(await recoveries(0)).to.equal(before);
    await expectAt(0, missed, 4);
    await expectAt(0, next, 2);
  });

  it("start from nothing after a gap that cannot be filled, and count it", async () => {
    const last = WORKERS - 1;
    const [known, missed, next] = [fresh(3), fresh(4), fresh(2)];
    await flush(last);
    await untilKnown();
    await warm(last, known);
    await untilKnown();
    const before = await recoveries(last);
    workerAt(last).setFaults({ kv_drop: 1 });
    await warm(last, missed);
    await warm(last, next);
    await stack.until("the gap is seen", async () => (await recoveries(last)) === before + 1);
    // Of what was there before nothing is claimed: an eviction may have been among the missed events.
    await stack.until("the next batch", async () => (await books(last)).event_blocks === 2);
    await expectAt(last, next, 2);
    for (const prompt of [known, missed]) {
      const { decision } = await complete(prompt);
      expect(decision).to.include({ result: "no_owner" });
    }
  });

  it("start from nothing when their numbers begin anew", async () => {
    const last = WORKERS - 1;
    const [early, late] = [fresh(3), fresh(2)];
    await warm(last, early);
    await stack.until("some are known", async () => (await books(last)).event_blocks >= 3);
    const before = await recoveries(last);
    workerAt(last).setFaults({ kv_restart: true });
    await warm(last, late);
    await stack.until("only the new ones", async () => (await books(last)).event_blocks === 2);
    await expectAt(last, late, 2);
    expect((await complete(early)).decision).to.include({ result: "no_owner" });
    expect(await recoveries(last)).to.equal(before);
  });

  it("are followed again after a restart of the engine, which has an empty cache", async () => {
    const [early, late] = [fresh(4), fresh(3)];
    await warm(0, early);
    await untilKnown([0]);
    await restartEngine(engines, 0);
    await warm(0, late);
    // Until the subscription stands again its events reach nobody; the replay has them.
    await stack.until("it is followed", async () => {
      await warm(0, fresh(1));
      return (await books(0)).event_blocks === workerAt(0).state().cache.blocks;
    });
    const healthy = (): boolean => [...stack.app.workers.all()].every((worker) => worker.healthy);
    await stack.until("it is healthy", healthy);
    await expectAt(0, late, 3);
    await expectUnowned(early);
  });
});

describe("a Weir that starts when its engines are warm, through Envoy", function () {
  this.timeout(60_000);

  it("knows their caches from the first event on where a replay has the earlier ones", async () => {
    const early = [promptOf(1, 4), promptOf(2, 5), promptOf(3, 6)];
    const { stack, workers, stop } = await startEngines(early);
    try {
      expect(await eventBlocks(stack)).to.deep.equal([0, 0, 0]);
      let late = 3;
      const [first, second, last] = workers;
      // An event that is published before the subscription stands is an earlier one too.
      await stack.until("all engines are heard", async () => {
        late += 1;
        for (const worker of workers) await warmAt(worker, promptOf(late, 1));
        return (await eventBlocks(stack)).every((blocks) => blocks > 0);
      });
      const held = (): number[] => workers.map((worker) => worker.state().cache.blocks);
      await stack.until("the replays are read", async () => {
        const known = await eventBlocks(stack);
        return known[0] === held()[0] && known[1] === held()[1];
      });
      expect((await eventBlocks(stack))[2]).to.be.at.most((held()[2] ?? 0) - (4 + 5 + 6));
      // Each holds the same prompts, so two of three may be asked.
      const { worker, decision, record } = await ask(stack, {
        path: "/v1/completions",
        body: bodyOf(promptOf(3, 6)),
      });
      expect(decision).to.include({ result: "owner_match", owners: 2, matchedBlocks: 6 });
      expect([first?.url, second?.url]).to.include(worker);
      expect(worker).to.not.equal(last?.url);
      expect(record.cachedTokens).to.equal(6 * BLOCK_TOKENS);
      const series = await scrape(stack);
      expect(series("weir_kv_event_sequence_gap_recoveries_total")).to.equal(0);
    } finally {
      await stop();
    }
  });
});
