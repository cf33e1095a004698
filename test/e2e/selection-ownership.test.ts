// Goal: a worker owns a prompt from the first answer that ended well, never before, and no longer than
// its engine still has it. Method: every way to end without success between two looks at what Weir
// believes, and an engine whose cache is emptied behind Weir's back.
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
import { expectError, type HeaderLines } from "../support/chat.js";
import { scrape } from "../support/class-chat.js";
import { open, request } from "../support/http-client.js";
import { occupySlot, PATIENT_MS, untilQueued } from "../support/slots.js";
import { JSON_HEADERS, startStack, type Stack } from "../support/stack.js";

/** The shipped block of Weir, and that of the workers: 64 tokens. */
const BLOCK_CHARS = 256;
const BLOCK_TOKENS = BLOCK_CHARS / 4;
const BLOCKS = 4;

/** A chat of one message that fills four blocks. */
function fourBlocks(name: string, over: Readonly<Record<string, unknown>> = {}): Question {
  return chatOf([message("user", name, BLOCKS, BLOCK_CHARS)], over);
}

const faulty = (mock: string): HeaderLines => [["x-mock", mock]];

const CACHE_AWARE = { demo: { policy: "cache_aware" } };

describe("a prompt whose answer does not end well, through Envoy", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 2,
      mock: { blockChars: BLOCK_CHARS, msPerToken: 5 },
      config: { models: CACHE_AWARE, scheduler: { max_concurrent_requests: 1, queue_size: 1 } },
    });
  });
  after(() => stack.stop());
  beforeEach(async () => {
    // Nothing of the test before is known; a breaker that counts failures is satisfied as well.
    const { worker } = await ask(stack, chatOf([message("user", "short", 1, BLOCK_CHARS)]));
    expect(worker).to.not.equal(undefined);
  });

  /** Nobody owns the prompt, and a success changes that. */
  async function expectUnownedUntilSuccess(question: Question): Promise<void> {
    await stack.idle();
    const before = await committedBlocks(stack);
    const first = await ask(stack, question);
    expect(first.answer.status).to.equal(200);
    expect(first.decision).to.include({ result: "no_owner", owners: 0, promptBlocks: BLOCKS });
    const { workers } = stack;
    const at = workers.findIndex(({ url }) => url === first.worker);
    const gained = before.map((blocks, index) => (index === at ? blocks + BLOCKS : blocks));
    expect(await committedBlocks(stack)).to.deep.equal(gained);
    const second = await ask(stack, question);
    expect(second.worker).to.equal(first.worker);
    expect(second.decision).to.include({ result: "owner_match", matchedBlocks: BLOCKS });
  }

  const endings: readonly (readonly [what: string, mock: string, stream: boolean])[] = [
    ["an error of the worker", "status=500", false],
    ["an error that is the request's own", "status=400", false],
    ["a connection reset before the answer", "reset=before", false],
    ["a JSON answer that breaks off", "reset=after", false],
    ["a stream that breaks off", "reset=after", true],
  ];
  for (const [what, mock, stream] of endings) {
    it(`is owned by nobody after ${what}`, async () => {
      const before = await committedBlocks(stack);
      const { record } = await ask(stack, {
        ...fourBlocks(what, { stream }),
        headers: faulty(mock),
      });
      expect(record.outcome).to.not.equal("success");
      expect(await committedBlocks(stack)).to.deep.equal(before);
      await expectUnownedUntilSuccess(fourBlocks(what));
    });
  }

  it("is owned by nobody after its client has left in the middle of the stream", async () => {
    const before = await committedBlocks(stack);
    const settled = stack.settled.length;
    const { body } = fourBlocks("leaver", { stream: true, max_tokens: 500, ignore_eos: true });
    const answer = await request({
      port: stack.port,
      path: "/v1/chat/completions",
      headers: JSON_HEADERS,
      body: JSON.stringify(body),
      onChunk: (_, abort) => {
        abort();
      },
    });
    expect(answer).to.include({ status: 200, aborted: true });
    const records = await stack.settlements(settled + 1);
    expect(records[settled]?.outcome).to.equal("interrupted");
    expect(await committedBlocks(stack)).to.deep.equal(before);
    await expectUnownedUntilSuccess(fourBlocks("leaver"));
  });

  it("is owned by nobody when it was refused, or left, while it waited", async () => {
    const before = await committedBlocks(stack);
    const settled = stack.settled.length;
    const occupant = await occupySlot(stack);
    const held = open({
      port: stack.port,
      method: "POST",
      path: "/v1/chat/completions",
      headers: JSON_HEADERS,
      limitMs: PATIENT_MS,
    });
    held.write(JSON.stringify(fourBlocks("waiter").body));
    held.end();
    await untilQueued(stack, 1);
    const refused = await send(stack, fourBlocks("refused"));
    const { "retry-after": retryAfter = "" } = refused.headers;
    expectError(refused, { status: 429, code: "scheduler_queue_full", retryAfter });
    expect(workerOf(refused)).to.equal(undefined);
    held.abort();
    await untilQueued(stack, 0);
    occupant.abort();
    await stack.settlements(settled + 3);
    expect(await committedBlocks(stack)).to.deep.equal(before);
    await expectUnownedUntilSuccess(fourBlocks("refused"));
    await expectUnownedUntilSuccess(fourBlocks("waiter"));
  });

  it("has its owner by the time a request that waited for the same one gets its slot", async () => {
    await stack.idle();
    stack.clear();
    const first = send(stack, fourBlocks("in turn", { max_tokens: 16 }));
    await stack.until("it runs", () => stack.held()["inFlight"] === 1);
    const second = send(stack, fourBlocks("in turn"));
    await untilQueued(stack, 1);
    expect(workerOf(await second)).to.equal(workerOf(await first));
    const records = await stack.settlements(2);
    const results = records.map(({ selection }) => selection?.result);
    expect(results).to.deep.equal(["no_owner", "owner_match"]);
    expect(records[1]).to.include({ waited: true, cachedTokens: (BLOCKS - 1) * BLOCK_TOKENS });
  });
});

describe("an engine that has lost its cache, through Envoy", () => {
  /** 1024 tokens: prompts from there on count. */
  const LONG_BLOCKS = 16;
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 1,
      mock: { blockChars: BLOCK_CHARS },
      config: { models: CACHE_AWARE },
    });
  });
  after(() => stack.stop());

  const stale = async (): Promise<number> => (await scrape(stack))("weir_prefix_owner_stale_total");

  async function asked(name: string, blocks: number, headers: HeaderLines = []): Promise<Asked> {
    const question = chatOf([message("user", name, blocks, BLOCK_CHARS)]);
    const answered = await ask(stack, { ...question, headers });
    expect(answered.answer.status).to.equal(200);
    return answered;
  }

  /** An owner is asked for its prompt and has nothing of it; so many holdings are forgotten for that. */
  async function expectMiss(name: string, forgotten: number, blocks = LONG_BLOCKS): Promise<void> {
    const { decision, record } = await asked(name, blocks);
    expect(decision, name).to.include({ result: "owner_match", matchedBlocks: blocks });
    expect(record, name).to.include({ cachedTokens: 0, staleHoldings: forgotten });
  }

  it("is found out by three misses in a row on long prompts: what it held before them is forgotten", async () => {
    const names = ["older", "first", "second", "third", "fourth", "fifth", "newer"];
    for (const name of names) {
      expect((await asked(name, LONG_BLOCKS)).record.cachedTokens, name).to.equal(0);
    }
    await asked("shorter", LONG_BLOCKS - 1);
    const all = names.length * LONG_BLOCKS + LONG_BLOCKS - 1;
    expect(await committedBlocks(stack)).to.deep.equal([all]);
    const { port } = stack.workers[0] ?? { port: 0 };
    await request({ port, method: "POST", path: "/flush_cache" });

    await expectMiss("first", 0);
    await expectMiss("second", 0);
    // The last token of a prompt is always computed, and with it its block. A hit ends the row.
    const warm = await asked("second", LONG_BLOCKS);
    expect(warm.record.cachedTokens).to.equal((LONG_BLOCKS - 1) * BLOCK_TOKENS);
    await expectMiss("third", 0);
    await expectMiss("fourth", 0);
    // Neither a short prompt nor an answer that says nothing of its cache proves anything.
    await expectMiss("shorter", 0, LONG_BLOCKS - 1);
    const silent = await asked("newer", LONG_BLOCKS, faulty("usage=none"));
    expect(silent.record).to.include({ cachedTokens: undefined, staleHoldings: 0 });
    expect(await committedBlocks(stack)).to.deep.equal([all]);
    expect(await stale()).to.equal(0);

    await expectMiss("fifth", LONG_BLOCKS);
    expect(await stale()).to.equal(LONG_BLOCKS);
    // What it has computed since the loss it holds again.
    expect(await committedBlocks(stack)).to.deep.equal([all - LONG_BLOCKS]);
    for (const name of names.slice(1)) {
      expect((await asked(name, LONG_BLOCKS)).decision, name).to.include({ result: "owner_match" });
    }
    expect((await asked("older", LONG_BLOCKS)).decision).to.include({ result: "no_owner" });
    expect(await stale()).to.equal(LONG_BLOCKS);
  });
});
