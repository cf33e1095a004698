// Goal: the npm client `@anthropic-ai/sdk`, as it is installed, works against Envoy by its base URL
// alone, and each settlement says what the client itself was told about usage.
import Anthropic, { APIError, NotFoundError } from "@anthropic-ai/sdk";
import { expect } from "chai";
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

describe("the @anthropic-ai/sdk client against Envoy", () => {
  let stack: Stack;
  let client: Anthropic;
  before(async () => {
    stack = await startStack({
      workers: 1,
      config: { limits: { body_limit_bytes: BODY_LIMIT_BYTES } },
    });
    const baseURL = `http://127.0.0.1:${String(stack.port)}`;
    client = new Anthropic({ apiKey: "unused", baseURL, maxRetries: 0 });
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

  it("gets a message whose usage is what was settled", async () => {
    const answer = await client.messages.create({ model: "demo", max_tokens: 8, messages: HELLO });
    expect(answer.content[0]).to.deep.include({ type: "text" });
    expect(answer.usage.output_tokens).to.equal(8);
    const record = await onlySettlement();
    expect(record.charge).to.deep.equal({ kind: "observed", tokens: 8, clockTokens: 8 });
    expect(record).to.deep.include({ outcome: "success", endpoint: "messages", stream: false });
  });

  it("streams a message; start and delta usage are read as one count, not added up", async () => {
    const stream = client.messages.stream({ model: "demo", max_tokens: 11, messages: HELLO });
    const answer = await stream.finalMessage();
    expect(answer.usage.output_tokens).to.equal(11);
    expect(await stream.finalText()).to.not.equal("");
    const record = await onlySettlement();
    expect(record.charge).to.deep.equal({ kind: "observed", tokens: 11, clockTokens: 11 });
    expect(record).to.deep.include({ outcome: "success", endpoint: "messages", stream: true });
  });

  it("settles fresh and cached prompt tokens apart, as the client was told them", async () => {
    const long = [{ role: "user" as const, content: "the same long prefix ".repeat(60) }];
    const ask = (): Promise<Anthropic.Message> =>
      client.messages.create({ model: "demo", max_tokens: 2, messages: long });
    await ask();
    const answer = await ask();
    const { input_tokens: fresh, cache_read_input_tokens: cached } = answer.usage;
    expect(cached).to.be.greaterThan(0);
    const [, record] = await stack.settlements(2);
    expect(record?.cachedTokens).to.equal(cached);
    expect(record?.promptTokens).to.equal(fresh);
  });

  it("throws NotFoundError for a model nobody serves", async () => {
    const problem = await problemOf(
      client.messages.create({ model: "no-such-model", max_tokens: 2, messages: HELLO }),
    );
    expect(problem).to.be.instanceOf(NotFoundError);
    expect(problem.error).to.have.nested.property("error.code", "model_not_found");
    expect(problem.error).to.have.nested.property("error.param", null);
    expect(problem.message).to.include("no-such-model");
    expect((await onlySettlement()).rejection).to.equal("model_not_found");
  });

  it("sees a worker's own 400 in the worker's own shape", async () => {
    const broken = client.messages.create({ model: "demo", max_tokens: 2, messages: [] });
    const problem = await problemOf(broken);
    expect(problem.status).to.equal(400);
    expect(problem.error).to.deep.include({ type: "error" });
    expect(problem.headers?.get("x-weir-error-code")).to.equal(null);
    expect((await onlySettlement()).rejection).to.equal(undefined);
  });

  it("throws an APIError with status 413 for a body over the limit", async () => {
    const problem = await problemOf(
      client.messages.create({
        model: "demo",
        max_tokens: 2,
        messages: [{ role: "user", content: "x".repeat(BODY_LIMIT_BYTES) }],
      }),
    );
    expect(problem.status).to.equal(413);
    expect(problem.error).to.have.nested.property("error.code", "body_too_large");
    expect((await onlySettlement()).rejection).to.equal("body_too_large");
  });
});
