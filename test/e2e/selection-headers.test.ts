// Goal: trusted headers override where the cache is: a routing key sticks to a worker, a target names
// it, exclusions keep requests away. From anybody else the key means nothing, and no worker ever sees
// it. Method: prompts whose owner is known, and a Weir that is started anew in between.
import { expect } from "chai";
import {
  ask,
  chatOf,
  committedBlocks,
  message,
  send,
  workerOf,
  type Asked,
  type Question,
} from "../support/cached-chat.js";
import { expectError, seenByWorkers, type HeaderLines } from "../support/chat.js";
import { startFleet, type Fleet } from "../support/feedback-fleet.js";
import { startStack, type Stack } from "../support/stack.js";
import { startWeir, type LogLine, type WeirProcess } from "../support/weir-process.js";

const BLOCK_CHARS = 256;
const BLOCKS = 4;
/** Who may send control headers, and an address of this host that may not. */
const PROXY = "127.0.0.1";
const STRANGER = "127.0.0.2";

/** A chat of one message of four blocks. */
const chat = (name: string, headers: HeaderLines = [], model = "demo"): Question => ({
  ...chatOf([message("user", name, BLOCKS, BLOCK_CHARS)], { model }),
  headers,
});

describe("a routing key, through Envoy", function () {
  this.timeout(60_000);
  const WORKERS = 4;
  const KEYS = Array.from({ length: 12 }, (_, index) => `session-${String(index)}`);
  const MODELS = ["demo", "ring"] as const;
  let fleet: Fleet;
  let weir: WeirProcess;
  let prompts = 0;
  before(async () => {
    const mock = { models: MODELS, blockChars: BLOCK_CHARS };
    fleet = await startFleet({
      engines: Array.from({ length: WORKERS }, () => ({ engine: "vllm", mock })),
      slots: { demo: 32, ring: 32 },
      adaptive: { mode: "off" },
      config: {
        models: { demo: { policy: "cache_aware" }, ring: { policy: "consistent_hash" } },
        trust: { routing_key: true, peers: [PROXY] },
      },
      withoutWeir: true,
    });
    weir = await startWeir(fleet.stack);
  });
  after(async () => {
    await weir.stop();
    await fleet.stop();
  });

  const keyLine = (key: string): HeaderLines => [["x-weir-routing-key", key]];

  /** A chat of a prompt of its own; the worker that answered and Weir's line about it. */
  async function settled(question: Question): Promise<{ worker: string; line: LogLine }> {
    const before = weir.settled().length;
    const answer = await send(fleet.stack, question);
    expect(answer.status, answer.body.toString("utf8")).to.equal(200);
    const line = (await weir.untilSettled(before + 1))[before] ?? {};
    return { worker: workerOf(answer) ?? "", line };
  }

  const fresh = (headers: HeaderLines, model: string): Question =>
    chat(`prompt ${String((prompts += 1))}`, headers, model);

  /** Where each key's requests go, which is one place for both policies. */
  async function placesOfKeys(): Promise<readonly string[]> {
    const before = weir.settled().length;
    const places: string[] = [];
    for (const key of KEYS) {
      const urls = new Set<string>();
      for (const model of [...MODELS, ...MODELS]) {
        const answer = await send(fleet.stack, fresh(keyLine(key), model));
        expect(answer.status).to.equal(200);
        urls.add(workerOf(answer) ?? "");
      }
      expect(urls.size, key).to.equal(1);
      places.push(...urls);
    }
    const requests = 2 * MODELS.length * KEYS.length;
    const lines = (await weir.untilSettled(before + requests)).slice(before);
    for (const line of lines) {
      expect(line).to.include({ selection_policy: "sticky_key", selection: "routing_key" });
    }
    return places;
  }

  it("sends its requests to one worker, which is the same after a restart of Weir", async () => {
    const before = await placesOfKeys();
    expect(new Set(before).size).to.be.at.least(2);
    await weir.stop();
    weir = await startWeir(fleet.stack);
    await fleet.stack.until("Envoy has found the new one", async () => {
      return (await send(fleet.stack, fresh([], "demo"))).status === 200;
    });
    await weir.untilSettled(1);
    expect(await placesOfKeys()).to.deep.equal(before);
  });

  it("goes before the owner of the prompt", async () => {
    const { worker: owner } = await settled(chat("owned"));
    const keys = KEYS.map((key) => chat("owned", keyLine(key)));
    const urls = new Set<string>();
    for (const question of keys) urls.add((await settled(question)).worker);
    expect([...urls].some((url) => url !== owner)).to.equal(true);
  });

  it("is ignored from a peer that is not trusted", async () => {
    const [key = ""] = KEYS;
    const { worker: sticky } = await settled(fresh(keyLine(key), "demo"));
    const policies = { demo: "cache_aware", ring: "consistent_hash" };
    const places = new Set<string>();
    await fleet.stack.until("another worker", async () => {
      for (const model of MODELS) {
        const question = { ...fresh(keyLine(key), model), from: STRANGER };
        const { worker, line } = await settled(question);
        expect(line).to.include({ selection_policy: policies[model] });
        places.add(worker);
      }
      return [...places].some((url) => url !== sticky);
    });
  });

  it("never reaches a worker", () => {
    const seen = fleet.workers.flatMap((worker) => worker.state().last_requests);
    expect(seen).to.have.length.above(KEYS.length);
    for (const { headers } of seen) expect(headers).to.not.have.property("x-weir-routing-key");
    expect(JSON.stringify(seen)).to.not.include("session-");
  });
});

describe("L-4: a target and exclusions with cache_aware, through Envoy", () => {
  const TARGET = "x-weir-target-worker-url";
  const EXCLUDED = "x-weir-excluded-worker-urls";
  let stack: Stack;
  let urls: readonly string[];
  before(async () => {
    stack = await startStack({
      workers: 3,
      mock: { blockChars: BLOCK_CHARS },
      config: {
        models: { demo: { policy: "cache_aware" } },
        trust: { target_worker_url: true, excluded_worker_urls: true, peers: [PROXY] },
      },
    });
    urls = stack.workers.map(({ url }) => url);
  });
  after(() => stack.stop());

  const owned = async (name: string): Promise<{ owner: string; others: readonly string[] }> => {
    const { worker: owner = "" } = await ask(stack, chat(name));
    expect((await ask(stack, chat(name))).worker).to.equal(owner);
    return { owner, others: urls.filter((url) => url !== owner) };
  };
  const asked = (name: string, ...headers: HeaderLines): Promise<Asked> =>
    ask(stack, chat(name, headers));

  it("an excluded owner is passed over, and the worker that stands in becomes an owner too", async () => {
    const { owner, others } = await owned("excluded owner");
    const before = await committedBlocks(stack);
    const [first = "", second = ""] = others;
    const elsewhere = await asked("excluded owner", [EXCLUDED, `${owner}, ${first}`]);
    expect(elsewhere.worker).to.equal(second);
    const gained = before.map((blocks, index) => blocks + (urls[index] === second ? BLOCKS : 0));
    expect(await committedBlocks(stack)).to.deep.equal(gained);
    const again = await asked("excluded owner", [EXCLUDED, owner]);
    expect(again.worker).to.equal(second);
    expect(again.decision).to.include({ result: "owner_match", owners: 1 });
    const free = await asked("excluded owner");
    expect(free.decision).to.include({ result: "owner_match", owners: 2 });
    expect([owner, second]).to.include(free.worker);
  });

  it("a target gets the request, whoever owns the prompt and whatever is excluded", async () => {
    const { others } = await owned("target");
    for (const url of others) {
      expect((await asked("target", [TARGET, url])).worker).to.equal(url);
      const both = await asked("target", [TARGET, `${url}/`], [EXCLUDED, urls.join(",")]);
      expect(both.worker).to.equal(url);
    }
  });

  it("no worker is left by a target that is unknown or by exclusions that name them all", async () => {
    await owned("nobody");
    for (const header of [
      [TARGET, "http://127.0.0.1:1"],
      [EXCLUDED, urls.join(",")],
    ] as const) {
      const { answer, record } = await asked("nobody", header);
      expectError(answer, { status: 503, code: "no_worker", retryAfter: "1" });
      expect(record).to.include({ worker: undefined, selection: undefined });
    }
    await stack.idle();
  });

  it("neither is heard from a stranger, and neither reaches a worker", async () => {
    const { owner, others } = await owned("stranger");
    for (const header of [
      [TARGET, others[0] ?? ""],
      [EXCLUDED, owner],
    ] as const) {
      const answered = await ask(stack, { ...chat("stranger", [header]), from: STRANGER });
      expect(answered.worker).to.equal(owner);
      expect(answered.decision).to.include({ result: "owner_match" });
    }
    for (const { headers } of seenByWorkers(stack)) {
      expect(headers).to.not.have.any.keys(TARGET, EXCLUDED);
    }
  });
});
