// Goal: clients that retry by themselves come through a full queue (429) and a model without a usable
// worker (503), waiting as long as Retry-After says. Method: the clients' own retries, with the time
// of each attempt noted; both clients wait at most half a second before the first retry when nobody
// tells them, so a second between two attempts can only come from the header.
import Anthropic from "@anthropic-ai/sdk";
import { expect } from "chai";
import OpenAI, { InternalServerError, RateLimitError } from "openai";
import { open } from "../support/http-client.js";
import { chatBody, JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const HELLO = [{ role: "user" as const, content: "hello there" }];
/** One second, less what timers and clocks may differ by. */
const ABOUT_A_SECOND_MS = 950;

interface Attempts {
  readonly times: number[];
  readonly fetch: typeof fetch;
}

function notedFetch(): Attempts {
  const times: number[] = [];
  return {
    times,
    fetch: (input, init) => {
      times.push(performance.now());
      return fetch(input, init);
    },
  };
}

function expectWaited({ times }: Attempts): void {
  expect(times.length).to.be.at.least(2);
  for (const [index, at] of times.slice(1).entries()) {
    expect(at - (times[index] ?? 0)).to.be.at.least(ABOUT_A_SECOND_MS);
  }
}

/** Takes the only slot and gives it back when called. */
async function takeSlot(stack: Stack): Promise<() => void> {
  const holder = open({
    port: stack.port,
    method: "POST",
    path: "/v1/chat/completions",
    headers: [...JSON_HEADERS, ["x-mock", "hang"], ["transfer-encoding", "chunked"]],
  });
  holder.write(chatBody());
  holder.end();
  await stack.until("the slot is taken", () => stack.held()["inFlight"] === 1);
  return () => {
    holder.abort();
  };
}

describe("clients that retry", () => {
  describe("when the only slot is taken and nobody may wait", () => {
    let stack: Stack;
    let baseURL: string;
    before(async () => {
      stack = await startStack({
        config: {
          scheduler: { max_concurrent_requests: 1, queue_size: 0, queue_timeout_secs: 1 },
        },
      });
      baseURL = `http://127.0.0.1:${String(stack.port)}`;
    });
    after(() => stack.stop());
    beforeEach(async () => {
      await stack.idle();
      stack.clear();
    });

    it("openai throws RateLimitError at once when it must not retry", async () => {
      const free = await takeSlot(stack);
      const client = new OpenAI({ apiKey: "unused", baseURL: `${baseURL}/v1`, maxRetries: 0 });
      const problem: unknown = await client.chat.completions
        .create({ model: "demo", messages: HELLO })
        .catch((error: unknown) => error);
      free();
      expect(problem).to.be.instanceOf(RateLimitError);
      const { code, headers } = problem as RateLimitError;
      expect(code).to.equal("scheduler_queue_full");
      expect(headers.get("retry-after")).to.equal("1");
    });

    it("openai comes through 429 by waiting as Retry-After says, and each attempt is settled", async () => {
      const free = await takeSlot(stack);
      const attempts = notedFetch();
      const client = new OpenAI({
        apiKey: "unused",
        baseURL: `${baseURL}/v1`,
        maxRetries: 5,
        fetch: attempts.fetch,
      });
      const answer = client.chat.completions.create({
        model: "demo",
        messages: HELLO,
        max_completion_tokens: 4,
      });
      await stack.settlements(1);
      free();
      expect((await answer).usage?.completion_tokens).to.equal(4);
      expectWaited(attempts);
      await expectSettledAttempts(stack, attempts.times.length);
    });

    it("@anthropic-ai/sdk comes through 429 by waiting as Retry-After says", async () => {
      const free = await takeSlot(stack);
      const attempts = notedFetch();
      const client = new Anthropic({
        apiKey: "unused",
        baseURL,
        maxRetries: 5,
        fetch: attempts.fetch,
      });
      const answer = client.messages.create({ model: "demo", max_tokens: 4, messages: HELLO });
      await stack.settlements(1);
      free();
      expect((await answer).usage.output_tokens).to.equal(4);
      expectWaited(attempts);
      await expectSettledAttempts(stack, attempts.times.length);
    });
  });

  describe("when no worker is usable", () => {
    let stack: Stack;
    let baseURL: string;
    before(async () => {
      stack = await startStack({
        workers: 1,
        config: {
          health: { interval_secs: 1, timeout_secs: 0.5, failure_threshold: 1 },
        },
      });
      baseURL = `http://127.0.0.1:${String(stack.port)}`;
    });
    after(() => stack.stop());
    beforeEach(async () => {
      setHealth(503);
      await stack.until("the worker is out", () => !usable());
      stack.clear();
    });

    function setHealth(status: number): void {
      for (const worker of stack.workers) worker.setFaults({ health_status: status });
    }

    function usable(): boolean {
      return [...stack.app.workers.all()].some((worker) => worker.healthy);
    }

    it("openai throws InternalServerError with the code no_worker when it must not retry", async () => {
      const client = new OpenAI({ apiKey: "unused", baseURL: `${baseURL}/v1`, maxRetries: 0 });
      const problem: unknown = await client.chat.completions
        .create({ model: "demo", messages: HELLO })
        .catch((error: unknown) => error);
      expect(problem).to.be.instanceOf(InternalServerError);
      const { status, code, headers } = problem as InternalServerError;
      expect([status, code, headers.get("retry-after")]).to.deep.equal([503, "no_worker", "1"]);
    });

    it("openai comes through 503 by waiting as Retry-After says, and each attempt is settled", async () => {
      const attempts = notedFetch();
      const client = new OpenAI({
        apiKey: "unused",
        baseURL: `${baseURL}/v1`,
        maxRetries: 10,
        fetch: attempts.fetch,
      });
      const answer = client.chat.completions.create({
        model: "demo",
        messages: HELLO,
        max_completion_tokens: 4,
      });
      const [first] = await stack.settlements(1);
      expect(first?.rejection).to.equal("no_worker");
      setHealth(200);
      expect((await answer).usage?.completion_tokens).to.equal(4);
      expectWaited(attempts);
      await stack.settlements(attempts.times.length);
      await stack.idle();
      const rejections = stack.settled.map((record) => record.rejection);
      expect(rejections.pop()).to.equal(undefined);
      expect(new Set(rejections)).to.deep.equal(new Set(["no_worker"]));
      expect(rejections).to.have.length(attempts.times.length - 1);
      expect(stack.held()).to.deep.equal(NOTHING_HELD);
    });
  });
});

/** One settlement per attempt and one of the holder: all attempts but the last were refused. */
async function expectSettledAttempts(stack: Stack, attempts: number): Promise<void> {
  await stack.settlements(attempts + 1);
  await stack.idle();
  const outcomes = stack.settled.map((record) => record.rejection ?? record.outcome).sort();
  const expected = [
    "success",
    "interrupted",
    ...Array.from({ length: attempts - 1 }, () => "scheduler_queue_full"),
  ];
  expect(outcomes).to.deep.equal(expected.sort());
  expect(stack.held()).to.deep.equal(NOTHING_HELD);
}
