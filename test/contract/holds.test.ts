// A request that must wait is held on its stream: one extension of Envoy's message timeout with the
// whole budget, then exactly one more reply. Also: drain, where held requests are still served.

import { expect } from "chai";
import type { DrainResult } from "../../extproc/app.js";
import type { ConfigSketch } from "../support/config.js";
import {
  describeTransports,
  finish,
  NOTHING_HELD,
  refusalHeaders,
  requestBody,
  requestHeaders,
  responseHeaders,
  sent,
  until,
  within,
  withWeir,
  type ProcessStream,
} from "../support/ext-proc-client.js";

const NEVER = new AbortController().signal;

const oneSlot = (over: ConfigSketch = {}): ConfigSketch => ({
  scheduler: { max_concurrent_requests: 1, queue_size: 2, queue_timeout_secs: 30, ...over },
});

describeTransports("a held request", (start) => {
  it("is held with one extension for the whole budget and routed when a slot frees, in order of arrival", () =>
    withWeir(start, oneSlot(), async (weir, client) => {
      const first = await sent(client, "first");
      const second = client.open();
      await second.ask(requestHeaders({ id: "second" }));
      second.send(requestBody());
      // Queue timeout 30 s + 5 s.
      expect((await second.shape()).override_message_timeout?.seconds).to.equal(35);
      const third = await sent(client, "third");
      expect(weir.held()).to.deep.equal({ inFlight: 1, load: 1, live: 3, queued: 2 });
      await finish(first);
      expect(await second.reply()).to.equal("route");
      expect(third.kinds()).to.deep.equal(["request_headers", "hold"]);
      await finish(second);
      expect(await third.reply()).to.equal("route");
      await finish(third);
      await weir.settlements(3);
      expect(weir.settled.map(({ requestId, waited }) => [requestId, waited])).to.deep.equal([
        ["first", false],
        ["second", true],
        ["third", true],
      ]);
      expect(second.kinds()).to.deep.equal([
        "request_headers",
        "hold",
        "route",
        "read",
        "response_body",
      ]);
    }));

  it("is refused at the queue timeout with 429 and Retry-After, and the stream ends in peace", () =>
    withWeir(start, oneSlot({ queue_timeout_secs: 1 }), async (weir, client) => {
      const running = await sent(client, "running");
      const held = await sent(client, "held");
      const refusal = await held.shape();
      expect(refusal.immediate_response?.status.code).to.equal(429);
      const headers = refusalHeaders(refusal);
      expect(headers.get("x-weir-error-code")).to.equal("scheduler_queue_timeout");
      expect(Number(headers.get("retry-after"))).to.be.at.least(1);
      held.end();
      expect((await held.ended).code).to.equal(0);
      expect(weir.settled).to.have.length(1);
      expect(weir.settled[0]).to.include({ requestId: "held", outcome: "rejected", waited: true });
      expect(weir.settled[0]?.queuedMs).to.be.at.least(1_000);
      await finish(running);
      await weir.settlements(2);
    }));

  it("is refused when it sends its body a second time, because a go-ahead would pass it undecided", () =>
    withWeir(start, oneSlot(), async (weir, client) => {
      const running = await sent(client, "running");
      const held = await sent(client, "held");
      expect(await held.ask(requestBody())).to.equal("refuse 503 internal_error");
      await until("the queue is empty", () => weir.app.desk.counts.queued === 0);
      await finish(running);
      await weir.settlements(2);
      expect(held.kinds()).to.deep.equal(["request_headers", "hold", "refuse 503 internal_error"]);
    }));

  it("leaves the queue when Envoy itself answers its client, and gets no verdict any more", () =>
    withWeir(start, oneSlot(), async (weir, client) => {
      const running = await sent(client, "running");
      const held = await sent(client, "held");
      const idle = { status: 504, codeDetails: "stream_idle_timeout", flags: 2 ** 17 };
      expect(await held.ask(responseHeaders(idle))).to.equal("response_headers");
      expect(weir.settled).to.have.length(1);
      expect(weir.settled[0]).to.include({ outcome: "pre_admission_interrupted", status: 504 });
      await finish(running);
      held.end();
      await held.ended;
      expect(held.kinds()).to.deep.equal(["request_headers", "hold", "response_headers"]);
      await weir.settlements(2);
    }));

  it("is refused at once when the queue is full", () =>
    withWeir(start, oneSlot({ queue_size: 1 }), async (weir, client) => {
      const streams = [await sent(client, "a"), await sent(client, "b"), await sent(client, "c")];
      expect(streams[2]?.kinds()).to.deep.equal([
        "request_headers",
        "refuse 429 scheduler_queue_full",
      ]);
      for (const stream of streams) stream.end();
      await weir.settlements(3);
    }));
});

describeTransports("a drain", (start) => {
  const limits = (drain: number, grace: number): ConfigSketch => ({
    ...oneSlot(),
    limits: { drain_timeout_secs: drain, shutdown_grace_period_secs: grace },
  });

  it("answers new requests 503 draining, also on new connections, while held ones are served", () =>
    withWeir(start, limits(30, 60), async (weir, client) => {
      const running = await sent(client, "running");
      const held = await sent(client, "held");
      const drained = weir.app.drain(NEVER);
      for (const one of [client, weir.client()]) {
        const late = one.open();
        expect(await late.ask(requestHeaders({ id: "late" }))).to.equal("refuse 503 draining");
        late.end();
        expect((await late.ended).code).to.equal(0);
      }
      const models = client.open();
      expect(
        await models.ask(requestHeaders({ method: "GET", path: "/v1/models", endOfStream: true })),
      ).to.equal("refuse 503 draining");
      await finish(running);
      expect(await held.reply()).to.equal("route");
      await finish(held);
      const result: DrainResult = await within("the end of the drain", drained);
      expect(result).to.deep.equal({ refused: 0, unobserved: 0 });
      expect(weir.held()).to.deep.equal(NOTHING_HELD);
    }));

  it("refuses who still waits when its time is over, and says how many went unobserved", () =>
    withWeir(start, limits(1, 2), async (weir, client) => {
      const running = await sent(client, "running");
      const held = [await sent(client, "h1"), await sent(client, "h2")];
      const result = await within("the end of the drain", weir.app.drain(NEVER));
      expect(result).to.deep.equal({ refused: 2, unobserved: 1 });
      for (const stream of held) expect(stream.kinds()).to.include("refuse 503 draining");
      expect(weir.settled.map(({ rejection }) => rejection)).to.deep.equal([
        "draining",
        "draining",
      ]);
      // What runs is not touched: its answer still passes while the process is up.
      await finish(running);
      await weir.settlements(3);
      expect(weir.settled[2]).to.include({ outcome: "success" });
    }));

  it("ends at once when it is cut short, leaving nothing of the queue behind", () =>
    withWeir(start, limits(30, 600), async (weir, client) => {
      await sent(client, "running");
      const held = await sent(client, "held");
      const cut = new AbortController();
      const drained = weir.app.drain(cut.signal);
      cut.abort();
      expect(await within("the end of the drain", drained)).to.deep.equal({
        refused: 1,
        unobserved: 1,
      });
      expect(await held.reply()).to.equal("refuse 503 draining");
    }));

  it("ends all open streams when the server stops, and settles every one of them", async () => {
    const weir = await start({ config: oneSlot() });
    const client = weir.client();
    const streams = [await sent(client, "a"), await sent(client, "b")];
    const headersOnly = client.open();
    await headersOnly.ask(requestHeaders({ id: "c" }));
    await weir.stop();
    for (const stream of [...streams, headersOnly]) {
      expect((await stream.ended).code).to.be.greaterThan(0);
    }
    await weir.settlements(3);
    expect(weir.settled).to.have.length(3);
  });

  it("serves out 50 open streams and 20 queued ones without an error (rollout 500s)", () =>
    withWeir(
      start,
      { scheduler: { max_concurrent_requests: 50, queue_size: 20, queue_timeout_secs: 30 } },
      async (weir, client) => {
        const streams: ProcessStream[] = [];
        for (let count = 0; count < 70; count += 1) {
          streams.push(await sent(client, `r-${String(count)}`));
        }
        expect(weir.held()).to.deep.equal({ inFlight: 50, load: 50, live: 70, queued: 20 });
        const drained = weir.app.drain(NEVER);
        await Promise.all(
          streams.map(async (stream) => {
            if (stream.kinds().at(-1) === "hold") expect(await stream.reply()).to.equal("route");
            await finish(stream);
          }),
        );
        expect(await drained).to.deep.equal({ refused: 0, unobserved: 0 });
        expect(weir.settled.every(({ outcome }) => outcome === "success")).to.equal(true);
        expect(weir.settled).to.have.length(70);
      },
    ));
});
