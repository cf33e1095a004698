// A stream can end in four ways at any phase: half-closed, cancelled, its client gone, its connection
// lost. Goal: one settlement each, at once, and nothing left in slots, queue or load, however often.

import { connect as connectTcp, type Socket } from "node:net";
import { once } from "node:events";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect } from "chai";
import {
  describeTransports,
  inParallel,
  NOTHING_HELD,
  requestBody,
  requestHeaders,
  responseBody,
  responseHeaders,
  until,
  type ExtProcClient,
  type ProcessStream,
  type WeirUnderTest,
} from "../support/ext-proc-client.js";

const CANCELS = 1_000;
/** A leak of one object graph per stream shows as several MB; noise stays below this. */
const HEAP_SLACK_BYTES = 4 * 1024 * 1024;

interface Phase {
  readonly title: string;
  readonly messages: readonly object[];
  /** What Weir has answered when the phase is reached. */
  readonly answers: readonly string[];
  readonly held: Readonly<Record<string, number>>;
  readonly outcome: string;
  readonly kind: string;
  readonly tokens: number;
}

const EVENT = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n';
const SSE = responseHeaders({ contentType: "text/event-stream" });
const RUNNING = { inFlight: 1, load: 1, live: 1, queued: 0 };

const PHASES: readonly Phase[] = [
  {
    title: "before the body",
    messages: [requestHeaders()],
    answers: ["request_headers"],
    held: { inFlight: 0, load: 0, live: 1, queued: 0 },
    outcome: "pre_admission_interrupted",
    kind: "cancelled",
    tokens: 0,
  },
  {
    title: "after dispatch",
    messages: [requestHeaders(), requestBody()],
    answers: ["request_headers", "route"],
    held: RUNNING,
    outcome: "interrupted",
    kind: "interrupted",
    tokens: 256,
  },
  {
    title: "after response headers",
    messages: [requestHeaders(), requestBody(), SSE],
    answers: ["request_headers", "route", "read"],
    held: RUNNING,
    outcome: "interrupted",
    kind: "interrupted",
    tokens: 256,
  },
  {
    title: "in the middle of an SSE answer",
    messages: [requestHeaders(), requestBody(), SSE, responseBody(EVENT.repeat(301))],
    answers: ["request_headers", "route", "read", "response_body"],
    held: RUNNING,
    outcome: "interrupted",
    kind: "interrupted",
    // 301 events, less the first of the stream: more than the estimate of 256.
    tokens: 300,
  },
];

interface End {
  readonly title: string;
  readonly run: (parts: {
    readonly weir: WeirUnderTest;
    readonly reach: (client: ExtProcClient) => Promise<ProcessStream>;
  }) => Promise<void>;
}

const ENDS: readonly End[] = [
  {
    title: "is half-closed",
    run: async ({ weir, reach }) => {
      const stream = await reach(weir.client());
      stream.end();
      expect((await stream.ended).code).to.equal(0);
    },
  },
  {
    title: "is cancelled",
    run: async ({ weir, reach }) => {
      const stream = await reach(weir.client());
      stream.cancel();
      expect((await stream.ended).code).to.equal(1);
    },
  },
  {
    title: "loses its connection",
    run: async ({ weir, reach }) => {
      const relay = await weir.relay();
      const stream = await reach(weir.client(relay.target));
      relay.cut();
      expect((await stream.ended).code).to.be.greaterThan(0);
    },
  },
  {
    title: "is cancelled and its channel closed in one go",
    run: async ({ weir, reach }) => {
      const client = weir.client();
      const stream = await reach(client);
      stream.cancel();
      client.close();
      await stream.ended;
    },
  },
];

describeTransports("the end of a stream", (start) => {
  let weir: WeirUnderTest;

  before(async () => {
    weir = await start({
      config: { scheduler: { max_concurrent_requests: 1, queue_size: 50 } },
    });
  });
  beforeEach(() => {
    weir.clear();
  });
  after(() => weir.stop());

  async function reach(client: ExtProcClient, phase: Phase): Promise<ProcessStream> {
    const stream = client.open();
    expect(await stream.askAll(...phase.messages)).to.deep.equal(phase.answers);
    return stream;
  }

  for (const end of ENDS) {
    for (const phase of PHASES) {
      it(`settles once a stream that ${end.title} ${phase.title}`, async () => {
        await end.run({
          weir,
          reach: async (client) => {
            const stream = await reach(client, phase);
            expect(weir.held()).to.deep.equal(phase.held);
            return stream;
          },
        });
        await weir.settlements(1);
        expect(weir.settled).to.have.length(1);
        const [record] = weir.settled;
        expect([record?.outcome, record?.charge?.kind, record?.charge?.tokens]).to.deep.equal([
          phase.outcome,
          phase.kind,
          phase.tokens,
        ]);
      });
    }

    it(`takes a held stream that ${end.title} out of the queue at once, and the next one moves up`, async () => {
      const client = weir.client();
      const first = client.open();
      await first.askAll(requestHeaders(), requestBody());
      let behind: ProcessStream | undefined;
      await end.run({
        weir,
        reach: async (other) => {
          const leaving = other.open();
          expect(await leaving.askAll(requestHeaders({ id: "leaving" }), requestBody())).to.include(
            "hold",
          );
          behind = client.open();
          await behind.askAll(requestHeaders(), requestBody());
          expect(weir.held()).to.deep.equal({ inFlight: 1, load: 1, live: 3, queued: 2 });
          return leaving;
        },
      });
      await until("one waiter left", () => weir.app.desk.counts.queued === 1);
      expect(weir.settled).to.have.length(1);
      expect(weir.settled[0]).to.deep.include({
        requestId: "leaving",
        outcome: "pre_admission_interrupted",
        charge: { kind: "cancelled", tokens: 0, clockTokens: 0 },
        admitted: false,
      });
      first.end();
      expect(await behind?.reply()).to.equal("route");
      behind?.end();
      await weir.settlements(3);
      expect(weir.settled).to.have.length(3);
    });
  }

  it("lets running streams of a closed channel go on to their end", async () => {
    const client = weir.client();
    const stream = client.open();
    await stream.askAll(requestHeaders(), requestBody());
    client.close();
    await stream.askAll(responseHeaders(), responseBody('{"usage":{"completion_tokens":3}}', true));
    await weir.settlements(1);
    expect(weir.settled[0]?.charge).to.deep.include({ kind: "observed", tokens: 3 });
    stream.end();
    await stream.ended;
  });

  it(`holds nothing after ${String(CANCELS)} cancelled streams at every phase in turn, and the heap stays flat`, async () => {
    // A cancel is a reset of the HTTP/2 stream, and Node's HTTP/2 server gives up a connection after
    // about a thousand of them, so the storm comes over several.
    const clients = Array.from({ length: 8 }, () => weir.client());
    const storm = async (): Promise<void> => {
      await inParallel(CANCELS, 20, async (index) => {
        const phase = PHASES[index % PHASES.length];
        const stream = clients[index % clients.length]?.open();
        if (stream === undefined) return;
        for (const message of phase?.messages ?? []) stream.send(message);
        // With one slot, most of those with a body are held when they leave.
        await stream.shape();
        stream.cancel();
        await stream.ended;
      });
      await weir.settlements(CANCELS);
      expect(weir.settled).to.have.length(CANCELS);
      weir.clear();
    };
    await storm();
    const before = heapBytes();
    await storm();
    expect(weir.held()).to.deep.equal(NOTHING_HELD);
    expect(heapBytes() - before).to.be.lessThan(HEAP_SLACK_BYTES);
  });

  it("lives on when strangers speak another protocol on its socket", async () => {
    const hello = [
      Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03]),
      Buffer.from("GET / HTTP/1.1\r\nhost: x\r\n\r\n"),
      Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff", "latin1"),
      Buffer.alloc(100_000, 0x55),
    ];
    for (const bytes of hello) {
      const socket = connect(weir.target);
      socket.on("error", () => undefined);
      socket.write(bytes);
      socket.resume();
      await new Promise((resolve) => socket.once("connect", resolve));
      socket.end();
      await Promise.race([once(socket, "close"), once(socket, "end")]);
      socket.destroy();
    }
    const stream = weir.client().open();
    expect(await stream.askAll(requestHeaders(), requestBody())).to.deep.equal([
      "request_headers",
      "route",
    ]);
    stream.end();
    await weir.settlements(1);
  });
});

function connect(target: string): Socket {
  if (target.startsWith("unix:")) return connectTcp(target.slice("unix:".length));
  return connectTcp(Number(target.slice(target.lastIndexOf(":") + 1)), "127.0.0.1");
}

/** Live bytes of the heap, after a full collection. */
function heapBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}
