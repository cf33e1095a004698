import { expect } from "chai";
import { parseVllmMetrics } from "../../../extproc/edge/engines/vllm.js";
import { fixture, rankOf, reasonOf, resultOf, sampleOf } from "./support.js";

const V1 = fixture("vllm-v1-both-names.txt");
const drop = (text: string, name: string): string =>
  text
    .split("\n")
    .filter((line) => !line.startsWith(name))
    .join("\n");

describe("vLLM metrics", () => {
  it("reads V0 with its own name of the KV gauge and without an engine label", () => {
    const sample = sampleOf(parseVllmMetrics(fixture("vllm-v0.txt")));
    expect(sample.source).to.equal("vllm_metrics");
    // 16 tokens x 27,000 blocks.
    expect(sample.ranks).to.deep.equal([
      rankOf({ running: 12, waiting: 3, tokenUsage: 0.4375, maxTokens: 432_000 }),
    ]);
  });

  it("prefers the new name of the KV gauge where both stand side by side", () => {
    expect(sampleOf(parseVllmMetrics(V1)).ranks).to.deep.equal([
      rankOf({ running: 40, waiting: 5, tokenUsage: 0.625 }),
    ]);
  });

  it("takes each engine for a rank, in the order of their numbers", () => {
    const parsed = parseVllmMetrics(fixture("vllm-v1.txt"));
    expect(sampleOf(parsed).ranks).to.deep.equal([
      rankOf({ rank: 0, running: 10, waiting: 0, tokenUsage: 0.25, maxTokens: 256_000 }),
      rankOf({ rank: 1, running: 30, waiting: 7, tokenUsage: 0.875, maxTokens: 262_400 }),
      rankOf({ rank: 2, running: 2, waiting: 0, tokenUsage: 0, maxTokens: 268_800 }),
    ]);
    const counters = parsed.kind === "reading" ? [...parsed.counters.values()] : [];
    expect(counters).to.deep.equal([1000, 2000, 300]);
  });

  it("counts requests that wait for capacity, not deferred ones, where the reason is told", () => {
    expect(sampleOf(parseVllmMetrics(fixture("vllm-0.29.txt"))).ranks).to.deep.equal([
      rankOf({ running: 37, waiting: 9, tokenUsage: 0.9375, maxTokens: 16_000 }),
    ]);
  });

  it("counts all that wait but the deferred ones where no reason is capacity", () => {
    const other = fixture("vllm-0.29.txt").replace('reason="capacity"', 'reason="other"');
    expect(sampleOf(parseVllmMetrics(other)).ranks[0]?.waiting).to.equal(12 - 3);
    const deferred = fixture("vllm-0.29.txt")
      .replace(/.*reason="capacity".*\n/, "")
      .replace(/(reason="deferred"\S*) 3/, "$1 12");
    expect(sampleOf(parseVllmMetrics(deferred)).ranks[0]?.waiting).to.equal(0);
  });

  it("sums several models of one engine and averages their KV usage", () => {
    const text =
      `vllm:num_requests_running{engine="3",model_name="a"} 1\n` +
      `vllm:num_requests_running{engine="3",model_name="b"} 2\n` +
      `vllm:num_requests_waiting{engine="3",model_name="a"} 4\n` +
      `vllm:num_requests_waiting{engine="3",model_name="b"} 0\n` +
      `vllm:kv_cache_usage_perc{engine="3",model_name="a"} 0.5\n` +
      `vllm:kv_cache_usage_perc{engine="3",model_name="b"} 0.25\n`;
    expect(sampleOf(parseVllmMetrics(text)).ranks).to.deep.equal([
      rankOf({ running: 3, waiting: 4, tokenUsage: 0.375 }),
    ]);
  });

  for (const [symptom, text, reason] of [
    ["the KV gauge is missing", drop(drop(V1, "vllm:kv_"), "vllm:gpu_"), "missing_metric"],
    ["running is missing", drop(V1, "vllm:num_requests_running"), "missing_metric"],
    ["waiting is missing", drop(V1, "vllm:num_requests_waiting"), "missing_metric"],
    ["all names were renamed", V1.replaceAll("vllm:", "vllm2:"), "missing_metric"],
    ["the answer is empty", "", "missing_metric"],
    ["KV usage is NaN", V1.replace(" 0.625", " NaN"), "invalid_value"],
    ["KV usage is infinite", V1.replace(" 0.625", " +Inf"), "invalid_value"],
    ["KV usage is a percentage", V1.replace(" 0.625", " 62.5"), "invalid_value"],
    ["running is negative", V1.replace(" 40.0", " -1.0"), "invalid_value"],
    ["running is a fraction", V1.replace(" 40.0", " 40.5"), "invalid_value"],
    ["waiting is NaN", V1.replace(" 5.0", " NaN"), "invalid_value"],
    ["waiting has wrapped around", V1.replace(" 5.0", " 4294967295"), "invalid_value"],
    ["a line is broken", V1.replace(" 40.0", " forty"), "malformed"],
    ["the text is cut", V1.slice(0, 400), "malformed"],
  ] as const) {
    it(`is unknown, never idle, when ${symptom}`, () => {
      expect(reasonOf(parseVllmMetrics(text))).to.equal(reason);
    });
  }

  it("is unknown, and quickly so, with more engines than a worker can have", () => {
    const line = (index: number): string =>
      `vllm:num_requests_running{engine="${String(index)}"} 1\n`;
    const text = V1 + Array.from({ length: 10_000 }, (_, index) => line(index + 1)).join("");
    expect(resultOf(parseVllmMetrics(text))).to.deep.include({
      reason: "invalid_value",
      detail: "it reports 1025 ranks; allowed: 1024",
    });
  });

  it("is unknown when one of its engines lacks a gauge", () => {
    const text = drop(fixture("vllm-v1.txt"), 'vllm:kv_cache_usage_perc{engine="1"');
    expect(resultOf(parseVllmMetrics(text))).to.deep.equal({
      kind: "unknown",
      reason: "missing_metric",
      detail: "rank 1: tokenUsage is missing",
    });
  });
});
