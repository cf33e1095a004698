// Envoy drops its gRPC client for an ext_proc service after 50 s without a new stream, by default. A
// stream that outlives it and is then closed gracefully ends the process. The bootstrap keeps the
// client, so a long answer on a quiet Envoy is as safe as any other.

import { expect } from "chai";
import { request } from "../support/http-client.js";
import { chatBody, JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

/** Longer than Envoy keeps an unused client by default. */
const ANSWER_MS = 54_000;

describe("a quiet Envoy", function () {
  this.timeout(90_000);
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.stop());

  it("outlives a request that lasts longer than it keeps an unused gRPC client, and serves the next", async () => {
    const send = (fault: string): ReturnType<typeof request> =>
      request({
        port: stack.port,
        path: "/v1/chat/completions",
        headers: [...JSON_HEADERS, ["x-mock", fault]],
        body: chatBody(),
        limitMs: 80_000,
      });
    expect((await send(`delay_ms=${String(ANSWER_MS)}`)).status).to.equal(200);
    expect(stack.envoy.process.end).to.equal(undefined);
    expect((await send("tokens=1")).status).to.equal(200);
    await stack.settlements(2);
    expect(stack.settled.map(({ outcome }) => outcome)).to.deep.equal(["success", "success"]);
    await stack.idle();
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
  });
});
