// What every transport owes a session besides its messages: many streams, large bodies, peers that
// read nothing, reset everything or go away, and a peaceful end.

import { expect } from "chai";
import {
  ALL_TRANSPORTS,
  describeTransports,
  finish,
  NOTHING_HELD,
  requestBody,
  requestHeaders,
  responseBody,
  responseHeaders,
  sent,
  until,
  within,
  type WeirUnderTest,
} from "../support/ext-proc-client.js";
import { RawClient, type RawStream } from "../support/http2-client.js";

const HELD = 1_500;
const BODY_BYTES = 20_000_000;
const RESETS = 5_000;
/** Resets under way at once; more would only measure the client. */
const RESET_BATCH = 100;
const OPEN = 100;
const CHUNKS = 20_000;

describeTransports(
  "a transport",
  (start, transport) => {
    let weir: WeirUnderTest;
    const clients: RawClient[] = [];
    const raw = (...args: ConstructorParameters<typeof RawClient>): RawClient => {
      const client = new RawClient(...args);
      clients.push(client);
      return client;
    };
    afterEach(async () => {
      for (const client of clients.splice(0)) client.destroy();
      await weir.stop();
    });

    it(`holds ${String(HELD)} requests on one connection, and ends each in peace`, async () => {
      weir = await start({
        config: {
          scheduler: { max_concurrent_requests: 1, queue_size: HELD },
          fair_share: { enabled: false },
        },
      });
      const client = weir.client();
      const streams = Array.from({ length: HELD }, () => client.open());
      const said = await Promise.all(
        streams.map(async (stream, index) => {
          await stream.ask(requestHeaders({ id: String(index) }));
          return stream.ask(requestBody());
        }),
      );
      expect(said.filter((word) => word === "hold")).to.have.length(HELD - 1);
      expect(weir.held()).to.deep.include({ inFlight: 1, queued: HELD - 1, live: HELD });
      for (const stream of streams) stream.end();
      const codes = await Promise.all(streams.map(async (stream) => (await stream.ended).code));
      expect(new Set(codes)).to.deep.equal(new Set([0]));
      expect(await weir.settlements(HELD)).to.have.length(HELD);
    });

    it("takes a body of 20 MB whole, while others go on", async () => {
      weir = await start();
      const client = weir.client();
      const large = client.open();
      await large.ask(requestHeaders());
      const content = "x".repeat(BODY_BYTES);
      const body = JSON.stringify({ model: "demo", messages: [{ role: "user", content }] });
      large.send(requestBody(body));
      await finish(await sent(client, "other"));
      expect(await large.reply()).to.equal("route");
      await finish(large);
    });

    it(`serves others while a peer opens no window for ${String(CHUNKS)} replies, and settles it once when it goes`, async () => {
      weir = await start();
      const stalled = raw(weir.target, { initialWindowSize: 0 });
      const stream = stalled.open();
      for (const message of [requestHeaders(), requestBody(), responseHeaders()]) {
        stream.send(message);
      }
      for (let count = 0; count < CHUNKS; count += 1) stream.send(responseBody("x"));
      await until("the stalled request runs", () => weir.held()["inFlight"] === 1);
      for (const id of ["a", "b", "c"]) await finish(await sent(weir.client(), id));
      expect(stream.receivedBytes).to.equal(0);
      stalled.destroy();
      expect(await weir.settlements(4)).to.have.length(4);
    });

    it(`serves on after ${String(RESETS)} resets, and holds nothing of them`, async () => {
      weir = await start();
      let client = raw(weir.target);
      let connections = 1;
      for (let done = 0; done < RESETS; done += RESET_BATCH) {
        if (!client.usable) {
          client = raw(weir.target);
          connections += 1;
        }
        const streams: RawStream[] = [];
        for (let count = 0; count < RESET_BATCH; count += 1) {
          const stream = client.open();
          stream.send(requestHeaders());
          streams.push(stream);
        }
        // At every stage: before its headers are read, or when they have been.
        if ((done / RESET_BATCH) % 2 === 1) await new Promise(setImmediate);
        for (const stream of streams) stream.reset();
        await within("the end of the resets", Promise.all(streams.map(({ ended }) => ended)));
      }
      if (transport.name.startsWith("h2c")) expect(connections).to.equal(1);
      await weir.idle();
      await finish(await sent(weir.client(), "after"));
      expect(weir.held()).to.deep.equal(NOTHING_HELD);
    });

    it(`ends each of ${String(OPEN)} open streams once when their connection goes`, async () => {
      weir = await start({ config: { scheduler: { max_concurrent_requests: OPEN / 2 } } });
      const relay = await weir.relay();
      const client = weir.client(relay.target);
      const streams = Array.from({ length: OPEN }, () => client.open());
      await Promise.all(
        streams.map(async (stream, index) => {
          // Three phases: before the body, held or routed, and in the answer.
          await stream.ask(
            requestHeaders({ id: String(index), source: `10.0.0.${String(index)}:1` }),
          );
          if (index % 3 > 0) await stream.ask(requestBody());
        }),
      );
      relay.cut();
      expect(await weir.settlements(OPEN)).to.have.length(OPEN);
      const ids = new Set(weir.settled.map(({ requestId }) => requestId));
      expect(ids.size).to.equal(OPEN);
    });

    it("says GOAWAY when it closes, lets an open stream end, and is gone then", async () => {
      weir = await start();
      const client = raw(weir.target);
      const stream = client.open();
      stream.send(requestHeaders());
      await until("a reply", () => stream.receivedBytes > 0);
      const stopped = weir.app.stop();
      await until("a GOAWAY", () => client.goaways > 0);
      stream.end();
      expect(await within("the end of the stream", stream.ended)).to.equal("0");
      await within("the end of the server", stopped);
      expect(await weir.settlements(1)).to.have.length(1);
    });

    it("cuts what is still open when its time to close is over", async () => {
      weir = await start();
      const client = raw(weir.target);
      const stream = client.open();
      stream.send(requestHeaders());
      await until("a reply", () => stream.receivedBytes > 0);
      await within("the end of the server", weir.app.stop());
      expect(await within("the end of the stream", stream.ended)).to.not.equal("0");
      expect(await weir.settlements(1)).to.have.length(1);
    });
  },
  ALL_TRANSPORTS,
);
