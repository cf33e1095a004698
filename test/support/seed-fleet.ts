// Three engines, of which the first holds what a test asks about and can be filled behind Weir's back, so
// that the feedback of the engines refuses whoever comes. They produce tokens only when they are told to.
// Who owns a prompt is told either by answers that ended well (chats, and engines that report their own
// ceilings) or by the engines' events (prompts of token ids, and engines whose ceilings are labels).

import { randomUUID } from "node:crypto";
import type { SeedRecord } from "../../extproc/core/request/seed-record.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { OwnershipSource } from "../../extproc/core/model/selection-config.js";
import type { SeedingExplanation } from "../../extproc/core/seeding/explain.js";
import type { Log } from "../../extproc/edge/telemetry/log.js";
import type { Faults } from "../../envoy/mock-worker/faults.js";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import { AllocatorClient } from "./allocator-client.js";
import { chatOf, message, type Question } from "./cached-chat.js";
import type { HeaderLines } from "./chat.js";
import { namesAt } from "./class-chat.js";
import type { ConfigSketch } from "./config.js";
import { CREDIT_TRUST, creditHeaders } from "./credit-desk.js";
import { CREDITS_ON, SERVICE_KEY, SERVICE_KEY_VARIABLE } from "./credit-server.js";
import { binding } from "./credits.js";
import {
  adminText,
  admissionOf,
  startFleet,
  untilPartition,
  type EngineSketch,
  type Fleet,
} from "./feedback-fleet.js";
import { modelId, partitionName, tenantKey } from "../../extproc/core/model/ids.js";
import { open, type Answer, type OpenRequest } from "./http-client.js";
import { BLOCK_TOKENS, promptOf } from "./kv-engines.js";
import { placesOf } from "./incident-load.js";
import { freePorts } from "./ports.js";
import { PACED, PATIENT_MS } from "./slots.js";
import { chatBody, JSON_HEADERS, type Stack } from "./stack.js";

const ENGINES = 3;
/** Requests that each engine runs at once. */
export const CEILING = 4;
/** One more than may wait in three engines. */
export const WAITING = 7;
const BLOCK_CHARS = 256;
export const SHARED_BLOCKS = 4;
export const TOKENS = 5;
/** More than any balance of load can reach. */
const NEVER = 1_000_000;
/** What a refused request is told. */
export const SATURATED = { status: 429, code: "adaptive_admission_saturated", retryAfter: "1" };
const MODEL = "demo";
const TENANT = "a";

export interface SeedFleetSketch {
  readonly ownership?: OwnershipSource;
  readonly proofSource?: "credits" | "scheduler";
  readonly selection?: ConfigSketch;
  readonly adaptive?: ConfigSketch;
  readonly log?: Log;
}

/** A request that was sent and may still run. */
export interface Sent {
  readonly name: string;
  readonly answer: Promise<Answer>;
  readonly abort: () => void;
}

export interface SendOptions {
  readonly headers?: HeaderLines;
  /** The request brings a credit, as it does unless told otherwise where credits give proofs. */
  readonly credit?: boolean;
  /** Fields of the body. */
  readonly body?: Readonly<Record<string, unknown>>;
}

export class SeedFleet {
  readonly fleet: Fleet;
  readonly ownership: OwnershipSource;
  readonly #byCredits: boolean;
  readonly #client: AllocatorClient;
  #fillers: OpenRequest[] = [];
  #names = 0;

  constructor(fleet: Fleet, ownership: OwnershipSource, byCredits: boolean) {
    this.fleet = fleet;
    this.ownership = ownership;
    this.#byCredits = byCredits;
    this.#client = new AllocatorClient(placesOf(fleet.stack));
  }

  get stack(): Stack {
    return this.fleet.stack;
  }

  worker(index: number): MockWorker {
    const worker = this.fleet.workers[index];
    if (worker === undefined) throw new Error(`there is no worker ${String(index)}`);
    return worker;
  }

  /** A prompt that begins with a shared document and has something of its own behind it. */
  question(document: number, own: number, body: Readonly<Record<string, unknown>> = {}): Question {
    const more = { max_tokens: TOKENS, ignore_eos: true, ...body };
    if (this.ownership === "committed") {
      return chatOf(
        [
          message("system", `document ${String(document)}`, SHARED_BLOCKS, BLOCK_CHARS),
          message("user", `question ${String(own)}`, 1, BLOCK_CHARS),
        ],
        more,
      );
    }
    const shared = promptOf(document, SHARED_BLOCKS).slice(0, SHARED_BLOCKS * BLOCK_TOKENS);
    const prompt = [...shared, ...promptOf(own, 1)];
    return { path: "/v1/completions", body: { model: MODEL, prompt, ...more } };
  }

  /** Sends a question through Envoy; with a credit of its own where credits give the right to seed. */
  async send(question: Question, options: SendOptions = {}): Promise<Sent> {
    const { headers = [], credit = this.#byCredits } = options;
    return this.sendWith(credit ? await this.credit() : [], question, headers);
  }

  /** Sends a question with the headers of a credit. */
  sendWith(credit: HeaderLines, { path, body }: Question, headers: HeaderLines = []): Sent {
    this.#names += 1;
    const name = `request-${String(this.#names)}`;
    const opened = open({
      port: this.stack.port,
      method: "POST",
      path: path ?? "/v1/chat/completions",
      headers: [["x-test-name", name], ...credit, ...headers, ...JSON_HEADERS],
      limitMs: PATIENT_MS,
    });
    opened.write(typeof body === "string" ? body : JSON.stringify(body));
    opened.end();
    opened.answer.catch(() => undefined);
    return {
      name,
      answer: opened.answer,
      abort: () => {
        opened.abort();
      },
    };
  }

  /** The headers of a new credit for one request. */
  async credit(): Promise<HeaderLines> {
    const requestId = randomUUID();
    const bound = binding({
      partition: partitionName(MODEL),
      model: modelId(MODEL),
      tenant: tenantKey(`header:${TENANT}`),
      requestId,
      estimateTokens: TOKENS,
    });
    const { body } = await this.#client.issue({
      generation: bound.generation,
      policyEpoch: Number(bound.policyEpoch),
      partition: MODEL,
      model: MODEL,
      tenant: TENANT,
      requestId,
      estimateTokens: TOKENS,
    });
    const { credit } = body;
    if (typeof credit !== "string") throw new Error(`no credit: ${JSON.stringify(body)}`);
    return Object.entries(creditHeaders(credit, bound));
  }

  /** Where a request is or was; undefined = at no engine. */
  placeOf({ name }: Sent): number | undefined {
    const index = this.fleet.workers.findIndex((worker) => namesAt(worker).includes(name));
    return index < 0 ? undefined : index;
  }

  /** Waits until a request is at an engine; its place. */
  async untilPlaced(sent: Sent): Promise<number> {
    await this.stack.until(`${sent.name} is at an engine`, () => this.placeOf(sent) !== undefined);
    return this.placeOf(sent) ?? -1;
  }

  /** Lets these engines work until the request has its answer, and waits for its settlement. */
  async finish(sent: Sent, ...engines: readonly number[]): Promise<Finished> {
    const known = new Set(this.stack.settled);
    let answered = false;
    const answer = sent.answer.finally(() => {
      answered = true;
    });
    await this.stack.until(`${sent.name} is answered`, () => {
      for (const index of engines) this.worker(index).advance(PACED.msPerToken);
      return answered;
    });
    const id = this.#requestIdOf(sent);
    const own = (): SettlementRecord[] =>
      this.stack.settled.filter((record) =>
        id === undefined ? !known.has(record) : record.requestId === id,
      );
    await this.stack.until(`${sent.name} is settled`, () => own().length > 0);
    const [record, ...more] = own();
    if (record === undefined || more.length > 0) throw new Error("one settlement was expected");
    return { answer: await answer, record, seed: record.seed, worker: this.placeOf(sent) };
  }

  /** Lets these engines work until all of the requests are answered. */
  async finishAll(sent: readonly Sent[], ...engines: readonly number[]): Promise<void> {
    let open = sent.length;
    for (const { answer } of sent) {
      void answer.finally(() => {
        open -= 1;
      });
    }
    await this.stack.until("all are answered", () => {
      for (const index of engines) this.worker(index).advance(PACED.msPerToken);
      return open === 0;
    });
    await this.stack.until("all are settled", () => this.stack.held()["load"] === 0);
  }

  /** Asks a question and has all engines work until it is answered. */
  async ask(question: Question, options: SendOptions = {}): Promise<Finished> {
    return this.finish(await this.send(question, options), 0, 1, 2);
  }

  /** Sends a question that no engine is to work at, and waits for its answer. */
  async refused(question: Question, options: SendOptions = {}): Promise<Finished> {
    return this.finish(await this.send(question, options));
  }

  /** Has an engine hold a document, and Weir know that it does. */
  async warm(index: number, document: number): Promise<void> {
    const target = [["x-weir-target-worker-url", this.worker(index).url]] as const;
    const { answer } = await this.ask(this.question(document, 900 + document), { headers: target });
    if (answer.status !== 200) throw new Error(answer.body.toString());
    if (this.ownership === "committed") return;
    // A subscription takes a moment, and what is published before it is not told.
    await this.stack.until("its events arrive", async () => {
      const blocks = (await this.blocksOf(index)).event_blocks;
      if (blocks >= SHARED_BLOCKS) return true;
      const { port } = this.worker(index);
      await this.#past(port, "/reset_prefix_cache");
      await this.ask(this.question(document, 900 + document), { headers: target });
      return false;
    });
  }

  /** Blocks that Weir believes an engine to hold. */
  async blocksOf(index: number): Promise<{ committed_blocks: number; event_blocks: number }> {
    const { workers } = JSON.parse(await adminText(this.stack, "/state/selection")) as {
      workers: { url: string; committed_blocks: number; event_blocks: number }[];
    };
    const found = workers.find(({ url }) => url === this.worker(index).url);
    if (found === undefined) throw new Error("the worker is not on the page");
    const { committed_blocks, event_blocks } = found;
    return { committed_blocks, event_blocks };
  }

  /** Waits until Weir knows that an engine holds a document. */
  async untilHolds(index: number): Promise<void> {
    const key = this.ownership === "committed" ? "committed_blocks" : "event_blocks";
    await this.stack.until("it is known to hold the document", async () => {
      return (await this.blocksOf(index))[key] >= SHARED_BLOCKS;
    });
  }

  /** What /state/seeding shows. */
  async page(): Promise<SeedingPage> {
    return JSON.parse(await adminText(this.stack, "/state/seeding")) as SeedingPage;
  }

  /** Fills an engine with requests that came past Weir, until the feedback refuses. */
  async fill(index = 0): Promise<void> {
    const worker = this.worker(index);
    for (let count = 0; count < CEILING + WAITING; count += 1) {
      const filler = open({
        port: worker.port,
        method: "POST",
        path: "/v1/chat/completions",
        headers: [["x-mock", "hang"], ...JSON_HEADERS],
        limitMs: PATIENT_MS,
      });
      filler.write(chatBody());
      filler.end();
      filler.answer.catch(() => undefined);
      this.#fillers.push(filler);
    }
    await this.stack.until("the engine is full", () => worker.state().waiting >= WAITING);
    await this.seen();
    await untilPartition(this.stack, "the queue is seen", ({ limits }) => {
      return limits["pressure"] === "engine_waiting";
    });
  }

  /** Takes back what `fill` has sent, until the feedback lets requests through. */
  async drain(): Promise<void> {
    for (const filler of this.#fillers) filler.abort();
    this.#fillers = [];
    await this.stack.until("nobody waits", () =>
      this.fleet.workers.every((worker) => worker.state().waiting === 0),
    );
    await this.seen();
    await untilPartition(this.stack, "the end of the queue is seen", ({ limits }) => {
      return limits["pressure"] === null;
    });
  }

  /** Waits until Weir has asked the engines anew; their samples have a new time. */
  async seen(): Promise<void> {
    for (const worker of this.fleet.workers) worker.advance(1);
    const { revision } = await admissionOf(this.stack);
    // The first may have been under way already.
    await this.stack.until("the engines are asked", async () => {
      return (await admissionOf(this.stack)).revision >= revision + 2;
    });
  }

  /** Registers a worker anew under its url. */
  replace(index: number): void {
    const config = this.stack.config.workers[index];
    if (config === undefined) throw new Error(`there is no worker ${String(index)}`);
    this.stack.app.workers.put(config);
  }

  /** Waits until it is known beyond doubt how full these workers are. */
  async untilKnown(...indices: readonly number[]): Promise<void> {
    const urls = indices.map((index) => this.worker(index).url);
    await this.stack.until("the workers are known", async () => {
      const { headroom } = await this.page();
      return urls.every((url) => headroom.some((one) => one.url === url && one.slots > 0));
    });
  }

  setFaults(index: number, faults: Faults): void {
    this.worker(index).setFaults(faults);
  }

  async stop(): Promise<void> {
    for (const filler of this.#fillers) filler.abort();
    await this.fleet.stop();
  }

  /** What Envoy has named it; undefined when no engine has seen it. */
  #requestIdOf({ name }: Sent): string | undefined {
    return this.fleet.workers
      .flatMap((worker) => worker.state().last_requests)
      .find(({ headers }) => headers["x-test-name"] === name)?.headers["x-request-id"];
  }

  async #past(port: number, path: string): Promise<void> {
    const sent = open({ port, method: "POST", path });
    sent.end();
    await sent.answer;
  }
}

/** As the admin port spells it. */
export type SeedingPage = Pick<SeedingExplanation, "partitions"> & {
  readonly leases: readonly { readonly url: string }[];
  readonly protections: readonly { readonly phase: string }[];
  readonly headroom: readonly {
    readonly url: string;
    readonly slots: number;
    readonly reason: string | null;
  }[];
};

export interface Finished {
  readonly answer: Answer;
  readonly record: SettlementRecord;
  readonly seed: SeedRecord | undefined;
  readonly worker: number | undefined;
}

async function enginesFor(ownership: OwnershipSource): Promise<EngineSketch[]> {
  if (ownership === "committed") {
    const mock = { ...PACED, slots: CEILING, blockChars: BLOCK_CHARS };
    return Array.from({ length: ENGINES }, () => ({ engine: "sglang" as const, mock }));
  }
  const ports = await freePorts(ENGINES);
  return ports.map((port) => ({
    engine: "vllm",
    mock: { ...PACED, slots: CEILING, blockChars: 4 * BLOCK_TOKENS, kvEventsPort: port },
    config: {
      labels: { max_running_requests: CEILING },
      kv_events: { endpoint: `tcp://127.0.0.1:${String(port)}` },
    },
  }));
}

export async function startSeedFleet(sketch: SeedFleetSketch = {}): Promise<SeedFleet> {
  const { ownership = "committed", proofSource = "credits" } = sketch;
  process.env[SERVICE_KEY_VARIABLE] = SERVICE_KEY;
  const byCredits = proofSource === "credits";
  const fleet = await startFleet({
    engines: await enginesFor(ownership),
    slots: { [MODEL]: 32 },
    adaptive: { mode: "enforce", ...sketch.adaptive },
    ...(sketch.log === undefined ? {} : { log: sketch.log }),
    config: {
      models: { [MODEL]: { policy: "cache_aware", ownership } },
      selection: {
        block_chars: BLOCK_CHARS,
        balance_abs_threshold: NEVER,
        balance_reserved_threshold: NEVER,
        max_cached_owners_per_prefix: ENGINES,
        cache_owner_spill_cooldown_secs: 2,
        ...sketch.selection,
      },
      trust: {
        ...CREDIT_TRUST,
        target_worker_url: true,
        excluded_worker_urls: true,
        peers: ["127.0.0.1"],
      },
      ...(byCredits ? { credits: CREDITS_ON } : {}),
      seeding: { partitions: [MODEL], seed_cap: 1, proof_source: proofSource },
    },
  });
  const seeds = new SeedFleet(fleet, ownership, byCredits);
  await seeds.seen();
  return seeds;
}
