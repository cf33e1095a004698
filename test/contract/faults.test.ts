// Something inside of Weir breaks. Goal: a request that was not let through gets 503, one that runs
// goes on without Weir, each is settled once, and no other stream notices.

import { expect } from "chai";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { Exchange, OpenExchange } from "../../extproc/edge/envoy/transport/transport.js";
import {
  describeTransports,
  NOTHING_HELD,
  requestBody,
  requestHeaders,
  responseBody,
  responseHeaders,
  type WeirOptions,
  type WeirUnderTest,
} from "../support/ext-proc-client.js";

const USAGE = '{"usage":{"completion_tokens":37}}';
const INTERNAL = "refuse 503 internal_error";
const ONE_SLOT = {
  scheduler: { max_concurrent_requests: 1, queue_size: 5, queue_timeout_secs: 30 },
};

describeTransports("a fault inside of Weir", (start, transport) => {
  let weir: WeirUnderTest;
  afterEach(() => weir.stop());

  /** Starts a Weir whose n-th reply of all (from 1) cannot be sent. */
  async function startFailingAt(...replies: readonly number[]): Promise<void> {
    let sent = 0;
    const failing = (exchange: Exchange): Exchange => ({
      send: (reply) => {
        sent += 1;
        if (replies.includes(sent)) throw new Error("this reply cannot be sent");
        exchange.send(reply);
      },
      abort: () => {
        exchange.abort();
      },
    });
    weir = await start({
      config: ONE_SLOT,
      app: {
        transport: (open: OpenExchange, options) =>
          transport.create((exchange) => open(failing(exchange)), options),
      },
    });
  }

  const withSettled = (onSettled: (record: SettlementRecord) => void): WeirOptions => ({
    config: ONE_SLOT,
    app: { onSettled },
  });

  async function expectAlive(): Promise<void> {
    await weir.idle();
    weir.clear();
    const stream = weir.client().open();
    expect(
      await stream.askAll(
        requestHeaders(),
        requestBody(),
        responseHeaders(),
        responseBody(USAGE, true),
      ),
    ).to.deep.equal(["request_headers", "route", "read", "response_body"]);
    stream.end();
    expect((await stream.ended).code).to.equal(0);
    await weir.settlements(1);
  }

  const early = [
    { reply: 1, title: "the headers", said: [INTERNAL] },
    { reply: 2, title: "the body", said: ["request_headers", INTERNAL] },
  ];
  for (const { reply, title, said } of early) {
    it(`in the reply to ${title} answers 503 before dispatch and settles once`, async () => {
      await startFailingAt(reply);
      const stream = weir.client().open();
      stream.send(requestHeaders());
      stream.send(requestBody());
      stream.end();
      expect((await stream.ended).code).to.equal(0);
      expect(stream.kinds()).to.deep.equal(said);
      expect(await weir.settlements(1)).to.have.length(1);
      await expectAlive();
    });
  }

  const late = [
    { reply: 3, title: "the response headers" },
    { reply: 4, title: "the response body" },
  ];
  for (const { reply, title } of late) {
    it(`in the reply to ${title} cuts the stream, so that the answer goes on without Weir, and settles once`, async () => {
      await startFailingAt(reply);
      const stream = weir.client().open();
      for (const message of [
        requestHeaders(),
        requestBody(),
        responseHeaders(),
        responseBody(USAGE),
      ]) {
        stream.send(message);
      }
      expect((await stream.ended).code).to.equal(13);
      expect(stream.kinds().filter((kind) => kind.startsWith("refuse"))).to.deep.equal([]);
      await weir.settlements(1);
      expect(weir.settled).to.have.length(1);
      expect(weir.settled[0]?.outcome).to.equal("interrupted");
      await expectAlive();
    });
  }

  it("while a held request gets its verdict refuses that one only, and its slot goes to the next", async () => {
    // Replies 1 to 6: two for each of the three streams; 7 and 8: to the answer of the first one;
    // 9: the route of the one that waits longest.
    await startFailingAt(9);
    const client = weir.client();
    const [first, second, third] = [client.open(), client.open(), client.open()];
    for (const stream of [first, second, third]) {
      await stream.askAll(requestHeaders(), requestBody());
    }
    await first.askAll(responseHeaders());
    first.send(responseBody(USAGE, true));
    expect(await first.reply()).to.equal("response_body");
    expect(await second.reply()).to.equal(INTERNAL);
    expect(await third.reply()).to.equal("route");
    for (const stream of [first, second, third]) stream.end();
    await weir.settlements(3);
    expect(weir.settled).to.have.length(3);
    expect((await first.ended).code).to.equal(0);
    await expectAlive();
  });

  it("in whoever hears of settlements leaks nothing, hangs nobody and does not end the process", async () => {
    let broken = true;
    const breaking = withSettled(() => {
      if (broken) throw new Error("the listener is broken");
    });
    // A transport may close a stream later than it is told to: its end must not be what saves us.
    const later = (exchange: Exchange): Exchange => ({
      send: (reply) => {
        exchange.send(reply);
      },
      abort: () => {
        setImmediate(() => {
          exchange.abort();
        });
      },
    });
    weir = await start({
      ...breaking,
      app: {
        ...breaking.app,
        transport: (open, options) =>
          transport.create((exchange) => open(later(exchange)), options),
      },
    });
    const client = weir.client();
    // Refused at the headers, refused at the body, bytes that are no message, half-closed.
    const refused = client.open();
    expect(await refused.ask(requestHeaders({ path: "/nope" }))).to.equal(INTERNAL);
    const noModel = client.open();
    expect(await noModel.askAll(requestHeaders(), requestBody("no"))).to.include(INTERNAL);
    const garbage = client.open();
    await garbage.ask(requestHeaders());
    expect(await garbage.ask(Buffer.from([0xff]))).to.equal(INTERNAL);
    const gone = client.open();
    await gone.ask(requestHeaders());
    gone.end();
    expect((await gone.ended).code).to.equal(0);
    // A whole answer, with a waiter that must still get the slot.
    const running = client.open();
    await running.askAll(requestHeaders(), requestBody(), responseHeaders());
    const waiter = client.open();
    expect(await waiter.askAll(requestHeaders(), requestBody())).to.include("hold");
    running.send(responseBody(USAGE, true));
    expect((await running.ended).code).to.equal(13);
    expect(running.kinds()).to.deep.equal(["request_headers", "route", "read", "response_body"]);
    expect(await waiter.reply()).to.equal("route");
    // The same, when it is the end after a fault that breaks.
    const behind = client.open();
    expect(await behind.askAll(requestHeaders(), requestBody())).to.include("hold");
    waiter.send(Buffer.from([0xff]));
    expect((await waiter.ended).code).to.equal(13);
    expect(await behind.reply()).to.equal("route");
    behind.cancel();
    await weir.settlements(7);
    expect(weir.settled).to.have.length(7);
    expect(weir.held()).to.deep.equal(NOTHING_HELD);
    broken = false;
    await expectAlive();
  });

  it("after the end of a compressed answer is contained as well", async () => {
    let faults = 0;
    weir = await start(
      withSettled(() => {
        faults += 1;
        if (faults === 1) throw new Error("the listener is broken");
      }),
    );
    const stream = weir.client().open();
    await stream.askAll(requestHeaders(), requestBody(), responseHeaders({ encoding: "gzip" }));
    stream.send(responseBody("", true));
    expect((await stream.ended).code).to.equal(13);
    await weir.settlements(1);
    expect(weir.settled).to.have.length(1);
    await expectAlive();
  });
});
