import { expect } from "chai";
import { request } from "../support/http-client.js";
import { chatBody, JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

describe("first light through a real Envoy", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.stop());
  beforeEach(() => {
    stack.clear();
  });

  it("answers a JSON chat request from a worker and settles the tokens it reports", async () => {
    const answer = await request({
      port: stack.port,
      path: "/v1/chat/completions",
      headers: JSON_HEADERS,
      body: chatBody({ max_tokens: 7 }),
    });
    expect(answer.status).to.equal(200);
    const [record] = await stack.settlements(1);
    expect(record).to.deep.include({
      outcome: "success",
      status: 200,
      model: "demo",
      admitted: true,
    });
    expect(record?.charge).to.deep.equal({ kind: "observed", tokens: 7, clockTokens: 7 });
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
  });
});
