// Goal: what the mock worker publishes is what its cache holds, in bytes that a reader of vLLM's events
// understands. Method: its bytes against ones by hand; then Weir's own feed and index follow it over real
// sockets, and the worker's own hit counts judge whether they match exactly what it holds.
import { testHasher } from "../support/prefix-hasher.js";
import { expect } from "chai";
import { Dealer } from "zeromq";
import { readFlags } from "../../envoy/mock-worker/options.js";
import { KvCache, type PromptBlock } from "../../envoy/mock-worker/kv-cache.js";
import {
  batch,
  clearedEvent,
  removedEvents,
  storedEvents,
  tokenIdsOf,
} from "../../envoy/mock-worker/kv-events.js";
import type { MockWorkerOptions } from "../../envoy/mock-worker/options.js";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import { modelId } from "../../extproc/core/model/ids.js";
import { EventIndex } from "../../extproc/core/prefixes/event-index.js";
import { KvFeed } from "../../extproc/edge/engines/kv-feed.js";
import { KvFeedView } from "../../extproc/edge/engines/kv-feed-view.js";
import { dataOf, post, until, withWorker, type Data } from "./with-worker.js";

const MODEL = modelId("demo");
/** Four tokens a block. */
const SMALL = { blockChars: 16, kvBlocks: 64, kvEventsPort: 0, kvReplayPort: 0 };

const keyOf = (firstByte: number): string =>
  Buffer.from([firstByte, 0, 0, 0, 0, 0, 0, 9, 1, 1]).toString("base64");
const blockOf = (key: number, parent: number | undefined, text: string): PromptBlock => ({
  key: keyOf(key),
  parent: parent === undefined ? undefined : keyOf(parent),
  text,
});
const bytes = (...parts: readonly string[]): string => parts.join("").replace(/\s+/g, "");

const KEY = {
  type: "a4 74797065",
  hashes: "ac 626c6f636b5f686173686573",
  medium: "a6 6d656469756d a3 475055",
  group: "a9 67726f75705f696478 00",
};

describe("the mock worker's KV events, as bytes", () => {
  it("spells a stored run of blocks as vLLM does", () => {
    const run = [blockOf(0xa0, 0x90, "0001002s"), blockOf(0xa1, 0xa0, "0005zzzz")];
    const [event, ...rest] = storedEvents(run, 2);
    expect(rest).to.deep.equal([]);
    expect(event?.toString("hex")).to.equal(
      bytes(
        ...["8b", KEY.type, "ab 426c6f636b53746f726564"],
        ...[KEY.hashes, "92 cf a000000000000009 cf a100000000000009"],
        ...["b1 706172656e745f626c6f636b5f68617368 cf 9000000000000009"],
        // 1, 100, 5 and 36^4 - 1
        ...["a9 746f6b656e5f696473 94 01 64 05 ce 0019a0ff"],
        ...["aa 626c6f636b5f73697a65 02", "a7 6c6f72615f6964 c0", KEY.medium],
        ...["a9 6c6f72615f6e616d65 c0", "aa 65787472615f6b657973 92 c0 c0", KEY.group],
        ...["b2 6b765f63616368655f737065635f6b696e64 ae 66756c6c5f617474656e74696f6e"],
      ),
    );
  });

  it("spells removed and cleared, in a batch with time and rank", () => {
    expect(batch(1.5, [...removedEvents([keyOf(7)]), clearedEvent()]).toString("hex")).to.equal(
      bytes(
        ...["93 cb 3ff8000000000000 92"],
        ...["84", KEY.type, "ac 426c6f636b52656d6f766564", KEY.hashes, "91 cf 0700000000000009"],
        ...[KEY.medium, KEY.group],
        ...["81", KEY.type, "b0 416c6c426c6f636b73436c6561726564", "00"],
      ),
    );
  });

  it("begins a new event where a block does not follow the one before it", () => {
    const blocks = [blockOf(1, undefined, "aaaa"), blockOf(2, undefined, "bbbb")];
    expect(storedEvents(blocks, 1)).to.have.length(2);
  });

  it("gives token ids back that became text, and other ids for other texts", () => {
    expect(tokenIdsOf("0000" + "000a" + "zzzz")).to.deep.equal([0, 10, 1_679_615]);
    const [first, second] = tokenIdsOf("Abc." + "Abd.");
    expect(first).to.be.at.least(36 ** 4);
    expect(first).not.to.equal(second);
    expect(tokenIdsOf("Abc.")).to.deep.equal([first]);
  });
});

describe("KvCache, observed", () => {
  function observed(capacityBlocks: number): {
    readonly cache: KvCache;
    readonly lines: string[];
  } {
    const lines: string[] = [];
    const cache = new KvCache({
      capacityBlocks,
      blockChars: 4,
      observer: {
        stored: (blocks) => lines.push(`stored ${blocks.map(({ text }) => text).join(" ")}`),
        removed: (keys) => lines.push(`removed ${String(keys.length)}`),
        cleared: () => lines.push("cleared"),
      },
    });
    return { cache, lines };
  }

  const run = (cache: KvCache, prompt: string): void => {
    const hold = cache.tryHold(cache.plan([prompt], 0));
    if (hold === undefined) throw new Error("no room");
    cache.publish(hold);
    cache.release(hold);
  };

  it("tells each block once, when it comes to be remembered", () => {
    const { cache, lines } = observed(100);
    run(cache, "aaaabbbbc");
    run(cache, "aaaabbbbccccd");
    expect(lines).to.deep.equal(["stored aaaa bbbb", "stored cccc"]);
  });

  it("tells a block once when two requests computed it", () => {
    const { cache, lines } = observed(100);
    const first = cache.tryHold(cache.plan(["aaaab"], 0));
    const second = cache.tryHold(cache.plan(["aaaab"], 0));
    if (first === undefined || second === undefined) throw new Error("no room");
    cache.publish(first);
    cache.publish(second);
    expect(lines).to.deep.equal(["stored aaaa"]);
  });

  it("tells what is evicted before what takes its place", () => {
    const { cache, lines } = observed(3);
    run(cache, "aaaabbbbc");
    run(cache, "xxxxyyyyz");
    expect(lines).to.deep.equal(["stored aaaa bbbb", "removed 2", "stored xxxx yyyy"]);
  });

  it("tells a flush, by block when a running request keeps some", () => {
    const { cache, lines } = observed(100);
    run(cache, "aaaabbbbc");
    cache.tryHold(cache.plan(["aaaaX"], 0));
    cache.flush();
    expect(lines.at(-1)).to.equal("removed 1");
    const other = observed(100);
    run(other.cache, "aaaabbbbc");
    other.cache.flush();
    expect(other.lines.at(-1)).to.equal("cleared");
  });
});

/** Weir's own feed and index, following one mock worker. */
class Follower {
  readonly index = new EventIndex({
    hasher: testHasher(),
    maxBytesPerWorker: 1_000_000,
    defaultBlockSize: 16,
    maxBlocks: 64,
  });
  readonly failures: string[] = [];
  recoveries = 0;
  batches = 0;
  readonly feed: KvFeed;

  constructor(worker: MockWorker) {
    const events = worker.state().kv_events;
    if (events === undefined) throw new Error("the worker publishes nothing");
    const replay = events.replay_port;
    this.feed = new KvFeed({
      endpoint: `tcp://127.0.0.1:${String(events.port)}`,
      replayEndpoint: replay === null ? undefined : `tcp://127.0.0.1:${String(replay)}`,
      topic: "",
      view: new KvFeedView({ generation: 1, rank: 0, model: MODEL }, this.index),
      listener: {
        recovered: () => (this.recoveries += 1),
        failed: (reason, detail) => this.failures.push(`${reason}: ${detail}`),
        received: () => (this.batches += 1),
      },
    });
  }

  /** Blocks of the prompt that the worker holds, as the index has it. */
  blocksOf(tokens: readonly number[]): number {
    return this.index.match(MODEL, tokens).blocks;
  }
}

async function followed(
  options: Partial<MockWorkerOptions>,
  body: (worker: MockWorker, follower: Follower) => Promise<void>,
): Promise<void> {
  await withWorker(options, async (worker) => {
    const follower = new Follower(worker);
    try {
      // A publisher lets go what comes before its subscribers: blocks are made until one has come through.
      for (let i = 0; follower.batches === 0; i += 1) {
        await complete(worker, Array<number>(5).fill(1_000_000 + i));
      }
      await body(worker, follower);
      expect(follower.failures).to.deep.equal([]);
    } finally {
      await follower.feed.stop();
    }
  });
}

/** Runs a prompt of token ids; its cached tokens as the worker reports them. */
async function complete(worker: MockWorker, prompt: readonly number[] | string): Promise<number> {
  const body = { model: "demo", prompt, max_tokens: 1 };
  const answer = (await (await post(worker, { path: "/v1/completions", body })).json()) as Data;
  const usage = answer["usage"] as { prompt_tokens_details: { cached_tokens: number } };
  return usage.prompt_tokens_details.cached_tokens;
}

const batchesOf = (worker: MockWorker): number => worker.state().kv_events?.batches ?? 0;
const ids = (from: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => from + i);

describe("the mock worker's publisher", () => {
  it("lets Weir match exactly what the worker then reports as cached", async () => {
    await followed(SMALL, async (worker, follower) => {
      const prompt = ids(100, 14);
      expect(follower.blocksOf(prompt)).to.equal(0);
      expect(await complete(worker, prompt)).to.equal(0);
      await until(() => follower.blocksOf(prompt) === 3);
      expect(await complete(worker, [...prompt.slice(0, 8), 1, 2, 3, 4, 5])).to.equal(8);
      expect(await complete(worker, prompt)).to.equal(3 * 4);
      expect(follower.index.blockSizeOf(MODEL)).to.equal(4);
    });
  });

  it("publishes the ids of input_ids too", async () => {
    await followed(SMALL, async (worker, follower) => {
      const body = { input_ids: ids(300, 9), sampling_params: { max_new_tokens: 1 }, stream: true };
      dataOf(await (await post(worker, { path: "/generate", body })).text());
      await until(() => follower.blocksOf(ids(300, 9)) === 2);
    });
  });

  it("publishes what is evicted and what is flushed", async () => {
    await followed({ ...SMALL, kvBlocks: 4 }, async (worker, follower) => {
      await complete(worker, ids(100, 9));
      await until(() => follower.blocksOf(ids(100, 9)) === 2);
      await complete(worker, ids(200, 13));
      await until(() => follower.blocksOf(ids(200, 13)) === 3);
      expect(follower.blocksOf(ids(100, 9))).to.equal(0);
      await post(worker, { path: "/flush_cache", body: {} });
      await until(() => follower.blocksOf(ids(200, 13)) === 0);
      expect(follower.recoveries).to.equal(0);
    });
  });

  it("drops batches on their way when told so; the replay has them", async () => {
    await followed(SMALL, async (worker, follower) => {
      worker.setFaults({ kv_drop: 2 });
      const before = batchesOf(worker);
      for (const from of [100, 200, 300]) await complete(worker, ids(from, 5));
      expect(batchesOf(worker)).to.equal(before + 3);
      await until(() => [100, 200, 300].every((from) => follower.blocksOf(ids(from, 5)) === 1));
      expect(follower.recoveries).to.equal(0);
    });
  });

  it("leaves a gap for good without a replay", async () => {
    const noReplay = { blockChars: 16, kvBlocks: 64, kvEventsPort: 0 };
    await followed(noReplay, async (worker, follower) => {
      await complete(worker, ids(100, 5));
      await until(() => follower.blocksOf(ids(100, 5)) === 1);
      worker.setFaults({ kv_drop: 1 });
      for (const from of [200, 300]) await complete(worker, ids(from, 5));
      await until(() => follower.blocksOf(ids(300, 5)) === 1);
      expect([100, 200].map((from) => follower.blocksOf(ids(from, 5)))).to.deep.equal([0, 0]);
      expect(follower.recoveries).to.equal(1);
    });
  });

  it("numbers its batches anew when told so", async () => {
    await followed(SMALL, async (worker, follower) => {
      await complete(worker, ids(100, 5));
      await until(() => follower.blocksOf(ids(100, 5)) === 1);
      const answer = await post(worker, { path: "/mock/faults", body: { kv_restart: true } });
      expect(answer.status).to.equal(200);
      expect(batchesOf(worker)).to.equal(0);
      await complete(worker, ids(200, 5));
      await until(() => follower.blocksOf(ids(200, 5)) === 1);
      expect(follower.blocksOf(ids(100, 5))).to.equal(0);
      expect(batchesOf(worker)).to.equal(1);
    });
  });

  it("answers a replay as vLLM does: delimiter, topic, sequence, payload, and -1 at the end", async () => {
    await withWorker(SMALL, async (worker) => {
      for (const from of [100, 200, 300]) await complete(worker, ids(from, 5));
      const dealer = new Dealer({ linger: 0 });
      try {
        dealer.connect(`tcp://127.0.0.1:${String(worker.state().kv_events?.replay_port)}`);
        await dealer.send([Buffer.alloc(0), Buffer.from("0000000000000001", "hex")]);
        const answers: (readonly string[])[] = [];
        while (answers.at(-1)?.[2] !== "ffffffffffffffff") {
          answers.push((await dealer.receive()).map((frame) => frame.toString("hex")));
        }
        expect(answers.map((frames) => frames.slice(0, 3))).to.deep.equal([
          ["", "", "0000000000000001"],
          ["", "", "0000000000000002"],
          ["", "", "ffffffffffffffff"],
        ]);
        expect(answers.map((frames) => frames[3] === "")).to.deep.equal([false, false, true]);
      } finally {
        dealer.close();
      }
    });
  });

  it("says that a worker without a publisher has no faults of one", async () => {
    await withWorker({}, async (worker) => {
      expect(() => {
        worker.setFaults({ kv_drop: 1 });
      }).to.throw("this worker publishes no KV events");
      const answer = await post(worker, { path: "/mock/faults", body: { kv_restart: true } });
      expect(answer.status).to.equal(409);
      expect(worker.state()).not.to.have.property("kv_events");
    });
  });

  it("reads its flags, and refuses a replay of nothing", () => {
    const read = readFlags(["--kv-events-port", "5557", "--kv-replay-port=5558"]);
    if (read.kind === "error") throw new Error(read.message);
    expect([read.options.kvEventsPort, read.options.kvReplayPort]).to.deep.equal([5557, 5558]);
    expect(readFlags(["--kv-replay-port", "5558"])).to.deep.equal({
      kind: "error",
      message: "flag --kv-replay-port needs --kv-events-port: there is nothing to replay",
    });
    expect(readFlags(["--kv-events-port", "65536"]).kind).to.equal("error");
  });
});
