// Goal: a view is never other than what the engine's cache held after the last batch that was read.
// Method: real ZeroMQ sockets on loopback, a publisher that follows vLLM's format, and a sink that writes
// down what it is told; nothing is waited for but what comes.
import { expect } from "chai";
import { modelId } from "../../../extproc/core/model/ids.js";
import { KvFeed, type KvFeedOptions } from "../../../extproc/edge/engines/kv-feed.js";
import { KvFeedView } from "../../../extproc/edge/engines/kv-feed-view.js";
import { MESSAGE_MAX_WIRE_BYTES } from "../../../extproc/edge/engines/kv-wire.js";
import { freePort } from "../../support/ports.js";
import {
  batchOf,
  FIRST_HASH,
  MAPS,
  POSITIONAL,
  removedEvent,
  SECOND_HASH,
  storedEvent,
  storing,
} from "./kv-events-bytes.js";
import {
  sequenceBytes,
  startPublisher,
  type KvPublisher,
  type PublisherOptions,
} from "./kv-publisher.js";
import { SinkLog } from "./kv-sink-log.js";

const VIEW = { generation: 1, rank: 0, model: modelId("demo") };

/** A feed with everything it tells. */
class Followed {
  readonly sink = new SinkLog();
  readonly recoveries: string[] = [];
  readonly failures: string[] = [];
  readonly details: string[] = [];
  batches = 0;
  readonly feed: KvFeed;
  #wake: () => void = () => undefined;

  constructor(endpoint: string, over: Partial<KvFeedOptions> = {}) {
    this.feed = new KvFeed({
      endpoint,
      replayEndpoint: undefined,
      topic: "",
      view: new KvFeedView(VIEW, this.sink),
      listener: {
        recovered: (detail) => {
          this.recoveries.push(detail);
          this.#wake();
        },
        failed: (reason, detail) => {
          this.failures.push(reason);
          this.details.push(detail);
          this.#wake();
        },
        received: () => {
          this.batches += 1;
          this.#wake();
        },
      },
      ...over,
    });
  }

  /** Resolves when it is so; looked at whenever the feed has told something. */
  async until(isSo: () => boolean): Promise<void> {
    while (!isSo()) await new Promise<void>((resolve) => (this.#wake = resolve));
  }
}

describe("KvFeed", () => {
  let engines: KvPublisher[] = [];
  let followed: Followed[] = [];

  afterEach(async () => {
    await Promise.all(followed.map(({ feed }) => feed.stop()));
    for (const engine of engines) engine.close();
    engines = [];
    followed = [];
  });

  async function engineWith(options: PublisherOptions = {}): Promise<KvPublisher> {
    const engine = await startPublisher(options);
    engines.push(engine);
    return engine;
  }

  async function follow(engine: KvPublisher, over: Partial<KvFeedOptions> = {}): Promise<Followed> {
    const one = new Followed(engine.endpoint, over);
    followed.push(one);
    await engine.subscribed();
    return one;
  }

  const withReplay = (engine: KvPublisher): Partial<KvFeedOptions> => ({
    replayEndpoint: engine.replayEndpoint,
  });

  /** Publishes blocks 10, 11, … one per batch, with sequences from `first`. */
  async function publishBlocks(engine: KvPublisher, first: number, last: number): Promise<void> {
    for (let i = first; i <= last; i += 1) await engine.publish(i, storing(10 + i));
  }

  for (const [spelling, bytes] of [
    ["positional", POSITIONAL],
    ["map", MAPS],
  ] as const) {
    it(`follows stored, removed and cleared in vLLM's ${spelling} spelling`, async () => {
      const engine = await engineWith();
      const feed = await follow(engine);
      await engine.publish(0, bytes.stored);
      await feed.until(() => feed.batches === 1);
      expect(feed.sink.held()).to.deep.equal([FIRST_HASH, SECOND_HASH]);
      await engine.publish(1, bytes.removed);
      await feed.until(() => feed.batches === 2);
      expect(feed.sink.held()).to.deep.equal([FIRST_HASH]);
      await engine.publish(2, bytes.cleared);
      await feed.until(() => feed.batches === 3);
      expect(feed.sink.held()).to.deep.equal([]);
      expect(feed.failures).to.deep.equal([]);
    });
  }

  it("takes only messages of its topic", async () => {
    const engine = await engineWith();
    const feed = await follow(engine, { topic: "kv@" });
    await engine.sendRaw([Buffer.from("other"), sequenceBytes(0), storing(1)]);
    await engine.sendRaw([Buffer.from("kv@host"), sequenceBytes(0), storing(2)]);
    await feed.until(() => feed.batches === 1);
    expect(feed.sink.held()).to.deep.equal(["2"]);
  });

  it("ignores a batch whose sequence it has seen", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 0, 20);
    await engine.publish(20, storing(30));
    await engine.publish(5, storing(15));
    await engine.publish(21, storing(31));
    await feed.until(() => feed.batches === 22);
    expect(feed.sink.held()).to.have.length(22);
    expect([feed.failures, feed.recoveries]).to.deep.equal([[], []]);
  });

  for (const [title, batch] of [
    ["with another content", storing(99)],
    ["after more than 16 others", storing(14)],
  ] as const) {
    it(`takes a batch ${title} under a passed number for that of an engine started over`, async () => {
      const engine = await engineWith();
      const feed = await follow(engine);
      await publishBlocks(engine, 0, 20);
      await engine.publish(4, batch);
      await engine.publish(5, storing(55));
      await feed.until(() => feed.batches === 23);
      expect(feed.sink.held()).to.have.length(2);
      expect(feed.sink.held()).to.include("55");
      expect(feed.recoveries).to.deep.equal([
        "number 4 came again after 20: the engine has started over",
      ]);
    });
  }

  it("follows an engine that restarts behind a relay, and whose first batch is lost", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 0, 50);
    for (let i = 1; i <= 50; i += 1) await engine.publish(i, storing(1_000 + i));
    await feed.until(() => feed.batches === 101);
    expect(feed.sink.held()).to.have.length(50);
    expect(feed.sink.held().every((hash) => Number(hash) > 1_000)).to.equal(true);
    expect(feed.recoveries).to.have.length(1);
  });

  it("takes a jump of 4,000,000 batches for a gap and one more for a fault that moves nothing", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 0, 0);
    await engine.publish(4_000_000, storing(1));
    await engine.publish(8_000_001, storing(2));
    await engine.publish(4_000_001, storing(3));
    await engine.publish(Number.MAX_SAFE_INTEGER, storing(4));
    await engine.publish(4_000_002, storing(5));
    await feed.until(() => feed.batches === 4);
    expect(feed.sink.held()).to.deep.equal(["5"]);
    expect(feed.recoveries).to.deep.equal(["3999999 batches from 1 are missing"]);
    expect(feed.details).to.deep.equal([
      "batch 8000001 follows 4000000",
      "batch 9007199254740991 follows 4000001",
    ]);
  });

  it("believes a jump when the next batch goes on from it", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 0, 0);
    for (const number of [9_000_000, 9_000_001, 9_000_002]) {
      await engine.publish(number, storing(number));
    }
    await feed.until(() => feed.batches === 3);
    expect(feed.sink.held()).to.deep.equal(["9000001", "9000002"]);
    expect(feed.failures).to.deep.equal(["malformed"]);
  });

  it("lets others run while it takes a large batch, and nothing of it in once it is stopped", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    const hashes = Array.from({ length: 16_384 }, (_, i) => i);
    const token_ids = hashes.flatMap((hash) => [hash, hash]);
    const event = storedEvent({ block_hashes: hashes, token_ids, block_size: 2 });
    await engine.publish(0, batchOf(event, event));
    while (feed.sink.lines.length === 0) await new Promise((resolve) => setImmediate(resolve));
    const pieces = feed.sink.lines.length;
    expect(pieces).to.be.below(256);
    await feed.feed.stop();
    expect(feed.sink.lines).to.have.length(pieces);
    expect(feed.batches).to.equal(0);
  });

  for (const replayForm of ["old", "new"] as const) {
    it(`closes a gap by the ${replayForm} replay, in order, without clearing`, async () => {
      const engine = await engineWith({ replayForm, topic: "kv" });
      const feed = await follow(engine, withReplay(engine));
      await publishBlocks(engine, 0, 1);
      engine.lose(2, storing(12));
      engine.lose(3, batchOf(removedEvent([12])));
      await engine.publish(4, storing(14));
      await feed.until(() => feed.batches === 5);
      expect(feed.sink.held()).to.deep.equal(["10", "11", "14"]);
      expect(engine.asked).to.deep.equal([2]);
      expect([feed.recoveries, feed.failures]).to.deep.equal([[], []]);
    });
  }

  it("asks again where an answer broke off", async () => {
    const engine = await engineWith();
    const feed = await follow(engine, withReplay(engine));
    await publishBlocks(engine, 0, 0);
    for (let i = 1; i <= 5; i += 1) engine.lose(i, storing(10 + i));
    engine.lostOnce.add(3);
    await engine.publish(6, storing(16));
    await feed.until(() => feed.batches === 7);
    expect(feed.sink.held()).to.deep.equal(["10", "11", "12", "13", "14", "15", "16"]);
    expect(engine.asked).to.deep.equal([1, 3]);
    expect(feed.recoveries).to.deep.equal([]);
  });

  it("asks again soon where an answer broke off, with its end", async () => {
    const engine = await engineWith();
    const feed = await follow(engine, { ...withReplay(engine), replayWaitMs: 60_000 });
    await publishBlocks(engine, 0, 0);
    for (let i = 1; i <= 5; i += 1) engine.lose(i, storing(10 + i));
    engine.cutOnceAfter = 3;
    await engine.publish(6, storing(16));
    await feed.until(() => feed.batches === 7);
    expect(feed.sink.held()).to.deep.equal(["10", "11", "12", "13", "14", "15", "16"]);
    expect(engine.asked).to.deep.equal([1, 4]);
    expect([feed.recoveries, feed.failures]).to.deep.equal([[], []]);
  });

  it("clears the view at a gap without replay, counts it and goes on", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 0, 1);
    await engine.publish(5, storing(15));
    await engine.publish(6, storing(16));
    await feed.until(() => feed.batches === 4);
    expect(feed.sink.held()).to.deep.equal(["15", "16"]);
    expect(feed.recoveries).to.deep.equal(["3 batches from 2 are missing"]);
  });

  it("clears the view when the engine has only the end of a gap, and keeps that end", async () => {
    const engine = await engineWith();
    const feed = await follow(engine, withReplay(engine));
    await publishBlocks(engine, 0, 1);
    engine.lose(4, storing(14));
    await engine.publish(5, storing(15));
    await feed.until(() => feed.batches === 4);
    expect(feed.sink.held()).to.deep.equal(["14", "15"]);
    expect(feed.recoveries).to.deep.equal(["2 batches from 2 are missing"]);
  });

  it("clears the view when the replay does not answer in time", async () => {
    const engine = await engineWith();
    engine.silent = true;
    const feed = await follow(engine, { ...withReplay(engine), replayWaitMs: 50 });
    await publishBlocks(engine, 0, 1);
    await engine.publish(3, storing(13));
    await feed.until(() => feed.batches === 3);
    expect(feed.sink.held()).to.deep.equal(["13"]);
    expect(feed.failures).to.deep.equal(["replay"]);
    expect(feed.recoveries).to.have.length(1);
  });

  it("fetches what was published before it came", async () => {
    const engine = await engineWith();
    for (let i = 0; i < 3; i += 1) engine.lose(i, storing(10 + i));
    const feed = await follow(engine, withReplay(engine));
    await engine.publish(3, storing(13));
    await feed.until(() => feed.batches === 4);
    expect(feed.sink.held()).to.deep.equal(["10", "11", "12", "13"]);
    expect(engine.asked).to.deep.equal([0]);
    expect(feed.recoveries).to.deep.equal([]);
  });

  it("goes on from the first batch when there is nothing to fetch before it", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 7, 8);
    await feed.until(() => feed.batches === 2);
    expect(feed.sink.held()).to.deep.equal(["17", "18"]);
    expect(feed.recoveries).to.deep.equal([]);
  });

  it("starts over when the sequence does", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 0, 2);
    await engine.publish(0, storing(20));
    await engine.publish(1, storing(21));
    await feed.until(() => feed.batches === 5);
    expect(feed.sink.held()).to.deep.equal(["20", "21"]);
    expect(feed.recoveries).to.deep.equal([]);
  });

  for (const [title, frames] of [
    ["a payload that is none", [Buffer.alloc(0), sequenceBytes(1), Buffer.from("c1", "hex")]],
    ["a sequence of seven bytes", [Buffer.alloc(0), Buffer.alloc(7), MAPS.cleared]],
    ["two parts", [sequenceBytes(1), MAPS.cleared]],
    ["a sequence above 2^53 - 1", [Buffer.alloc(0), Buffer.alloc(8, 0xfe), MAPS.cleared]],
  ] as const) {
    it(`trusts its view no more after ${title}, and goes on`, async () => {
      const engine = await engineWith();
      const feed = await follow(engine);
      await publishBlocks(engine, 0, 0);
      await engine.sendRaw(frames);
      await feed.until(() => feed.failures.length === 1);
      expect(feed.sink.held()).to.deep.equal([]);
      expect(feed.failures).to.deep.equal(["malformed"]);
      await engine.publish(2, storing(12));
      await feed.until(() => feed.batches === 2);
      expect(feed.sink.held()).to.deep.equal(["12"]);
    });
  }

  it("refuses a message of 10 MiB and goes on behind it on the same connection", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 0, 0);
    await engine.publish(1, Buffer.alloc(MESSAGE_MAX_WIRE_BYTES));
    await engine.publish(2, storing(12));
    await feed.until(() => feed.batches === 2);
    expect(feed.sink.held()).to.deep.equal(["12"]);
    expect(feed.failures).to.deep.equal(["too_large"]);
    expect(feed.details[0]).to.contain("10485760 bytes; at most 4194304");
    expect(feed.recoveries).to.deep.equal([]);
  });

  it("opens a connection anew that ZeroMQ gave up for a message of a byte more", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    await publishBlocks(engine, 0, 0);
    await feed.until(() => feed.batches === 1);
    await engine.publish(1, Buffer.alloc(MESSAGE_MAX_WIRE_BYTES + 1));
    await engine.subscribed(2);
    await engine.publish(2, storing(12));
    await feed.until(() => feed.batches === 2);
    expect(feed.sink.held()).to.deep.equal(["12"]);
    expect(feed.failures).to.deep.equal(["connect"]);
    expect(feed.recoveries).to.deep.equal(["1 batches from 1 are missing"]);
  });

  it("survives a sink that fails", async () => {
    const engine = await engineWith();
    const feed = await follow(engine);
    const stored = feed.sink.stored.bind(feed.sink);
    feed.sink.stored = () => {
      throw new Error("no room");
    };
    await publishBlocks(engine, 0, 0);
    await feed.until(() => feed.failures.length === 1);
    expect(feed.details).to.deep.equal(["a fault: no room"]);
    feed.sink.stored = stored;
    await publishBlocks(engine, 1, 1);
    await feed.until(() => feed.batches === 1);
    expect(feed.sink.held()).to.deep.equal(["11"]);
  });

  describe("when the publisher goes away and comes back", () => {
    /** Two batches, then the engine's ports are closed; another one may take them. */
    async function away(feed: Followed, engine: KvPublisher): Promise<PublisherOptions> {
      await publishBlocks(engine, 0, 1);
      await feed.until(() => feed.batches === 2);
      engine.close();
      await feed.until(() => feed.failures.includes("connect"));
      return { port: engine.port, replayPort: engine.replayPort };
    }

    it("keeps the view when the numbers go on", async () => {
      const engine = await engineWith();
      const feed = await follow(engine);
      const again = await engineWith(await away(feed, engine));
      await again.subscribed();
      await again.publish(2, storing(12));
      await feed.until(() => feed.batches === 3);
      expect(feed.sink.held()).to.deep.equal(["10", "11", "12"]);
      expect(feed.recoveries).to.deep.equal([]);
    });

    it("fetches what was missed meanwhile from the same engine", async () => {
      const engine = await engineWith();
      const feed = await follow(engine, withReplay(engine));
      const again = await engineWith(await away(feed, engine));
      for (let i = 0; i < 4; i += 1) again.lose(i, storing(10 + i));
      await again.subscribed();
      await again.publish(4, storing(14));
      await feed.until(() => feed.batches === 5);
      expect(feed.sink.held()).to.deep.equal(["10", "11", "12", "13", "14"]);
      expect(again.asked).to.deep.equal([1, 2]);
      expect(feed.recoveries).to.deep.equal([]);
    });

    it("clears the view when a batch is missing", async () => {
      const engine = await engineWith();
      const feed = await follow(engine);
      const again = await engineWith(await away(feed, engine));
      await again.subscribed();
      await again.publish(3, storing(13));
      await feed.until(() => feed.batches === 3);
      expect(feed.sink.held()).to.deep.equal(["13"]);
      expect(feed.recoveries).to.have.length(1);
    });

    it("starts over at any number already passed: the engine has restarted", async () => {
      const engine = await engineWith();
      const feed = await follow(engine);
      const again = await engineWith(await away(feed, engine));
      await again.subscribed();
      await again.publish(1, storing(21));
      await feed.until(() => feed.batches === 3);
      expect(feed.sink.held()).to.deep.equal(["21"]);
      expect(feed.recoveries).to.deep.equal([]);
    });

    it("starts over when another engine's numbers happen to go on", async () => {
      const engine = await engineWith();
      const feed = await follow(engine, withReplay(engine));
      const again = await engineWith(await away(feed, engine));
      again.lose(0, storing(20));
      again.lose(1, storing(21));
      await again.subscribed();
      await again.publish(2, storing(22));
      await feed.until(() => feed.batches === 5);
      expect(feed.sink.held()).to.deep.equal(["20", "21", "22"]);
      expect(again.asked).to.deep.equal([1, 0]);
    });
  });

  it("waits for an engine that is not there yet", async () => {
    const port = await freePort();
    const feed = new Followed(`tcp://127.0.0.1:${String(port)}`);
    followed.push(feed);
    await feed.until(() => feed.failures.length > 0);
    const engine = await engineWith({ port });
    await engine.subscribed();
    await publishBlocks(engine, 0, 0);
    await feed.until(() => feed.batches === 1);
    expect(new Set(feed.failures)).to.deep.equal(new Set(["connect"]));
  });

  it("hears nothing more once it is stopped, also in the midst of a replay", async () => {
    const engine = await engineWith();
    engine.silent = true;
    const feed = await follow(engine, withReplay(engine));
    await publishBlocks(engine, 0, 0);
    await feed.until(() => feed.batches === 1);
    await engine.publish(2, storing(12));
    while (engine.asked.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await feed.feed.stop();
    expect(feed.sink.held()).to.deep.equal(["10"]);
    expect([feed.failures, feed.recoveries]).to.deep.equal([[], []]);
  });
});
