import { expect } from "chai";
import type { EngineKind } from "../../../extproc/core/model/config.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import type { WorkerSample } from "../../../extproc/core/workers/telemetry.js";
import {
  ANSWER_BYTES_MAX,
  EngineClient,
  type PollResult,
} from "../../../extproc/edge/engines/engine-client.js";
import { deadlineAfter } from "../../../extproc/edge/engines/http-get.js";
import { fixture, startEngine, type LoopbackEngine, type Route } from "./support.js";

const VLLM = fixture("vllm-0.29.txt");
const LOADS = fixture("sglang-loads-current.json");
const GET_LOAD = fixture("sglang-get-load.json");
const SGLANG = fixture("sglang-metrics-all-schedulers.txt");
const TRTLLM = fixture("trtllm.txt");
const TRITON = fixture("triton-trtllm.txt");

describe("EngineClient", () => {
  let engine: LoopbackEngine;
  let clock = 0;
  const stop = new AbortController();

  before(async () => {
    engine = await startEngine({});
  });
  after(() => engine.close());
  beforeEach(() => {
    engine.routes.clear();
    engine.requests.length = 0;
    clock = 0;
  });

  const serve = (routes: Readonly<Record<string, Route>>): void => {
    for (const [path, route] of Object.entries(routes)) engine.routes.set(path, route);
  };
  const clientFor = (kind?: EngineKind): EngineClient => new EngineClient(engine.url, kind);
  async function poll(
    client: EngineClient,
    apiKey?: string,
    timeoutMs = 5_000,
  ): Promise<PollResult> {
    const deadline = deadlineAfter(timeoutMs, stop.signal);
    const now = (): ReturnType<typeof monotonicMs> => monotonicMs(clock);
    try {
      return await client.poll({ signal: deadline.signal, apiKey, now });
    } finally {
      deadline.end();
    }
  }
  async function sampleFrom(client: EngineClient): Promise<WorkerSample> {
    const result = await poll(client);
    if (result.kind !== "sample") throw new Error(`${result.reason}: ${result.detail}`);
    return result.sample;
  }
  async function failureOf(client: EngineClient, timeoutMs?: number): Promise<string> {
    const result = await poll(client, undefined, timeoutMs);
    return result.kind === "sample" ? "a sample" : `${result.reason}: ${result.detail}`;
  }
  const paths = (): string[] => engine.requests.map(({ url }) => (url ?? "").split("?")[0] ?? "");

  describe("finding out the kind", () => {
    for (const [title, routes, kind, source] of [
      ["vLLM by /metrics", { "/metrics": VLLM }, "vllm", "vllm_metrics"],
      ["SGLang by /v1/loads, without metrics", { "/v1/loads": LOADS }, "sglang", "sglang_loads"],
      [
        "SGLang by /metrics where it has /get_load",
        { "/metrics": SGLANG, "/get_load": GET_LOAD },
        "sglang",
        "sglang_get_load",
      ],
      ["SGLang by /metrics alone", { "/metrics": SGLANG }, "sglang", "sglang_metrics"],
      ["TensorRT-LLM by /metrics", { "/metrics": TRTLLM }, "trtllm", "trtllm_metrics"],
      [
        "TensorRT-LLM by /prometheus/metrics, its /metrics being JSON",
        { "/metrics": "[]", "/prometheus/metrics": TRTLLM },
        "trtllm",
        "trtllm_metrics",
      ],
      ["Triton by /metrics", { "/metrics": TRITON }, "triton", "triton_metrics"],
      [
        "vLLM where a front end answers every other path with a page",
        { "/metrics": VLLM, "/v1/loads": "<html>" },
        "vllm",
        "vllm_metrics",
      ],
    ] as const) {
      it(`tells ${title}`, async () => {
        serve(routes);
        const client = clientFor();
        expect((await sampleFrom(client)).source).to.equal(source);
        expect(client.engine).to.equal(kind);
        // What was found out is used: the next poll asks for no more than it needs.
        engine.requests.length = 0;
        expect((await sampleFrom(client)).source).to.equal(source);
        expect(paths()).to.have.length.within(1, 2);
      });
    }

    it("does not know an engine without any of the names", async () => {
      serve({ "/metrics": "up 1\n" });
      const client = clientFor();
      expect(await failureOf(client)).to.equal(
        "missing_metric: a metric of any known engine is missing",
      );
      expect(client.engine).to.equal(undefined);
    });

    it("names the metric that a known engine lacks", async () => {
      serve({ "/metrics": VLLM.replaceAll("kv_cache_usage_perc", "kv_usage") });
      expect(await failureOf(clientFor())).to.equal(
        "missing_metric: vllm:kv_cache_usage_perc is missing",
      );
    });

    it("looks afresh after a failure, when another engine took the address", async () => {
      serve({ "/metrics": VLLM });
      const client = clientFor();
      await sampleFrom(client);
      serve({ "/metrics": TRITON });
      expect(await failureOf(client)).to.match(/^missing_metric/);
      expect((await sampleFrom(client)).source).to.equal("triton_metrics");
    });

    it("stops at the first answer that says it all: 401, and nobody there", async () => {
      serve({ "/v1/loads": 401, "/metrics": VLLM });
      expect(await failureOf(clientFor())).to.equal("status_401: /v1/loads: status 401");
      expect(paths()).to.deep.equal(["/v1/loads"]);
    });
  });

  describe("SGLang", () => {
    it("falls back from /v1/loads to /get_load with /metrics, to /metrics alone", async () => {
      serve({ "/v1/loads": LOADS, "/get_load": GET_LOAD, "/metrics": SGLANG });
      expect((await sampleFrom(clientFor("sglang"))).source).to.equal("sglang_loads");
      engine.routes.delete("/v1/loads");
      expect((await sampleFrom(clientFor("sglang"))).source).to.equal("sglang_get_load");
      engine.routes.delete("/get_load");
      expect((await sampleFrom(clientFor("sglang"))).source).to.equal("sglang_metrics");
      engine.routes.delete("/metrics");
      expect(await failureOf(clientFor("sglang"))).to.equal("status_404: /v1/loads: status 404");
    });

    it("falls back when /v1/loads changed its schema: a load of -1 is no value", async () => {
      serve({
        "/v1/loads": LOADS.replace('"num_running_reqs": 7', '"num_running_reqs": -1'),
        "/get_load": GET_LOAD,
        "/metrics": SGLANG,
      });
      expect((await sampleFrom(clientFor("sglang"))).source).to.equal("sglang_get_load");
      engine.routes.delete("/get_load");
      engine.routes.delete("/metrics");
      expect(await failureOf(clientFor("sglang"))).to.match(
        /^invalid_value: rank 0: running is -1; allowed/,
      );
    });

    it("says that the KV gauge is missing where only /get_load works", async () => {
      serve({ "/get_load": GET_LOAD, "/metrics": "up 1\n" });
      expect(await failureOf(clientFor("sglang"))).to.equal(
        "missing_metric: sglang:token_usage is missing",
      );
    });

    it("stays with the form that worked, and starts over after a failure", async () => {
      serve({ "/metrics": SGLANG });
      const client = clientFor("sglang");
      await sampleFrom(client);
      engine.requests.length = 0;
      await sampleFrom(client);
      expect(paths()).to.deep.equal(["/metrics"]);
      serve({ "/metrics": 500, "/v1/loads": LOADS });
      expect(await failureOf(client)).to.equal("status_other: /metrics: status 500");
      expect((await sampleFrom(client)).source).to.equal("sglang_loads");
    });

    it("asks /v1/loads for the sections of the first builds", async () => {
      serve({ "/v1/loads": LOADS });
      await sampleFrom(clientFor("sglang"));
      expect(engine.requests[0]?.url).to.equal("/v1/loads?include=core,disagg,queues,memory");
    });
  });

  it("names each sample: the engine's own time, or the number of the scrape", async () => {
    serve({ "/v1/loads": LOADS });
    const native = clientFor("sglang");
    const time = { kind: "timestamp", value: "2026-06-01T10:00:00.123456+00:00" };
    expect((await sampleFrom(native)).token).to.deep.equal(time);
    expect((await sampleFrom(native)).token).to.deep.equal(time);
    serve({ "/v1/loads": LOADS.replace(/"timestamp": "[^"]*"/, '"timestamp": " "') });
    expect((await sampleFrom(native)).token).to.deep.equal({ kind: "none" });
    serve({ "/metrics": VLLM });
    const scraped = clientFor("vllm");
    const first = (await sampleFrom(scraped)).token;
    expect(first.kind).to.equal("scrape");
    expect((await sampleFrom(scraped)).token).to.not.deep.equal(first);
  });

  it("makes tokens per second from the counter of an engine that only counts", async () => {
    serve({ "/metrics": VLLM });
    const client = clientFor("vllm");
    expect((await sampleFrom(client)).countedTokensPerSecond).to.equal(undefined);
    clock = 10_000;
    serve({ "/metrics": VLLM.replace("512000.0", "514500.0") });
    expect((await sampleFrom(client)).countedTokensPerSecond).to.equal(250);
    clock = 20_000;
    serve({ "/metrics": VLLM.replace("512000.0", "10.0") });
    expect((await sampleFrom(client)).countedTokensPerSecond).to.equal(undefined);
  });

  it("sends the key as a bearer token, and asks for the plain text format", async () => {
    serve({ "/metrics": VLLM });
    await poll(clientFor("vllm"), "sk-1");
    expect(engine.requests[0]?.headers.authorization).to.equal("Bearer sk-1");
    expect(engine.requests[0]?.headers.accept).to.match(/^text\/plain;version=0\.0\.4/);
    await poll(clientFor("vllm"));
    expect(engine.requests[1]?.headers.authorization).to.equal(undefined);
  });

  it("asks TensorRT-LLM at its own path first and at the common one on 404 only", async () => {
    serve({ "/metrics": TRTLLM });
    expect((await sampleFrom(clientFor("trtllm"))).source).to.equal("trtllm_metrics");
    serve({ "/prometheus/metrics": 503 });
    expect(await failureOf(clientFor("trtllm"))).to.equal(
      "status_other: /prometheus/metrics: status 503",
    );
  });

  it("has one deadline for all requests of a poll", async () => {
    serve({ "/v1/loads": 404, "/get_load": () => undefined, "/metrics": SGLANG });
    expect(await failureOf(clientFor("sglang"), 50)).to.match(/^timeout: \/get_load/);
  });

  it("reads a text of exactly 10 MiB and not one byte more", async () => {
    const line = `vllm:request_prompt_tokens_bucket{engine="0",le="10.0",model_name="demo"} 1.0\n`;
    const space = ANSWER_BYTES_MAX - VLLM.length;
    const padding = line.repeat(Math.floor(space / line.length));
    const rest = `#${" ".repeat(space - padding.length - 2)}\n`;
    serve({ "/metrics": padding + rest + VLLM });
    expect((await sampleFrom(clientFor("vllm"))).ranks[0]?.running).to.equal(37);
    serve({ "/metrics": `${padding}${rest}\n${VLLM}` });
    expect(await failureOf(clientFor("vllm"))).to.equal(
      "too_large: /metrics: more than 10485760 bytes",
    );
  });
});
