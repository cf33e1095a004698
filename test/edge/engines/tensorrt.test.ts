import { expect } from "chai";
import { parseTritonMetrics } from "../../../extproc/edge/engines/triton.js";
import { parseTrtllmMetrics } from "../../../extproc/edge/engines/trtllm.js";
import { fixture, rankOf, reasonOf, sampleOf } from "./support.js";

describe("TensorRT-LLM metrics", () => {
  const text = fixture("trtllm.txt");

  it("reads running, waiting, KV use, the size of the cache and the counter", () => {
    const parsed = parseTrtllmMetrics(text);
    // 5,000 blocks x 32 tokens.
    expect(sampleOf(parsed).ranks).to.deep.equal([
      rankOf({ running: 24, waiting: 2, tokenUsage: 0.62, maxTokens: 160_000 }),
    ]);
    expect(parsed.kind === "reading" && [...parsed.counters.values()]).to.deep.equal([9000]);
  });

  for (const name of [
    "trtllm_num_requests_running",
    "trtllm_num_requests_waiting",
    "trtllm_kv_cache_utilization",
  ]) {
    it(`is unknown without ${name}`, () => {
      expect(reasonOf(parseTrtllmMetrics(text.replaceAll(name, `${name}_2`)))).to.equal(
        "missing_metric",
      );
    });
  }

  it("is malformed where /metrics is JSON about iterations", () => {
    expect(reasonOf(parseTrtllmMetrics(`[{"numActiveRequests":1}]\n`))).to.equal("malformed");
  });
});

describe("Triton metrics", () => {
  const text = fixture("triton-trtllm.txt");

  it("tells the gauges apart by their label", () => {
    // 6,000 blocks x 64 tokens.
    expect(sampleOf(parseTritonMetrics(text)).ranks).to.deep.equal([
      rankOf({ running: 4, waiting: 3, tokenUsage: 0.6, maxTokens: 384_000, maxRunning: 512 }),
    ]);
  });

  for (const label of ["scheduled", "waiting", "fraction"]) {
    it(`is unknown without ${label}`, () => {
      expect(reasonOf(parseTritonMetrics(text.replace(`"${label}"`, `"${label}_2"`)))).to.equal(
        "missing_metric",
      );
    });
  }
});
