// What the worker says about itself while it runs a known batch on a manual clock: two slots, three
// requests of 16 output tokens with a prompt of 40 characters each.
import { expect } from "chai";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import { chatBody, post, until, withWorker, type Data } from "./with-worker.js";

const PACED = { clock: "manual", msPerToken: 10, slots: 2, kvBlocks: 100, blockChars: 16 } as const;

async function get(worker: MockWorker, path: string): Promise<Response> {
  return fetch(worker.url + path);
}

/** Value of the sample whose name and labels are exactly `series`. */
function sample(text: string, series: string): number | undefined {
  const line = text.split("\n").find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

/** Starts three requests, hands over while two run and one waits, then lets them end. */
async function duringThree(worker: MockWorker, check: () => Promise<void>): Promise<void> {
  // "user\n" + 34 + "\n" = 40 characters: 10 tokens, 3 blocks.
  const calls = ["a", "b", "c"].map((letter) =>
    post(worker, { path: "/v1/chat/completions", body: chatBody(letter.repeat(34)) }),
  );
  await until(() => worker.state().running === 2 && worker.state().waiting === 1);
  // Prefill of 0 ms ends in a later turn.
  await until(() => worker.state().tokens.prompt === 20);
  worker.advance(80);
  await check();
  worker.advance(80);
  await until(() => worker.state().running === 1 && worker.state().tokens.prompt === 30);
  worker.advance(160);
  await Promise.all(calls);
}

describe("mock worker, vLLM telemetry", () => {
  it("shows running, waiting, KV use, tokens and cache settings of the batch", async () => {
    await withWorker(PACED, async (worker) => {
      const own = `{engine="0",model_name="demo"}`;
      await duringThree(worker, async () => {
        const text = await (await get(worker, "/metrics")).text();
        const value = (name: string): number | undefined => sample(text, `vllm:${name}${own}`);
        expect(value("num_requests_running")).to.equal(2);
        expect(value("num_requests_waiting")).to.equal(1);
        const byReason = (reason: string): number | undefined =>
          sample(
            text,
            `vllm:num_requests_waiting_by_reason{engine="0",model_name="demo",reason="${reason}"}`,
          );
        expect(byReason("capacity")).to.equal(1);
        expect(byReason("deferred")).to.equal(0);
        // Each holds 3 prompt blocks and 16 x 4 / 16 = 4 output blocks: 14 of 100.
        expect(value("kv_cache_usage_perc")).to.equal(0.14);
        expect(value("prompt_tokens_total")).to.equal(20);
        expect(value("generation_tokens_total")).to.equal(16);
        expect(value("prefix_cache_queries_total")).to.equal(20);
        expect(value("prefix_cache_hits_total")).to.equal(0);
        expect(value("num_preemptions_total")).to.equal(0);
        const config = `vllm:cache_config_info{block_size="4",engine="0",num_gpu_blocks="100"}`;
        expect(sample(text, config)).to.equal(1);
      });
      const text = await (await get(worker, "/metrics")).text();
      expect(sample(text, `vllm:num_requests_running${own}`)).to.equal(0);
      expect(sample(text, `vllm:generation_tokens_total${own}`)).to.equal(48);
      const stopped = `vllm:request_success_total{engine="0",model_name="demo",finished_reason="stop"}`;
      expect(sample(text, stopped)).to.equal(3);
    });
  });

  it("counts prefix hits in tokens", async () => {
    await withWorker({ blockChars: 16 }, async (worker) => {
      const body = chatBody("a".repeat(34));
      for (let i = 0; i < 2; i += 1) await post(worker, { path: "/v1/chat/completions", body });
      const text = await (await get(worker, "/metrics")).text();
      // 40 characters: 2 full blocks of 4 tokens were found by the second request.
      const own = `{engine="0",model_name="demo"}`;
      expect(sample(text, `vllm:prefix_cache_queries_total${own}`)).to.equal(20);
      expect(sample(text, `vllm:prefix_cache_hits_total${own}`)).to.equal(8);
      expect(worker.state().cache).to.include({ hits: 2, queries: 4, blocks: 2 });
    });
  });

  it("has no SGLang load paths", async () => {
    await withWorker({ engine: "vllm" }, async (worker) => {
      expect((await get(worker, "/v1/loads")).status).to.equal(404);
      expect((await get(worker, "/get_load")).status).to.equal(404);
    });
  });
});

describe("mock worker, SGLang telemetry", () => {
  const options = { ...PACED, engine: "sglang" } as const;

  it("reports the rank in /v1/loads with every current field and no aggregate", async () => {
    await withWorker(options, async (worker) => {
      await duringThree(worker, async () => {
        const answer = await get(worker, "/v1/loads");
        const body = (await answer.json()) as Data;
        expect(body).to.have.keys([
          "timestamp",
          "version",
          "accelerator",
          "num_accelerators",
          "loads",
        ]);
        expect(body["timestamp"]).to.equal("2026-01-01T00:00:00.080Z");
        // 7 blocks of 4 tokens each are held twice; the waiting prompt has 10 tokens.
        expect(body["loads"]).to.deep.equal([
          {
            dp_rank: 0,
            timestamp: Date.UTC(2026, 0, 1) / 1000 + 0.08,
            num_running_reqs: 2,
            num_waiting_reqs: 1,
            num_waiting_uncached_tokens: 10,
            num_used_tokens: 56,
            num_total_tokens: 66,
            max_total_num_tokens: 400,
            token_usage: 0.14,
            gen_throughput: 16,
            cache_hit_rate: 0,
            utilization: 1,
            max_running_requests: 2,
          },
        ]);
      });
    });
  });

  it("gives the old form of /v1/loads, sections, ranks and text on request", async () => {
    await withWorker(options, async (worker) => {
      worker.setFaults({ loads_form: "old" });
      const old = (await (await get(worker, "/v1/loads")).json()) as Data;
      expect(old["dp_rank_count"]).to.equal(1);
      expect(old["aggregate"]).to.include({ total_reqs: 0 });
      expect((old["loads"] as Data[])[0]).to.include({ num_total_reqs: 0 });
      worker.setFaults({});
      const sections = (await (
        await get(worker, "/v1/loads?include=core,disagg,queues,memory")
      ).json()) as Data;
      expect((sections["loads"] as Data[])[0]).to.include.keys(
        "disaggregation",
        "queues",
        "memory",
      );
      const none = (await (await get(worker, "/v1/loads?dp_rank=1")).json()) as Data;
      expect(none["loads"]).to.deep.equal([]);
      expect((await get(worker, "/v1/loads?include=nonsense")).status).to.equal(400);
      const text = await (await get(worker, "/v1/loads?format=prometheus")).text();
      expect(sample(text, `sglang_max_running_requests{dp_rank="0"}`)).to.equal(2);
    });
  });

  it("counts running and waiting together in /get_load", async () => {
    await withWorker(options, async (worker) => {
      await duringThree(worker, async () => {
        expect(await (await get(worker, "/get_load")).json()).to.deep.equal([
          {
            dp_rank: 0,
            num_reqs: 3,
            num_waiting_reqs: 1,
            num_tokens: 66,
            num_pending_tokens: 10,
            ts_tic: 0.08,
          },
        ]);
      });
    });
  });

  it("names its gauges with the sglang prefix", async () => {
    await withWorker(options, async (worker) => {
      await duringThree(worker, async () => {
        const text = await (await get(worker, "/metrics")).text();
        const own =
          `{model_name="demo",engine_type="unified",` + `tp_rank="0",pp_rank="0",moe_ep_rank="0"}`;
        expect(sample(text, `sglang:num_running_reqs${own}`)).to.equal(2);
        expect(sample(text, `sglang:num_queue_reqs${own}`)).to.equal(1);
        expect(sample(text, `sglang:token_usage${own}`)).to.equal(0.14);
        expect(sample(text, `sglang:gen_throughput${own}`)).to.equal(16);
        expect(sample(text, `sglang:max_total_num_tokens${own}`)).to.equal(400);
      });
    });
  });
});

describe("mock worker, telemetry faults", () => {
  it("keeps saying the same while metrics are stale, and the truth afterwards", async () => {
    await withWorker({ engine: "sglang", clock: "manual" }, async (worker) => {
      worker.setFaults({ stale_metrics: true });
      const before = await (await get(worker, "/v1/loads")).text();
      const metrics = await (await get(worker, "/metrics")).text();
      await post(worker, { path: "/v1/chat/completions", body: chatBody("hi") });
      worker.advance(5000);
      expect(await (await get(worker, "/v1/loads")).text()).to.equal(before);
      expect(await (await get(worker, "/metrics")).text()).to.equal(metrics);
      worker.setFaults({});
      expect(await (await get(worker, "/v1/loads")).text()).not.to.equal(before);
      expect(await (await get(worker, "/metrics")).text()).not.to.equal(metrics);
    });
  });

  it("answers each telemetry path with the status or text it was told", async () => {
    await withWorker({ engine: "sglang" }, async (worker) => {
      worker.setFaults({
        health_status: 500,
        metrics_status: 401,
        loads_status: 404,
        get_load_status: 503,
      });
      const status = async (path: string): Promise<number> => (await get(worker, path)).status;
      expect(await status("/health")).to.equal(500);
      expect(await status("/metrics")).to.equal(401);
      expect(await status("/v1/loads")).to.equal(404);
      expect(await status("/get_load")).to.equal(503);
      worker.setFaults({ metrics_body: "<html>" });
      expect(await (await get(worker, "/metrics")).text()).to.equal("<html>");
      expect(await status("/health")).to.equal(200);
    });
  });

  it("answers telemetry only to whoever brings the key, and everything else to everybody", async () => {
    for (const [engine, paths] of [
      ["vllm", ["/metrics"]],
      ["sglang", ["/metrics", "/v1/loads", "/get_load"]],
    ] as const) {
      await withWorker({ engine }, async (worker) => {
        worker.setFaults({ telemetry_key: "open sesame" });
        const status = async (path: string, authorization?: string): Promise<number> => {
          const headers = authorization === undefined ? {} : { authorization };
          return (await fetch(worker.url + path, { headers })).status;
        };
        for (const path of paths) {
          expect(await status(path), path).to.equal(401);
          expect(await status(path, "Bearer open"), path).to.equal(401);
          expect(await status(path, "Bearer open sesame"), path).to.equal(200);
        }
        expect(await status("/health")).to.equal(200);
        const chat = { path: "/v1/chat/completions", body: chatBody("hi") };
        expect((await post(worker, chat)).status).to.equal(200);
      });
    }
  });

  it("never answers telemetry while it hangs, and everything else as ever", async () => {
    await withWorker({ engine: "sglang" }, async (worker) => {
      worker.setFaults({ telemetry_hang: true });
      const waiting = ["/metrics", "/v1/loads", "/get_load"].map((path) =>
        get(worker, path).then(
          () => "answered",
          () => "cut",
        ),
      );
      expect((await get(worker, "/health")).status).to.equal(200);
      const chat = { path: "/v1/chat/completions", body: chatBody("hi") };
      expect((await post(worker, chat)).status).to.equal(200);
      await worker.close(0);
      expect(await Promise.all(waiting)).to.deep.equal(["cut", "cut", "cut"]);
    });
  });
});
