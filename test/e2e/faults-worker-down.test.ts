// Goal: a worker that cannot be reached, and a cluster Envoy does not know, cost their clients nothing
// and Weir no slot; a dead worker is left out after five failures and comes back by a probe. Method:
// workers that are really closed, and a bootstrap in which the cluster has another name.
import { expect } from "chai";
import { startMockWorker } from "../../envoy/mock-worker/server.js";
import { expectError, sendChat } from "../support/chat.js";
import { NOTHING_HELD, startStack, type Stack, type StackOptions } from "../support/stack.js";

const CANCELLED = { kind: "cancelled", tokens: 0, clockTokens: 0 };
const DEAD = { status: 503, code: "worker_failed" };
const WORKERLESS = { status: 503, code: "no_worker", retryAfter: "1" };

/** The health checks come too late to notice anything: what is seen is the breaker alone. */
const ONLY_BREAKER: StackOptions["config"] = {
  health: { interval_secs: 600 },
  breaker: { consecutive_failures: 5, open_secs: 1 },
};

describe("a worker that is down", () => {
  let stack: Stack;
  afterEach(() => stack.stop());

  const breaker = (index: number): string | undefined =>
    [...stack.app.workers.all()][index]?.runtime.breaker.state(performance.now() as never);

  it("is left out after five refused connections, at no charge, and comes back by one probe", async () => {
    stack = await startStack({ workers: 1, config: ONLY_BREAKER });
    const { port } = stack.workers[0] ?? { port: 0 };
    await stack.workers[0]?.close(0);
    for (let failure = 1; failure <= 5; failure += 1) {
      expect(breaker(0), `before failure ${String(failure)}`).to.equal("closed");
      const message = expectError(await sendChat(stack), DEAD);
      expect(message).to.match(/remote_connection_failure|connection_refused|delayed_connect/i);
      await stack.settlements(failure);
    }
    expect(breaker(0)).to.equal("open");
    expectError(await sendChat(stack), WORKERLESS);
    await stack.settlements(6);
    for (const record of stack.settled.slice(0, 5)) {
      expect(record).to.deep.include({ outcome: "http_5xx", status: 503, admitted: true });
      expect(record.charge).to.deep.equal(CANCELLED);
    }
    const last = stack.settled[5];
    expect(last).to.deep.include({ outcome: "rejected", rejection: "no_worker", admitted: false });
    expect(last?.charge).to.deep.equal(CANCELLED);
    expect(stack.held()).to.deep.equal(NOTHING_HELD);

    const again = await startMockWorker({ port });
    try {
      await stack.until("a probe is allowed", () => breaker(0) === "half_open");
      expect((await sendChat(stack)).status).to.equal(200);
      await stack.settlements(7);
      expect(breaker(0)).to.equal("closed");
      expect((await sendChat(stack)).status).to.equal(200);
      await stack.idle();
    } finally {
      await again.close(0);
    }
  });

  it("is tried by one probe at a time, and stays out when the probe fails", async () => {
    stack = await startStack({ workers: 1, config: ONLY_BREAKER });
    await stack.workers[0]?.close(0);
    for (let failure = 1; failure <= 5; failure += 1) await sendChat(stack);
    await stack.until("a probe is allowed", () => breaker(0) === "half_open");
    const answers = await Promise.all(Array.from({ length: 10 }, () => sendChat(stack)));
    await stack.settlements(15);
    const codes = answers.map(({ headers }) => headers["x-weir-error-code"]);
    expect(codes.filter((code) => code === "worker_failed")).to.have.length(1);
    expect(codes.filter((code) => code === "no_worker")).to.have.length(9);
    expect(breaker(0)).to.equal("open");
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
  });

  it("leaves the work to its peer: at most five clients notice", async () => {
    stack = await startStack({ workers: 2, config: { ...ONLY_BREAKER, breaker: {} } });
    await stack.workers[0]?.close(0);
    const statuses: number[] = [];
    for (let sent = 0; sent < 40; sent += 1) statuses.push((await sendChat(stack)).status);
    expect(statuses.filter((status) => status === 503)).to.have.length(5);
    expect(statuses.slice(-20)).to.deep.equal(new Array<number>(20).fill(200));
    expect([breaker(0), breaker(1)]).to.deep.equal(["open", "closed"]);
    await stack.settlements(40);
    await stack.idle();
  });

  it("is noticed by the health checks too, and so is its return", async () => {
    stack = await startStack({
      workers: 1,
      config: { health: { interval_secs: 0.2, timeout_secs: 0.1 } },
    });
    const { port } = stack.workers[0] ?? { port: 0 };
    const healthy = (): boolean => [...stack.app.workers.all()][0]?.healthy === true;
    await stack.workers[0]?.close(0);
    await stack.until("it is taken out", () => !healthy());
    expectError(await sendChat(stack), WORKERLESS);
    const again = await startMockWorker({ port });
    try {
      await stack.until("it is back", healthy);
      expect((await sendChat(stack)).status).to.equal(200);
      await stack.idle();
      expect(stack.settled).to.have.length(2);
    } finally {
      await again.close(0);
    }
  });
});

describe("a cluster that Envoy does not know", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 1,
      bootstrap: (yaml) => yaml.replaceAll("worker_1", "worker_renamed"),
    });
  });
  after(() => stack.stop());

  it("gives 503 with Retry-After, no charge, and says nothing against the worker", async () => {
    // More than the breaker's five failures in a row.
    const requests = 8;
    for (let sent = 1; sent <= requests; sent += 1) {
      const answer = await sendChat(stack);
      expectError(answer, { status: 503, code: "weir_unavailable", retryAfter: "1" });
    }
    await stack.settlements(requests);
    await stack.idle();
    expect(stack.settled).to.have.length(requests);
    for (const record of stack.settled) {
      expect(record).to.deep.include({ outcome: "http_5xx", status: 503, admitted: true });
      expect(record.codeDetails).to.equal("cluster_not_found");
      expect(record.charge).to.deep.equal(CANCELLED);
    }
    expect(stack.workers[0]?.state().last_requests).to.deep.equal([]);
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
  });
});
