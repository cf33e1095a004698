// Goal: the npm client `openai`, as it is installed, works against Envoy by its base URL alone, and
// each settlement says what the client itself was told about usage.
import { expect } from "chai";
import OpenAI, { APIError, BadRequestError, NotFoundError } from "openai";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const BODY_LIMIT_BYTES = 65_536;
const HELLO = [{ role: "user" as const, content: "hello there" }];

async function problemOf(promise: Promise<unknown>): Promise<APIError> {
  const problem: unknown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (problem instanceof APIError) return problem;
  throw new Error(`an APIError was expected, got ${String(problem)}`);
}

describe("the openai client against Envoy", () => {
  let stack: Stack;
  let client: OpenAI;
  before(async () => {
    stack = await startStack({
      mock: { models: ["demo", "demo-latest"] },
      config: {
        models: { demo: { aliases: ["demo-latest"] } },
        limits: { body_limit_bytes: BODY_LIMIT_BYTES },
      },
    });
    const baseURL = `http://127.0.0.1:${String(stack.port)}/v1`;
    client = new OpenAI({ apiKey: "unused", baseURL, maxRetries: 0 });
  });
  after(() => stack.stop());
  beforeEach(() => {
    stack.clear();
  });

  async function onlySettlement(): Promise<SettlementRecord> {
    const [record] = await stack.settlements(1);
    await stack.idle();
    expect(stack.settled).to.have.length(1);
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
    if (record === undefined) throw new Error("the settlement is gone");
    return record;
  }

  it("gets a chat completion whose usage is what was settled", async () => {
    const answer = await client.chat.completions.create({
      model: "demo",
      messages: HELLO,
      max_completion_tokens: 9,
    });
    expect(answer.choices[0]?.message.content).to.be.a("string").and.not.equal("");
    expect(answer.usage?.completion_tokens).to.equal(9);
    const record = await onlySettlement();
    expect(record.charge).to.deep.equal({ kind: "observed", tokens: 9, clockTokens: 9 });
    expect(record.promptTokens).to.equal(answer.usage?.prompt_tokens);
    expect(record.cachedTokens).to.equal(answer.usage?.prompt_tokens_details?.cached_tokens);
    expect(record).to.deep.include({ outcome: "success", endpoint: "chat", stream: false });
  });

  it("streams a chat completion with usage in the last chunk, and that usage is settled", async () => {
    const stream = await client.chat.completions.create({
      model: "demo",
      messages: HELLO,
      max_completion_tokens: 12,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let usage: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    expect(text).to.not.equal("");
    expect(usage?.completion_tokens).to.equal(12);
    const record = await onlySettlement();
    expect(record.charge).to.deep.equal({ kind: "observed", tokens: 12, clockTokens: 12 });
    expect(record.promptTokens).to.equal(usage?.prompt_tokens);
    expect(record).to.deep.include({ outcome: "success", stream: true, status: 200 });
  });

  it("streams without asking for usage, gets none, and keeps the estimate charged", async () => {
    const stream = await client.chat.completions.create({
      model: "demo",
      messages: HELLO,
      max_completion_tokens: 3,
      stream: true,
    });
    for await (const chunk of stream) expect(chunk.usage ?? null).to.equal(null);
    // The estimate of a request that nobody estimated is 256 output tokens.
    const record = await onlySettlement();
    expect(record.charge).to.deep.equal({ kind: "missing_usage", tokens: 256, clockTokens: 256 });
  });

  it("leaves a stream in the middle, and its worker stops while the request settles once", async () => {
    const stream = await client.chat.completions.create(
      { model: "demo", messages: HELLO, max_completion_tokens: 20, stream: true },
      { headers: { "x-mock": "headers=early,hang" } },
    );
    expect(stack.held()).to.deep.include({ inFlight: 1, load: 1 });
    stream.controller.abort();
    const record = await onlySettlement();
    expect(record.outcome).to.equal("interrupted");
    await stack.until("no worker runs it", () =>
      stack.workers.every((worker) => worker.state().running === 0),
    );
  });

  it("uses a model's alias, and the request settles under the model's own name", async () => {
    await client.chat.completions.create({
      model: "demo-latest",
      messages: HELLO,
      max_completion_tokens: 2,
    });
    expect((await onlySettlement()).model).to.equal("demo");
  });

  it("gets legacy completions, and all choices are settled together", async () => {
    const answer = await client.completions.create({
      model: "demo",
      prompt: "once upon a time",
      max_tokens: 4,
      n: 3,
    });
    expect(answer.choices).to.have.length(3);
    const record = await onlySettlement();
    expect(record.charge?.tokens).to.equal(answer.usage?.completion_tokens);
    expect(record.endpoint).to.equal("completions");
  });

  it("gets embeddings, which settle at no output and still count one for the clock", async () => {
    const answer = await client.embeddings.create({ model: "demo", input: ["one", "two"] });
    expect(answer.data).to.have.length(2);
    const record = await onlySettlement();
    expect(record.charge).to.deep.equal({ kind: "observed", tokens: 0, clockTokens: 1 });
    expect(record).to.deep.include({ endpoint: "embeddings", outcome: "success", status: 200 });
  });

  it("gets a response of the responses API, whose nested usage is settled", async () => {
    const answer = await client.responses.create({
      model: "demo",
      input: "hello there",
      max_output_tokens: 6,
    });
    expect(answer.output_text).to.not.equal("");
    expect(answer.usage?.output_tokens).to.equal(6);
    const record = await onlySettlement();
    expect(record.charge).to.deep.equal({ kind: "observed", tokens: 6, clockTokens: 6 });
    expect(record.promptTokens).to.equal(answer.usage?.input_tokens);
  });

  it("streams a response of the responses API, whose usage stands in the last event", async () => {
    const stream = await client.responses.create({
      model: "demo",
      input: "hello there",
      max_output_tokens: 7,
      stream: true,
    });
    let last: OpenAI.Responses.Response | undefined;
    for await (const event of stream) {
      if (event.type === "response.completed" || event.type === "response.incomplete") {
        last = event.response;
      }
    }
    expect(last?.usage?.output_tokens).to.equal(7);
    const record = await onlySettlement();
    expect(record.charge).to.deep.equal({ kind: "observed", tokens: 7, clockTokens: 7 });
    expect(record).to.deep.include({ endpoint: "responses", stream: true });
  });

  it("lists and reads models past admission, and nothing is charged", async () => {
    const names: string[] = [];
    for await (const model of client.models.list()) names.push(model.id);
    expect(names).to.deep.equal(["demo", "demo-latest"]);
    const model = await client.models.retrieve("demo");
    expect(model.id).to.equal("demo");
    const records = await stack.settlements(2);
    await stack.idle();
    for (const record of records) {
      expect(record).to.deep.include({
        endpoint: "pass_through",
        outcome: "success",
        admitted: false,
        charge: undefined,
      });
    }
  });

  it("throws NotFoundError with the code model_not_found for a model nobody serves", async () => {
    const problem = await problemOf(
      client.chat.completions.create({ model: "no-such-model", messages: HELLO }),
    );
    expect(problem).to.be.instanceOf(NotFoundError);
    expect(problem.code).to.equal("model_not_found");
    expect(problem.param).to.equal(null);
    expect(problem.type).to.be.a("string").and.not.equal("");
    expect(problem.message).to.include("no-such-model");
    expect(problem.headers?.get("x-weir-error-code")).to.equal("model_not_found");
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "rejected", rejection: "model_not_found" });
    expect(record.charge?.tokens).to.equal(0);
  });

  it("throws BadRequestError for a body without a model", async () => {
    const broken = { messages: HELLO } as unknown as OpenAI.ChatCompletionCreateParamsNonStreaming;
    const problem = await problemOf(client.chat.completions.create(broken));
    expect(problem).to.be.instanceOf(BadRequestError);
    expect(problem.code).to.equal("invalid_request");
    expect(problem.message).to.include("model");
    expect((await onlySettlement()).rejection).to.equal("invalid_request");
  });

  it("sees a worker's own 400 unchanged, not wrapped a second time", async () => {
    const problem = await problemOf(
      client.chat.completions.create({ model: "demo", messages: [] }),
    );
    expect(problem).to.be.instanceOf(BadRequestError);
    expect(problem.headers?.get("x-weir-error-code")).to.equal(null);
    // The engine's code is the status, and its message is its own.
    expect(problem.error).to.deep.include({ type: "BadRequestError", code: 400 });
    const record = await onlySettlement();
    expect(record).to.deep.include({ outcome: "http_4xx", rejection: undefined, status: 400 });
  });

  it("throws an APIError with status 413 for a body over the limit", async () => {
    const problem = await problemOf(
      client.chat.completions.create({
        model: "demo",
        messages: [{ role: "user", content: "x".repeat(BODY_LIMIT_BYTES) }],
      }),
    );
    expect(problem.status).to.equal(413);
    expect(problem.code).to.equal("body_too_large");
    expect(problem.message).to.include(String(BODY_LIMIT_BYTES));
    expect((await onlySettlement()).rejection).to.equal("body_too_large");
  });
});
