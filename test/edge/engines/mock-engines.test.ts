// The pollers against the mock workers in both dresses: what they say of a batch that runs is what is
// read, by every protocol they speak.
import { expect } from "chai";
import type { EngineKind } from "../../../extproc/core/model/config.js";
import { monotonicMs } from "../../../extproc/core/model/time.js";
import { workerLoad, type WorkerSample } from "../../../extproc/core/workers/telemetry.js";
import { EngineClient, type PollResult } from "../../../extproc/edge/engines/engine-client.js";
import { deadlineAfter } from "../../../extproc/edge/engines/http-get.js";
import type { MockWorker } from "../../../envoy/mock-worker/server.js";
import { chatBody, post, until, withWorker } from "../../mock-worker/with-worker.js";

const PACED = { clock: "manual", msPerToken: 10, slots: 2, kvBlocks: 100, blockChars: 16 } as const;
const stop = new AbortController();

async function poll(client: EngineClient, atMs = 0): Promise<PollResult> {
  const deadline = deadlineAfter(5_000, stop.signal);
  const now = (): ReturnType<typeof monotonicMs> => monotonicMs(atMs);
  try {
    return await client.poll({ signal: deadline.signal, apiKey: undefined, now });
  } finally {
    deadline.end();
  }
}

async function sampleFrom(client: EngineClient, atMs = 0): Promise<WorkerSample> {
  const result = await poll(client, atMs);
  if (result.kind !== "sample") throw new Error(`${result.reason}: ${result.detail}`);
  return result.sample;
}

/** Two requests run and one waits, each of 10 prompt tokens, 80 ms into their answers. */
async function duringThree(worker: MockWorker, check: () => Promise<void>): Promise<void> {
  const calls = ["a", "b", "c"].map((letter) =>
    post(worker, { path: "/v1/chat/completions", body: chatBody(letter.repeat(34)) }),
  );
  await until(() => worker.state().running === 2 && worker.state().waiting === 1);
  await until(() => worker.state().tokens.prompt === 20);
  worker.advance(80);
  await check();
  worker.advance(80);
  await until(() => worker.state().running === 1 && worker.state().tokens.prompt === 30);
  worker.advance(160);
  await Promise.all(calls);
}

describe("telemetry of the mock workers", () => {
  const dresses: readonly (readonly [EngineKind, string, object, object])[] = [
    ["vllm", "vllm_metrics", {}, { throughput: undefined, maxRunning: 64 }],
    ["sglang", "sglang_loads", {}, { throughput: 16, maxRunning: 2, waitingUncachedTokens: 10 }],
    ["sglang", "sglang_loads", { loads_form: "old" }, { throughput: 16, maxRunning: 2 }],
    ["sglang", "sglang_get_load", { loads_status: 404 }, { throughput: 16, maxRunning: 2 }],
    [
      "sglang",
      "sglang_metrics",
      { loads_status: 404, get_load_status: 404 },
      { throughput: 16, maxRunning: 2 },
    ],
  ];
  for (const [engine, source, faults, more] of dresses) {
    it(`reads ${source} of a worker that plays ${engine} ${JSON.stringify(faults)}`, async () => {
      const dress = engine === "vllm" ? "vllm" : "sglang";
      await withWorker({ ...PACED, engine: dress }, async (worker) => {
        worker.setFaults(faults);
        const client = new EngineClient(worker.url, undefined);
        await duringThree(worker, async () => {
          const sample = await sampleFrom(client);
          expect(sample.source).to.equal(source);
          expect(sample.invalidFields).to.deep.equal([]);
          // 14 of 100 blocks of 4 tokens are held.
          expect(sample.ranks[0]?.maxTokens).to.equal(400);
          expect(workerLoad(sample, 64)).to.deep.include({
            running: 2,
            waiting: 1,
            tokenUsage: 0.14,
            ...more,
          });
        });
        expect(client.engine).to.equal(engine);
      });
    });
  }

  it("makes a rate from the counter of the worker that plays vLLM", async () => {
    await withWorker({ ...PACED, engine: "vllm" }, async (worker) => {
      const client = new EngineClient(worker.url, "vllm");
      await sampleFrom(client, 0);
      await duringThree(worker, async () => {
        // Two requests gave 8 tokens each.
        expect((await sampleFrom(client, 2_000)).countedTokensPerSecond).to.equal(8);
      });
    });
  });

  it("sees one and the same sample while the worker's numbers are frozen", async () => {
    await withWorker({ ...PACED, engine: "sglang" }, async (worker) => {
      const client = new EngineClient(worker.url, "sglang");
      worker.setFaults({ stale_metrics: true });
      const { token } = await sampleFrom(client);
      worker.advance(1_000);
      expect((await sampleFrom(client)).token).to.deep.equal(token);
      worker.setFaults({});
      expect((await sampleFrom(client)).token).to.not.deep.equal(token);
    });
  });
});
