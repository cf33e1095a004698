// Goal: the right feeds run, each for itself, and none outlives its worker. Method: real publishers on
// loopback, a real registry that calls sync() on every change.
import { expect } from "chai";
import { Subscriber } from "zeromq";
import type { KvEventsConfig } from "../../../extproc/core/model/selection-config.js";
import { WorkerRegistry } from "../../../extproc/core/workers/registry.js";
import { KvFeeds } from "../../../extproc/edge/engines/kv-feeds.js";
import {
  connectOptions,
  endpointOf,
  faultOf,
  MESSAGE_MAX_WIRE_BYTES,
} from "../../../extproc/edge/engines/kv-wire.js";
import { RateLimitedLog } from "../../../extproc/edge/telemetry/log.js";
import { freePort, freePorts } from "../../support/ports.js";
import { BREAKER, HEALTH, workerConfig, type WorkerSketch } from "../../support/workers.js";
import { storing } from "./kv-events-bytes.js";
import { startPublisher, type KvPublisher, type PublisherOptions } from "./kv-publisher.js";
import { SinkLog } from "./kv-sink-log.js";

const W1 = "http://127.0.0.1:1";
const W2 = "http://127.0.0.1:2";

/** A free port whose successor is free too. */
async function freePair(): Promise<number> {
  for (;;) {
    const [first, second] = await freePorts(2);
    if (second === first + 1) return first;
  }
}

class Fleet {
  readonly sink = new SinkLog();
  readonly told: string[] = [];
  readonly warnings: string[] = [];
  readonly configs = new Map<string, KvEventsConfig>();
  readonly registry = new WorkerRegistry({
    health: HEALTH,
    breaker: BREAKER,
    onChange: () => {
      this.feeds.sync();
    },
  });
  readonly feeds: KvFeeds;
  #wake: () => void = () => undefined;

  constructor() {
    this.feeds = new KvFeeds({
      workers: () => this.registry.all(),
      configOf: ({ identity }) => this.configs.get(identity.url),
      sink: this.sink,
      listener: {
        recovered: (url) => {
          this.#tell(`${url} recovered`);
        },
        failed: (url, reason) => {
          this.#tell(`${url} ${reason}`);
        },
        received: (url, events) => {
          this.#tell(`${url} received ${String(events)}`);
        },
      },
      log: {
        warn: (facts: unknown, what?: string) => {
          this.warnings.push(`${what ?? ""} ${JSON.stringify(facts)}`);
        },
      },
      complaints: new RateLimitedLog(10_000, () => 0),
    });
  }

  add(sketch: WorkerSketch, engine: KvPublisher, over: Partial<KvEventsConfig> = {}): void {
    const { endpoint } = engine;
    const config = { endpoint, replay_endpoint: undefined, topic: "", ranks: 1, ...over };
    this.configs.set(sketch.url, config);
    this.registry.put(workerConfig(sketch));
  }

  async until(isSo: () => boolean): Promise<void> {
    while (!isSo()) await new Promise<void>((resolve) => (this.#wake = resolve));
  }

  #tell(line: string): void {
    this.told.push(line);
    this.#wake();
  }
}

describe("KvFeeds", () => {
  let engines: KvPublisher[] = [];
  let fleets: Fleet[] = [];

  afterEach(async () => {
    await Promise.all(fleets.map(({ feeds }) => feeds.stop()));
    for (const engine of engines) engine.close();
    engines = [];
    fleets = [];
  });

  async function engineWith(options: PublisherOptions = {}): Promise<KvPublisher> {
    const engine = await startPublisher(options);
    engines.push(engine);
    return engine;
  }

  function fleetOf(): Fleet {
    const fleet = new Fleet();
    fleets.push(fleet);
    return fleet;
  }

  it("follows every rank of a worker at the port that the rank is added to", async () => {
    const port = await freePair();
    const first = await engineWith({ port });
    const second = await engineWith({ port: port + 1 });
    const fleet = fleetOf();
    fleet.add({ url: W1, models: ["base", "adapter"] }, first, { ranks: 2 });
    await Promise.all([first.subscribed(), second.subscribed()]);
    await first.publish(0, storing(1));
    await second.publish(0, storing(2));
    await fleet.until(() => fleet.told.length === 2);
    expect(fleet.sink.held(1, 0)).to.deep.equal(["1"]);
    expect(fleet.sink.held(1, 1)).to.deep.equal(["2"]);
    // The first configured model is the base model, to which an engine's cache belongs.
    expect(fleet.sink.lines.every((line) => line.includes(" base stored"))).to.equal(true);
    expect(fleet.told).to.deep.equal([`${W1} received 1`, `${W1} received 1`]);
  });

  it("asks each rank's replay at the port that the rank is added to", async () => {
    const port = await freePair();
    const replayPort = await freePair();
    const first = await engineWith({ port, replayPort });
    const second = await engineWith({ port: port + 1, replayPort: replayPort + 1 });
    const fleet = fleetOf();
    second.lose(0, storing(1));
    fleet.add({ url: W1 }, first, { ranks: 2, replay_endpoint: first.replayEndpoint });
    await second.subscribed();
    await second.publish(1, storing(2));
    await fleet.until(() => fleet.told.length === 2);
    expect(fleet.sink.held(1, 1)).to.deep.equal(["1", "2"]);
    expect([first.asked, second.asked]).to.deep.equal([[], [0]]);
  });

  it("follows nobody who publishes nothing", async () => {
    const fleet = fleetOf();
    fleet.registry.put(workerConfig({ url: W1 }));
    await fleet.feeds.stop();
    expect([fleet.told, fleet.sink.lines]).to.deep.equal([[], []]);
  });

  it("ends the feed of a removed worker and clears what it told", async () => {
    const engine = await engineWith();
    const other = await engineWith();
    const fleet = fleetOf();
    fleet.add({ url: W1 }, engine);
    fleet.add({ url: W2 }, other);
    await Promise.all([engine.subscribed(), other.subscribed()]);
    await engine.publish(0, storing(1));
    await fleet.until(() => fleet.told.length === 1);
    fleet.registry.remove(W1);
    expect(fleet.sink.held(1)).to.deep.equal([]);
    await engine.publish(1, storing(2));
    await other.publish(0, storing(3));
    await fleet.until(() => fleet.told.length === 2);
    await fleet.feeds.stop();
    expect(fleet.sink.held(1)).to.deep.equal([]);
    expect(fleet.sink.held(2)).to.deep.equal(["3"]);
  });

  it("gives a replaced worker a new feed with an empty view", async () => {
    const engine = await engineWith();
    const successor = await engineWith();
    const fleet = fleetOf();
    fleet.add({ url: W1 }, engine);
    await engine.subscribed();
    await engine.publish(0, storing(1));
    await fleet.until(() => fleet.told.length === 1);
    fleet.add({ url: W1 }, successor);
    expect(fleet.sink.held(1)).to.deep.equal([]);
    await successor.subscribed();
    await successor.publish(0, storing(2));
    await fleet.until(() => fleet.told.length === 2);
    expect(fleet.sink.held(1)).to.deep.equal(["2"]);
  });

  it("keeps a feed when something else changes", async () => {
    const engine = await engineWith();
    const fleet = fleetOf();
    fleet.add({ url: W1 }, engine);
    await engine.subscribed();
    await engine.publish(0, storing(1));
    await fleet.until(() => fleet.told.length === 1);
    fleet.registry.put(workerConfig({ url: W2 }));
    fleet.feeds.sync();
    await engine.publish(1, storing(2));
    await fleet.until(() => fleet.told.length === 2);
    expect(fleet.sink.held(1)).to.deep.equal(["1", "2"]);
  });

  it("lets a worker whose replay hangs hold up no other", async () => {
    const slow = await engineWith();
    slow.silent = true;
    const quick = await engineWith();
    const fleet = fleetOf();
    fleet.add({ url: W1 }, slow, { replay_endpoint: slow.replayEndpoint });
    fleet.add({ url: W2 }, quick);
    await Promise.all([slow.subscribed(), quick.subscribed()]);
    await slow.publish(5, storing(1));
    while (slow.asked.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await quick.publish(0, storing(2));
    await fleet.until(() => fleet.told.length === 1);
    expect(fleet.told).to.deep.equal([`${W2} received 1`]);
  });

  it("counts every failure and logs one line per worker and reason", async () => {
    const engine = await engineWith();
    const fleet = fleetOf();
    fleet.add({ url: W1 }, engine);
    await engine.subscribed();
    await engine.publish(0, storing(1));
    await engine.publish(1, Buffer.from("c1", "hex"));
    await engine.publish(2, Buffer.from("c1", "hex"));
    await engine.publish(4, storing(2));
    await fleet.until(() => fleet.told.length === 5);
    expect(fleet.told).to.deep.equal([
      `${W1} received 1`,
      `${W1} malformed`,
      `${W1} malformed`,
      `${W1} recovered`,
      `${W1} received 1`,
    ]);
    expect(fleet.warnings).to.have.length(2);
    expect(fleet.warnings[0]).to.contain("batch 1: no MessagePack");
    expect(fleet.warnings[1]).to.contain("1 batches from 3 are missing");
  });

  it("follows 520 feeds, each with its sockets", async () => {
    const port = await freePort();
    const fleet = fleetOf();
    const endpoint = `tcp://127.0.0.1:${String(port)}`;
    fleet.configs.set(W1, { endpoint, replay_endpoint: undefined, topic: "", ranks: 520 });
    fleet.registry.put(workerConfig({ url: W1 }));
    await fleet.until(() => fleet.told.length >= 520);
    expect(fleet.warnings.join()).not.to.contain("socket");
    expect(() => {
      new Subscriber().close();
    }).not.to.throw();
  });

  it("starts nothing after it was stopped", async () => {
    const engine = await engineWith();
    const fleet = fleetOf();
    await fleet.feeds.stop();
    fleet.add({ url: W1 }, engine);
    await fleet.feeds.stop();
    expect(fleet.sink.lines).to.deep.equal([]);
  });
});

describe("endpointOf", () => {
  it("adds the rank to the port, also behind an IPv6 address", () => {
    expect(endpointOf("tcp://host:5557", 0)).to.equal("tcp://host:5557");
    expect(endpointOf("tcp://host:5557", 3)).to.equal("tcp://host:5560");
    expect(endpointOf("tcp://[::1]:5557", 1)).to.equal("tcp://[::1]:5558");
  });
});

describe("connectOptions", () => {
  it("bounds what is in stock on a connection to 80 MiB", () => {
    const { receiveHighWaterMark } = connectOptions("tcp://host:5557");
    expect(receiveHighWaterMark * MESSAGE_MAX_WIRE_BYTES).to.equal(83_886_080);
  });
});

describe("faultOf", () => {
  it("says what can be done when there is no further socket", () => {
    const error = Object.assign(new Error("Too many open files"), { code: "EMFILE" });
    expect(faultOf(error)).to.equal(
      "no further socket can be had (Too many open files); raise the limit of open files",
    );
    expect([faultOf(new Error("no route")), faultOf("odd")]).to.deep.equal(["no route", "odd"]);
  });
});
