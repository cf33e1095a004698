// Goal: whatever control headers a client sends, in whatever state Weir is, it never reaches a worker
// it has named and no such header reaches any worker. Method: one request that carries every control
// header there is, the route header twice, all of them naming worker_1. The last tests take the early
// strip out of the bootstrap and see the same request get through, so the others can fail.
import { connect, type ClientHttp2Session } from "node:http2";
import { expect } from "chai";
import { parse, stringify } from "yaml";
import { earlyStrip, removeUpstream } from "../../extproc/core/identity/control-headers.js";
import {
  expectError,
  forgetSeen,
  seenByWorkers,
  sendChat,
  settledChat,
  type HeaderLines,
} from "../support/chat.js";
import { FAULTS, startFaultyProcessor, type FaultyProcessor } from "../support/faulty-processor.js";
import { request } from "../support/http-client.js";
import { chatBody, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";

const DOWN = { status: 503, code: "weir_unavailable", retryAfter: "1" };

/** Names a client must not know of; the lists of the product must hold each of them. */
const KNOWN = [
  ...["x-weir-cluster", "x-weir-tenant-id", "x-weir-request-model", "x-weir-routing-key"],
  ...["x-weir-output-token-estimate", "x-weir-admission-partition", "x-weir-target-worker-url"],
  ...["x-weir-excluded-worker-urls", "x-weir-error-code", "x-weir-preempted"],
  ...["x-weir-capacity-credit", "x-weir-capacity-credit-generation"],
  ...["x-weir-capacity-credit-request-id", "x-weir-fair-share-policy-epoch"],
  ...["x-smg-tenant-id", "x-smg-target-worker-url", "x-smg-target-worker", "x-smg-routing-key"],
  ...["x-smg-capacity-credit", "x-gateway-destination-endpoint", "x-gateway-inference-fairness-id"],
  ...["x-gateway-destination-endpoint-subset", "x-llm-d-inference-fairness-id"],
];

function controlNames(stack: Stack): readonly string[] {
  const { trust, headers } = stack.config;
  const names = new Set([...earlyStrip(trust, headers), ...removeUpstream(trust, headers)]);
  names.delete("accept-encoding");
  return [...names];
}

/** Every control header, each naming the first worker in the words of its kind. */
function spoofed(stack: Stack): HeaderLines {
  const url = stack.workers[0]?.url ?? "";
  const value = (name: string): string => {
    if (name.endsWith("cluster")) return "worker_1";
    if (name.endsWith("url") || name.endsWith("target-worker")) return url;
    if (name.endsWith("urls")) return stack.workers[1]?.url ?? "";
    if (name.includes("destination-endpoint")) return url.replace("http://", "");
    return name.endsWith("peer") ? "127.0.0.1" : "1";
  };
  const all = controlNames(stack).map((name): [string, string] => [name, value(name)]);
  return [["x-weir-cluster", "worker_1"], ...all, ["X-WEIR-CLUSTER", "worker_1"]];
}

function expectNoControlHeader(stack: Stack): void {
  const names = new Set(controlNames(stack));
  for (const seen of seenByWorkers(stack)) {
    const leaked = Object.keys(seen.headers).filter((name) => names.has(name));
    expect(leaked).to.deep.equal([]);
  }
}

describe("a client that sends control headers, with Weir up", () => {
  let stack: Stack;
  before(async () => {
    // worker_1 is never usable, so whoever reaches it was not sent there by Weir.
    stack = await startStack({
      config: { health: { interval_secs: 1, timeout_secs: 0.5, failure_threshold: 1 } },
    });
    stack.workers[0]?.setFaults({ health_status: 500 });
    await stack.until("worker_1 is out", () => ![...stack.app.workers.all()][0]?.healthy);
  });
  after(() => stack.stop());
  beforeEach(async () => {
    await stack.idle();
    stack.clear();
    await forgetSeen(stack);
  });

  function expectNeverAtFirst(): void {
    expect(stack.workers[0]?.state().last_requests).to.deep.equal([]);
  }

  it("knows every control header by name", () => {
    expect(controlNames(stack)).to.include.members(KNOWN);
    expect(controlNames(stack)).to.include("x-weir-peer");
  });

  it("is served as anybody else, by the worker Weir chose", async () => {
    const { answer, record } = await settledChat(stack, spoofed(stack));
    expect(answer.status).to.equal(200);
    expect(record).to.deep.include({
      tenant: "ip:127.0.0.1",
      tenantSource: "address",
      refusedValues: [],
      estimateTokens: 256,
      accountingModel: undefined,
      partition: "global",
      unknownPartitionHeader: false,
    });
    expect(record.worker?.url).to.equal(stack.workers[1]?.url);
    expect(record.charge).to.deep.equal({ kind: "observed", tokens: 5, clockTokens: 5 });
    expectNeverAtFirst();
  });

  it("gets none of them to the worker, nor the header Weir routes by", async () => {
    await settledChat(stack, [...spoofed(stack), ["x-request-tag", "kept"]]);
    const [seen] = seenByWorkers(stack);
    expect(seen?.headers).to.have.property("x-request-tag", "kept");
    expectNoControlHeader(stack);
  });

  it("gets none of them to the worker on a pass-through path either", async () => {
    const answer = await request({
      port: stack.port,
      path: "/v1/models",
      headers: spoofed(stack),
    });
    expect(answer.status).to.equal(200);
    expect(seenByWorkers(stack)).to.have.length(1);
    expectNoControlHeader(stack);
    expectNeverAtFirst();
  });

  it("does not reach a path that is not served", async () => {
    const answer = await request({
      port: stack.port,
      method: "POST",
      path: "/flush_cache",
      headers: spoofed(stack),
    });
    expectError(answer, { status: 404, code: "unknown_path" });
    expect(seenByWorkers(stack)).to.deep.equal([]);
  });

  it("gains nothing over HTTP/2, in headers or trailers", async () => {
    const session = connect(`http://127.0.0.1:${String(stack.port)}`);
    try {
      const status = await chatOverHttp2(session, spoofed(stack));
      expect(status).to.equal(200);
      const [record] = await stack.settlements(1);
      expect(record).to.deep.include({ tenant: "ip:127.0.0.1", outcome: "success" });
      expectNoControlHeader(stack);
      expectNeverAtFirst();
    } finally {
      session.close();
    }
  });

  it("cannot make Envoy try a worker again, which would run one generation several times", async () => {
    const { answer, record } = await settledChat(stack, [
      ["x-mock", "status=503"],
      ["x-envoy-retry-on", "5xx,retriable-status-codes"],
      ["x-envoy-retriable-status-codes", "503"],
      ["x-envoy-max-retries", "3"],
    ]);
    expect(answer.status).to.equal(503);
    expect(record.outcome).to.equal("http_5xx");
    expect(seenByWorkers(stack)).to.have.length(1);
  });

  it("cannot set Envoy's timeouts", async () => {
    const { answer } = await settledChat(stack, [
      ["x-mock", "delay_ms=100"],
      ["x-envoy-upstream-rq-timeout-ms", "1"],
      ["x-envoy-upstream-rq-per-try-timeout-ms", "1"],
    ]);
    expect(answer.status).to.equal(200);
  });

  it("gets Weir's 503 and no worker when Weir itself fails on the request", async () => {
    const { desk } = stack.app;
    const body = desk.body.bind(desk);
    desk.body = () => {
      throw new Error("planted");
    };
    try {
      const answer = await sendChat(stack, spoofed(stack));
      expectError(answer, { status: 503, code: "internal_error", retryAfter: "1" });
    } finally {
      desk.body = body;
    }
    const [record] = await stack.settlements(1);
    expect(record?.rejection).to.equal("internal_error");
    expect(seenByWorkers(stack)).to.deep.equal([]);
    expect(stack.held()).to.deep.equal(NOTHING_HELD);
    expect((await sendChat(stack)).status).to.equal(200);
  });
});

/** A chat request whose control headers come as headers and again as trailers. */
function chatOverHttp2(session: ClientHttp2Session, headers: HeaderLines): Promise<number> {
  const fields: Record<string, string | string[]> = {};
  for (const [name, value] of headers) {
    const key = name.toLowerCase();
    fields[key] = key in fields ? [...[fields[key] ?? []].flat(), value] : value;
  }
  return new Promise((done, failed) => {
    const stream = session.request(
      {
        ":method": "POST",
        ":path": "/v1/chat/completions",
        "content-type": "application/json",
        ...fields,
      },
      { waitForTrailers: true },
    );
    let status = 0;
    stream.on("wantTrailers", () => {
      stream.sendTrailers(fields);
    });
    stream.on("response", (answer) => {
      status = answer[":status"] ?? 0;
    });
    stream.on("error", failed);
    stream.on("end", () => {
      done(status);
    });
    stream.resume();
    stream.end(chatBody());
  });
}

describe("a client that sends control headers, with Weir down", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({ withoutWeir: true });
  });
  after(() => stack.stop());
  beforeEach(() => forgetSeen(stack));

  it("gets 503 and Retry-After on every path, and no worker sees it", async () => {
    for (const path of ["/v1/chat/completions", "/v1/models", "/flush_cache", "/"]) {
      for (const method of ["POST", "GET"]) {
        const body = method === "POST" ? { body: chatBody() } : {};
        const headers = spoofed(stack);
        expectError(await request({ port: stack.port, method, path, headers, ...body }), DOWN);
      }
    }
    expect(seenByWorkers(stack)).to.deep.equal([]);
  });

  it("gets Envoy's own 200 from /healthz, which says nothing of Weir or of workers", async () => {
    const answer = await request({
      port: stack.port,
      path: "/healthz",
      headers: spoofed(stack),
    });
    expect([answer.status, answer.body.length]).to.deep.equal([200, 0]);
    expect(seenByWorkers(stack)).to.deep.equal([]);
  });
});

describe("a client that sends control headers, when Weir stops", () => {
  it("is refused from then on", async () => {
    const stack = await startStack();
    try {
      expect((await sendChat(stack, spoofed(stack))).status).to.equal(200);
      await stack.idle();
      await stack.app.stop();
      await forgetSeen(stack);
      for (let round = 0; round < 3; round += 1) {
        expectError(await sendChat(stack, spoofed(stack)), DOWN);
      }
      expect(seenByWorkers(stack)).to.deep.equal([]);
    } finally {
      await stack.stop();
    }
  });
});

describe("a client that sends control headers, with an ext_proc server that", () => {
  let stack: Stack;
  let processor: FaultyProcessor;
  before(async () => {
    stack = await startStack({
      withoutWeir: true,
      config: { envoy: { message_timeout: "300ms" } },
    });
    processor = await startFaultyProcessor(extProcPort(stack));
  });
  after(async () => {
    processor.close();
    await stack.stop();
  });
  beforeEach(() => forgetSeen(stack));

  for (const fault of FAULTS) {
    it(`${fault}: gets 503 and reaches no worker`, async () => {
      processor.fault = fault;
      const opened = processor.streams;
      const answer = await sendChat(stack, spoofed(stack));
      expectError(answer, DOWN);
      expect(processor.streams).to.be.greaterThan(opened);
      expect(seenByWorkers(stack)).to.deep.equal([]);
    });
  }
});

describe("the early strip", () => {
  /** A bootstrap whose early mutation keeps only what is no removal. */
  function withoutStrip(yaml: string): string {
    const bootstrap = parse(yaml) as {
      static_resources: {
        listeners: {
          filter_chains: {
            filters: {
              typed_config: {
                early_header_mutation_extensions: {
                  typed_config: { mutations: { remove?: string }[] };
                }[];
              };
            }[];
          }[];
        }[];
      };
    };
    const manager = bootstrap.static_resources.listeners[0]?.filter_chains[0]?.filters[0];
    const extension = manager?.typed_config.early_header_mutation_extensions[0];
    if (extension === undefined) throw new Error("the bootstrap has no early mutation");
    const { mutations } = extension.typed_config;
    extension.typed_config.mutations = mutations.filter(({ remove }) => remove === undefined);
    return stringify(bootstrap);
  }

  it("is what keeps the client out: without it the same request reaches the named worker", async () => {
    const stack = await startStack({ withoutWeir: true, bootstrap: withoutStrip });
    try {
      const answer = await sendChat(stack, [["x-weir-cluster", "worker_1"]]);
      expect(answer.status).to.equal(200);
      expect(stack.workers[0]?.state().last_requests).to.have.length(1);
    } finally {
      await stack.stop();
    }
  });

  it("has no part when Weir answers: its own route header replaces the client's", async () => {
    const stack = await startStack({ bootstrap: withoutStrip });
    try {
      for (let round = 0; round < 4; round += 1) {
        const { answer, record } = await settledChat(stack, spoofed(stack));
        expect(answer.status).to.equal(200);
        expect(answer.headers["x-mock-worker"]).to.equal(
          String(stack.workers.find(({ url }) => url === record.worker?.url)?.port),
        );
        expect(record.tenant).to.equal("ip:127.0.0.1");
      }
      expectNoControlHeader(stack);
    } finally {
      await stack.stop();
    }
  });
});

function extProcPort(stack: Stack): number {
  const address = stack.config.listen.ext_proc;
  if (address.kind !== "tcp") throw new Error("ext_proc is not on TCP");
  return address.port;
}
