// Goal: while a large body is read in steps, its request can end in every way, exactly once, and others
// are served in between. Method: a real session and desk, with a clock and turns of the event loop that
// the test gives; the messages are encoded and the replies decoded by the oracle.

import { expect } from "chai";
import { ONE_STEP_MAX_BYTES } from "../../../extproc/core/request/admission-plan.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { SLOW_READING_SHARE } from "../../../extproc/edge/envoy/body-reading.js";
import { createWireCodec } from "../../../extproc/edge/envoy/codec.js";
import { EvidenceReader } from "../../../extproc/edge/envoy/evidence.js";
import { Session } from "../../../extproc/edge/envoy/session.js";
import { SLICE_MS, SlicedWork } from "../../../extproc/edge/runtime/sliced-work.js";
import type { ConfigSketch } from "../../support/config.js";
import { Bench, NOTHING_LEFT } from "../../support/desk.js";
import {
  replyKind,
  requestBody,
  requestHeaders,
  responseHeaders,
  type RequestSketch,
} from "../../support/ext-proc-client.js";
import { decodeReply, encodeRequest } from "../../support/oracle.js";

const MESSAGE_TIMEOUT_MS = 2_000;
const SLOW_READING_MS = MESSAGE_TIMEOUT_MS * SLOW_READING_SHARE;
/** Work that a body of `LARGE` takes: one step per 32 KiB, a slice each. */
const STEPS = 10;
const LARGE = large(STEPS * 32_768);

function large(length: number, end = "}"): string {
  const frame = `{"model":"demo","messages":[]${end}`;
  return frame.replace("[]", `[{"content":"${"x".repeat(length - frame.length - 14)}"}]`);
}

/** A desk, its sessions, and the turns of the event loop. */
class Site {
  readonly bench: Bench;
  readonly faults: unknown[] = [];
  readonly #turns: (() => void)[] = [];
  readonly #work: SlicedWork;
  readonly #codec = createWireCodec("x-weir-cluster", []);

  constructor(config: ConfigSketch = {}) {
    this.bench = new Bench(config);
    // A step takes a slice, so each turn does one.
    let clockMs = 0;
    this.#work = new SlicedWork(
      () => (clockMs += SLICE_MS),
      (turn) => this.#turns.push(turn),
    );
  }

  open(): Stream {
    const replies: string[] = [];
    const { bench } = this;
    const session = new Session(
      {
        desk: bench.desk,
        evidence: new EvidenceReader({ identityMetadata: [], peers: [], trustedHops: 0 }),
        codec: this.#codec,
        now: () => bench.now,
        work: this.#work,
        messageTimeoutMs: MESSAGE_TIMEOUT_MS,
        decodeMaxBytes: 1_000_000,
        onFault: (error) => this.faults.push(error),
        onMissingAttributes: () => undefined,
      },
      {
        send: (reply) => replies.push(replyKind(decodeReply(reply))),
        abort: () => replies.push("abort"),
      },
    );
    const send = (message: object): void => {
      session.message(encodeRequest(message));
    };
    return {
      replies,
      send,
      start: (body, sketch) => {
        send(requestHeaders(sketch));
        send(requestBody(body));
      },
      close: () => {
        session.closed();
      },
    };
  }

  /** Turns until there is no work left, at most `max`; how many there were. */
  async turns(max = Infinity): Promise<number> {
    let count = 0;
    for (let turn = this.#turns.shift(); turn !== undefined; turn = this.#turns.shift()) {
      turn();
      count += 1;
      if (count >= max) break;
    }
    // What the end of a reading leads to is a promise's turn.
    await Promise.resolve();
    await new Promise(setImmediate);
    return count;
  }

  outcomes(): string[] {
    return this.bench.settled.map(({ outcome, rejection }) => rejection ?? outcome);
  }
}

interface Stream {
  readonly replies: readonly string[];
  readonly send: (message: object) => void;
  readonly start: (body: string, sketch?: RequestSketch) => void;
  readonly close: () => void;
}

const ONE_SLOT: ConfigSketch = {
  scheduler: { max_concurrent_requests: 1, queue_size: 2, queue_timeout_secs: 30 },
};

describe("envoy/session: large bodies", () => {
  it("reads a body up to the limit at once, and one byte more in later turns", async () => {
    const site = new Site();
    const small = site.open();
    small.start(large(ONE_STEP_MAX_BYTES));
    expect(small.replies).to.deep.equal(["request_headers", "route"]);
    const larger = site.open();
    larger.start(large(ONE_STEP_MAX_BYTES + 1));
    expect(larger.replies).to.deep.equal(["request_headers"]);
    expect(await site.turns()).to.equal(3);
    expect(larger.replies).to.deep.equal(["request_headers", "route"]);
  });

  it("serves others between the steps, and then decides as for any body", async () => {
    const site = new Site();
    const first = site.open();
    first.start(LARGE);
    expect(await site.turns(3)).to.equal(3);
    const second = site.open();
    second.start('{"model":"demo"}');
    expect(second.replies).to.deep.equal(["request_headers", "route"]);
    expect(first.replies).to.deep.equal(["request_headers"]);
    expect(await site.turns()).to.equal(STEPS - 3);
    expect(first.replies).to.deep.equal(["request_headers", "route"]);
    first.close();
    second.close();
    expect(site.outcomes()).to.have.length(2);
    expect(site.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("reads several bodies in turn, none before another by more than a step", async () => {
    const site = new Site();
    const streams = [LARGE, LARGE, large(5 * 32_768)].map((body) => {
      const stream = site.open();
      stream.start(body);
      return stream;
    });
    await site.turns(3 * 5);
    const routed = (): boolean[] => streams.map(({ replies }) => replies.length === 2);
    expect(routed()).to.deep.equal([false, false, true]);
    await site.turns(2 * 5 - 2);
    expect(routed()).to.deep.equal([false, false, true]);
    await site.turns(2);
    expect(routed()).to.deep.equal([true, true, true]);
  });

  it("refuses what is not JSON when it comes to the place, and reads no further", async () => {
    const site = new Site();
    const stream = site.open();
    stream.start(LARGE.replace("xxxx", '""xx'));
    expect(await site.turns()).to.equal(1);
    expect(stream.replies).to.deep.equal(["request_headers", "refuse 400 invalid_request"]);
    expect(site.outcomes()).to.deep.equal(["invalid_request"]);
    const late = site.open();
    late.start(large(STEPS * 32_768, "]"));
    expect(await site.turns()).to.equal(STEPS);
    expect(late.replies).to.deep.equal(["request_headers", "refuse 400 invalid_request"]);
  });

  it("does not read what is passed through, nor what is too large", async () => {
    const site = new Site({ limits: { body_limit_bytes: 100_000 } });
    const through = site.open();
    through.start(LARGE, { method: "GET", path: "/v1/models" });
    const tooLarge = site.open();
    tooLarge.start(LARGE);
    expect(through.replies.at(-1)).to.equal("route");
    expect(tooLarge.replies.at(-1)).to.equal("refuse 413 body_too_large");
    expect(await site.turns()).to.equal(0);
  });

  it("stops reading when the stream ends, and settles the request once", async () => {
    const site = new Site();
    const stream = site.open();
    stream.start(LARGE);
    await site.turns(2);
    stream.close();
    expect(site.outcomes()).to.deep.equal(["pre_admission_interrupted"]);
    expect(await site.turns()).to.equal(1);
    expect(stream.replies).to.deep.equal(["request_headers"]);
    expect(site.outcomes()).to.have.length(1);
    expect(site.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
    expect(site.faults).to.deep.equal([]);
  });

  it("stops reading when Envoy answers itself, and says nothing more about the body", async () => {
    const site = new Site();
    const stream = site.open();
    stream.start(LARGE);
    await site.turns(2);
    stream.send(responseHeaders({ status: 504, codeDetails: "request_overall_timeout" }));
    expect(stream.replies).to.deep.equal(["request_headers", "response_headers"]);
    expect(await site.turns()).to.equal(1);
    stream.close();
    expect(stream.replies).to.have.length(2);
    expect(site.outcomes()).to.have.length(1);
    expect(site.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("refuses a request that sends another body meanwhile, and reads no further", async () => {
    const site = new Site();
    const stream = site.open();
    stream.start(LARGE);
    await site.turns(2);
    stream.send(requestBody('{"model":"demo"}'));
    expect(stream.replies).to.deep.equal(["request_headers", "refuse 503 internal_error"]);
    expect(await site.turns()).to.equal(1);
    stream.close();
    expect(stream.replies).to.have.length(2);
    expect(site.outcomes()).to.deep.equal(["internal_error"]);
    expect(site.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("serves a body that is read while the process drains, and refuses it once the queue is closed", async () => {
    const site = new Site();
    const served = site.open();
    served.start(LARGE);
    await site.turns(2);
    site.bench.desk.drain();
    await site.turns();
    expect(served.replies).to.deep.equal(["request_headers", "route"]);
    served.close();

    const closed = new Site();
    const refused = closed.open();
    refused.start(LARGE);
    await closed.turns(2);
    closed.bench.desk.drain();
    closed.bench.desk.refuseQueued(closed.bench.now);
    expect(closed.bench.desk.counts).to.deep.equal({ live: 1, queued: 0 });
    await closed.turns();
    expect(refused.replies).to.deep.equal(["request_headers", "refuse 503 draining"]);
    expect(closed.outcomes()).to.deep.equal(["draining"]);
    expect(closed.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("asks Envoy for time once when the reading takes long, the waiting included", async () => {
    const site = new Site(ONE_SLOT);
    const running = site.open();
    running.start('{"model":"demo"}');
    const stream = site.open();
    stream.start(LARGE);
    await site.turns(2);
    site.bench.now = monotonicMs(SLOW_READING_MS - 1);
    await site.turns(1);
    expect(stream.replies).to.deep.equal(["request_headers"]);
    site.bench.now = monotonicMs(SLOW_READING_MS);
    await site.turns(1);
    expect(stream.replies).to.deep.equal(["request_headers", "hold"]);
    site.bench.now = monotonicMs(9 * SLOW_READING_MS);
    await site.turns();
    expect(site.bench.desk.counts).to.deep.equal({ live: 2, queued: 1 });
    expect(stream.replies).to.deep.equal(["request_headers", "hold"]);
    running.close();
    site.bench.desk.turn(site.bench.now);
    expect(stream.replies).to.deep.equal(["request_headers", "hold", "route"]);
    stream.close();
    expect(site.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("asks for time as ever when a body that was read fast has to wait for its slot", async () => {
    const site = new Site(ONE_SLOT);
    site.open().start('{"model":"demo"}');
    const stream = site.open();
    stream.start(LARGE);
    await site.turns();
    expect(stream.replies).to.deep.equal(["request_headers", "hold"]);
  });
});
