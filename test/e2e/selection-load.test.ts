// Goal: whatever ends a request gives back all that its choice has booked on a worker, once, and to
// nobody else. Method: storms of requests that end in every way there is, workers that die or are
// registered anew while they have requests, and the books on /state/selection.
import { expect } from "chai";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import {
  chatOf,
  countsOf,
  message,
  selectionOf,
  type Question,
  type WorkerBooks,
} from "../support/cached-chat.js";
import { scrape, untilRunning } from "../support/class-chat.js";
import { open, type Answer, type OpenRequest } from "../support/http-client.js";
import { PATIENT_MS } from "../support/slots.js";
import { JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const BLOCK_CHARS = 256;
const BLOCKS = 4;
/** A user message of four blocks has 4 x 256 - 6 characters: 255 tokens of four, rounded up. */
const INPUT_TOKENS = 255;
const OUTPUT_TOKENS = 20;
const RESERVED_TOKENS = INPUT_TOKENS + OUTPUT_TOKENS;
const SLOTS = 16;
const QUEUE = 20;

let stack: Stack;

const chat = (name: string, over: Readonly<Record<string, unknown>> = {}): Question =>
  chatOf([message("user", name, BLOCKS, BLOCK_CHARS)], {
    max_tokens: OUTPUT_TOKENS,
    ignore_eos: true,
    ...over,
  });

interface Storm extends Question {
  readonly abortAfterMs?: number;
  readonly leaveMidway?: boolean;
}

function begin({ body, headers = [], abortAfterMs, leaveMidway }: Storm): OpenRequest {
  const opened = open({
    port: stack.port,
    method: "POST",
    path: "/v1/chat/completions",
    headers: [...headers, ...JSON_HEADERS],
    limitMs: PATIENT_MS,
    ...(abortAfterMs === undefined ? {} : { abortAfterMs }),
    ...(leaveMidway === true
      ? {
          onChunk: (_: Buffer, abort: () => void) => {
            abort();
          },
        }
      : {}),
  });
  opened.write(typeof body === "string" ? body : JSON.stringify(body));
  opened.end();
  return opened;
}

/** One request of every kind; prompts repeat, so that some have owners and some do not. */
function everyEnd(round: number): readonly Storm[] {
  const prompt = (kind: string): string => `${kind} ${String(round % 3)}`;
  const faulty = (mock: string, over = {}): Storm => ({
    ...chat(prompt(mock), over),
    headers: [["x-mock", mock]],
  });
  return [
    chat(prompt("plain")),
    chat(prompt("plain")),
    chat(prompt("stream"), { stream: true }),
    chat(prompt("unlimited"), { max_tokens: undefined, ignore_eos: false }),
    { ...chat(prompt("left early")), abortAfterMs: 1 + (round % 5) * 20 },
    { ...chat(prompt("left late"), { stream: true }), leaveMidway: true },
    faulty("reset=before"),
    faulty("reset=after"),
    faulty("reset=after", { stream: true }),
    faulty("status=500"),
    faulty("usage=none"),
    { body: '{"model":"demo","messages":[' },
    chat(prompt("unknown"), { model: "unheard-of" }),
  ];
}

const books = async (): Promise<readonly WorkerBooks[]> => (await selectionOf(stack)).workers;

const NOTHING_BOOKED = { live_load: 0, reserved_tokens: 0, claims: 0, leased: false };

async function expectNothingBooked(workers = stack.workers.length): Promise<void> {
  await stack.idle();
  const found = await books();
  expect(found).to.have.length(workers);
  for (const worker of found) expect(worker).to.include(NOTHING_BOOKED);
  expect((await scrape(stack))("weir_worker_reserved_tokens")).to.equal(0);
  expect(stack.held()).to.deep.equal(NOTHING_HELD);
}

/** Starts requests that never end, and waits until the workers have them. */
async function hang(count: number, name: string): Promise<readonly OpenRequest[]> {
  const opened = Array.from({ length: count }, (_, index) =>
    begin({ ...chat(`${name} ${String(index)}`), headers: [["x-mock", "hang"]] }),
  );
  await untilRunning(stack, count);
  return opened;
}

/** Every worker has booked what the requests it runs have reserved, all of them together `count`. */
async function expectBooked(count: number): Promise<readonly WorkerBooks[]> {
  const found = await books();
  for (const worker of found) {
    const { live_load: load } = worker;
    expect(worker).to.include({
      ...NOTHING_BOOKED,
      live_load: load,
      reserved_tokens: load * RESERVED_TOKENS,
    });
  }
  expect(found.reduce((sum, worker) => sum + worker.live_load, 0)).to.equal(count);
  const reserved = (await scrape(stack))("weir_worker_reserved_tokens");
  expect(reserved).to.equal(count * RESERVED_TOKENS);
  return found;
}

async function abortAll(opened: readonly OpenRequest[]): Promise<void> {
  for (const request of opened) request.abort();
  await Promise.all(opened.map(({ answer }) => answer));
}

function mockAt(url: string): MockWorker {
  const worker = stack.workers.find((candidate) => candidate.url === url);
  if (worker === undefined) throw new Error(`no worker at ${url}`);
  return worker;
}

describe("what a choice books on its worker, through Envoy", function () {
  this.timeout(60_000);
  beforeEach(async () => {
    stack = await startStack({
      workers: 4,
      mock: { blockChars: BLOCK_CHARS, msPerToken: 5, slots: SLOTS },
      config: {
        models: { demo: { policy: "cache_aware" } },
        selection: { max_cached_owners_per_prefix: 2, cache_owner_spill_cooldown_secs: 1 },
        scheduler: { max_concurrent_requests: SLOTS, queue_size: QUEUE, queue_timeout_secs: 30 },
        health: { interval_secs: 0.5, timeout_secs: 0.45 },
      },
    });
  });
  afterEach(() => stack.stop());

  it("is all given back after storms with every kind of end, refusals among them", async () => {
    const statuses: number[] = [];
    for (let storm = 0; storm < 3; storm += 1) {
      const requests = Array.from({ length: 8 }, (_, round) => everyEnd(round)).flat();
      const answers: Answer[] = await Promise.all(requests.map((one) => begin(one).answer));
      statuses.push(...answers.map(({ status, aborted }) => (aborted ? 0 : status)));
      await expectNothingBooked();
    }
    const counts = countsOf(statuses.map(String));
    // Served, left, malformed, unknown model, no place in the queue, the worker's own, cut off.
    for (const status of [200, 0, 400, 404, 429, 500, 503]) {
      expect(counts, JSON.stringify(counts)).to.have.property(String(status));
    }
    // The books work: they fill and empty once more.
    const opened = await hang(3, "after the storms");
    await expectBooked(3);
    await abortAll(opened);
    await expectNothingBooked();
  });

  it("counts a request without a limit with the configured estimate, and is gone with its client", async () => {
    const opened = begin({
      ...chat("unlimited", { max_tokens: undefined }),
      headers: [["x-mock", "hang"]],
    });
    await untilRunning(stack, 1);
    const reserved = (await books()).map((worker) => worker.reserved_tokens);
    expect(Math.max(...reserved)).to.equal(INPUT_TOKENS + 4096);
    opened.abort();
    await opened.answer;
    await expectNothingBooked();
  });

  it("is given back for every request of a worker that dies, and stays for the others", async () => {
    const opened = await hang(12, "at work");
    const before = await expectBooked(12);
    const victim = before.reduce((most, worker) =>
      worker.live_load > most.live_load ? worker : most,
    );
    const left = 12 - victim.live_load;
    await mockAt(victim.url).close(0);
    await stack.until("its requests have ended", () => stack.held()["live"] === left);
    const after = await expectBooked(left);
    for (const worker of after) {
      const { live_load: load } = before.find(({ url }) => url === worker.url) ?? { live_load: -1 };
      expect(worker.live_load, worker.url).to.equal(worker.url === victim.url ? 0 : load);
    }
    await abortAll(opened);
    await expectNothingBooked();
  });

  it("passes to a worker that replaces another under its url, which keeps its requests and its cache", async () => {
    const served = await begin(chat("kept")).answer;
    expect(served.status).to.equal(200);
    await stack.idle();
    const before = (await books()).map((worker) => worker.committed_blocks);
    const opened = await hang(6, "through");
    for (const config of stack.config.workers) stack.app.workers.put(config);
    await expectBooked(6);
    expect((await books()).map((worker) => worker.committed_blocks)).to.deep.equal(before);
    await abortAll(opened);
    await expectNothingBooked();
  });

  it("never reaches a worker that was registered anew under the same url", async () => {
    const opened = await hang(8, "before");
    const busiest = (await expectBooked(8)).reduce((most, worker) =>
      worker.live_load > most.live_load ? worker : most,
    );
    const config = stack.config.workers.find(({ url }) => url === busiest.url);
    if (config === undefined) throw new Error("every worker is configured");
    expect(stack.app.workers.remove(busiest.url)).to.equal(true);
    expect((await books()).map(({ url }) => url)).to.not.include(busiest.url);
    stack.app.workers.put(config);
    const fresh = async (): Promise<WorkerBooks | undefined> =>
      (await books()).find(({ url }) => url === busiest.url);
    expect(await fresh()).to.include({ ...NOTHING_BOOKED, processed: 0, committed_blocks: 0 });
    await expectBooked(8 - busiest.live_load);

    const later = begin({
      ...chat("after"),
      headers: [["x-mock", "hang"]],
    });
    await untilRunning(stack, 9);
    await expectBooked(9 - busiest.live_load);
    await abortAll(opened);
    await stack.until("the first ones have ended", () => stack.held()["live"] === 1);
    await expectBooked(1);
    later.abort();
    await later.answer;
    await expectNothingBooked();
  });
});
