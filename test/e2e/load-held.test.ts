// Goal: Weir holds 1,500 requests at once and lets them go together without an error and without
// keeping memory. Method: ten rounds; in each hanging requests take the few slots there are, 1,500
// clients are held, and then the workers' slots are raised so that all are granted at once. The heap
// is measured after a full collection, so that garbage of the tests' own does not count.
import { Agent } from "node:http";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect } from "chai";
import { request } from "../support/http-client.js";
import { occupySlot, PATIENT_MS, untilQueued } from "../support/slots.js";
import { chatBody, JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const HELD = 1_500;
/** So many that nobody's backlog of connections runs over when all requests go at once. */
const WORKERS = 8;
/** Clients arrive in batches; they leave the queue all together. */
const BATCH = 250;
const ROUNDS = 10;
/** The first rounds fill pools and compile code; what grows after them is a leak. */
const SETTLED_IN_ROUND = 3;
/** 7 rounds of 1,500 requests: a leak of 800 bytes per request would show. */
const HEAP_MARGIN_BYTES = 8 * 1024 * 1024;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

async function heapUsed(): Promise<number> {
  // Sockets and streams free what they hold in later turns of the event loop.
  for (let pass = 0; pass < 3; pass += 1) {
    await new Promise((done) => setTimeout(done, 50));
    collect();
  }
  return process.memoryUsage().heapUsed;
}

describe("1,500 requests held at once", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: WORKERS,
      mock: { slots: HELD },
      config: {
        scheduler: { queue_size: 2_000, queue_timeout_secs: 120 },
        // All of them come from one address, which makes them one tenant.
        fair_share: { max_queued_requests_per_tenant: 2_000 },
        // Clients, worker and Weir share one thread here, so that one message can wait for the
        // work of all three; how fast a machine does that is no matter of this test.
        envoy: { message_timeout: "10s" },
      },
    });
  });
  after(() => stack.stop());

  /** Sets what each worker says of its slots; Weir's slots are the sum. */
  function setSlots(slots: number): void {
    stack.config.workers.forEach((worker) => {
      const labels = { ...worker.labels, max_running_requests: slots };
      stack.app.workers.put({ ...worker, labels });
    });
  }

  /** Runs one round; gives how often each kind of answer came. */
  async function round(): Promise<Record<string, number>> {
    setSlots(1);
    const occupants = [];
    for (let slot = 0; slot < WORKERS; slot += 1) occupants.push(await occupySlot(stack));
    const agent = new Agent({ keepAlive: true, maxSockets: HELD });
    const body = chatBody();
    const kinds: Record<string, number> = {};
    const one = async (): Promise<void> => {
      const path = "/v1/chat/completions";
      const options = { port: stack.port, path, headers: JSON_HEADERS, body, agent };
      const answer = await request({ ...options, limitMs: PATIENT_MS });
      const text = answer.status === 200 ? "" : ` ${answer.body.toString("utf8")}`;
      const kind = `${String(answer.status)}${text}`;
      kinds[kind] = (kinds[kind] ?? 0) + 1;
    };
    const answers: Promise<void>[] = [];
    while (answers.length < HELD) {
      for (let sent = 0; sent < BATCH; sent += 1) answers.push(one());
      await untilQueued(stack, answers.length);
    }
    setSlots(HELD);
    await Promise.all(answers);
    for (const occupant of occupants) occupant.abort();
    agent.destroy();
    return kinds;
  }

  it("are all answered when they are let go together, ten times, with the heap flat", async function () {
    this.timeout(180_000);
    console.log(`      ${String(ROUNDS)} rounds of ${String(HELD)} held requests`);
    const heaps: number[] = [];
    for (let done = 1; done <= ROUNDS; done += 1) {
      expect(await round()).to.deep.equal({ "200": HELD });
      await stack.settlements(HELD + WORKERS);
      await stack.idle();
      expect(stack.held()).to.deep.equal(NOTHING_HELD);
      expect(stack.settled).to.have.length(HELD + WORKERS);
      expect(stack.settled.filter((record) => record.waited)).to.have.length(HELD);
      expect(stack.settled.filter((record) => record.outcome === "success")).to.have.length(HELD);
      stack.clear();
      heaps.push(await heapUsed());
    }
    const [from = 0, to = 0] = [heaps[SETTLED_IN_ROUND - 1], heaps[ROUNDS - 1]];
    const inMb = heaps.map((bytes) => (bytes / 2 ** 20).toFixed(1)).join(" ");
    console.log(`      heap after each round, MiB: ${inMb}`);
    expect(to - from, `heap after each round, MiB: ${inMb}`).to.be.lessThan(HEAP_MARGIN_BYTES);
    expect(await stack.envoy.stat("http.ingress.downstream_rq_5xx")).to.equal(0);
    // Envoy resets a stream whose end Weir confirms late, which a busy machine may do to a few; too
    // many would make Node send GOAWAY.
    expect(await stack.envoy.stat("cluster.ext_proc.upstream_cx_close_notify")).to.equal(0);
  });
});
