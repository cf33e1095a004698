import { expect } from "chai";
import { parseSglangGetLoad } from "../../../extproc/edge/engines/sglang-get-load.js";
import { parseSglangLoads } from "../../../extproc/edge/engines/sglang-loads.js";
import { parseSglangMetrics } from "../../../extproc/edge/engines/sglang-metrics.js";
import { fixture, jsonFixture, rankOf, reasonOf, sampleOf } from "./support.js";

const METRICS = fixture("sglang-metrics.txt");
const ALL_SCHEDULERS = fixture("sglang-metrics-all-schedulers.txt");
type Loads = Record<string, unknown> & { loads: Record<string, unknown>[] };
const loadsWith = (fields: Record<string, unknown>): Loads => {
  const answer = jsonFixture("sglang-loads-current.json") as Loads;
  return { ...answer, loads: answer.loads.map((load) => ({ ...load, ...fields })) };
};

describe("SGLang /v1/loads", () => {
  it("reads the old form with its rank count and totals", () => {
    const parsed = parseSglangLoads(jsonFixture("sglang-loads-old.json"));
    const sample = sampleOf(parsed);
    expect(sample.source).to.equal("sglang_loads");
    expect(sample.ranks).to.deep.equal([
      {
        rank: 0,
        running: 20,
        waiting: 3,
        waitingUncachedTokens: 900,
        usedTokens: 30_000,
        maxTokens: 100_000,
        tokenUsage: 0.3,
        utilization: 0.625,
        cacheHitRate: 0.5,
        tokensPerSecond: 1000.5,
        maxRunning: 32,
      },
      {
        rank: 1,
        running: 10,
        waiting: 0,
        waitingUncachedTokens: 0,
        usedTokens: 50_000,
        maxTokens: 100_000,
        tokenUsage: 0.5,
        utilization: 0.3125,
        cacheHitRate: 0.25,
        tokensPerSecond: 499.5,
        maxRunning: 32,
      },
    ]);
    // The times at which the ranks took their samples, not that of the answer.
    expect(parsed.kind === "reading" && parsed.reading.timestamp).to.equal(
      "1768903200.25|1768903200.5",
    );
  });

  it("reads the current form, in which any field may be null: null is unknown, not 0", () => {
    const parsed = parseSglangLoads(jsonFixture("sglang-loads-current.json"));
    expect(sampleOf(parsed)).to.deep.include({ invalidFields: [] });
    expect(sampleOf(parsed).ranks).to.deep.equal([
      rankOf({
        running: 7,
        waiting: 0,
        tokenUsage: 0.0312,
        usedTokens: 2048,
        maxTokens: 65_536,
        cacheHitRate: 0,
        utilization: 0,
      }),
    ]);
    expect(parsed.kind === "reading" && parsed.reading.timestamp).to.equal(
      "2026-06-01T10:00:00.123456+00:00",
    );
  });

  it("has a blank time when the engine gives none", () => {
    for (const timestamp of [undefined, null, "", "   ", 0, "x".repeat(65)]) {
      const parsed = parseSglangLoads({ ...loadsWith({}), timestamp });
      expect(parsed.kind === "reading" && parsed.reading.timestamp).to.equal("");
    }
  });

  it("takes the one rank of an engine without data parallelism for rank 0 when its id is null", () => {
    expect(sampleOf(parseSglangLoads(loadsWith({ dp_rank: null }))).ranks[0]?.rank).to.equal(0);
  });

  const oldWith = (fields: Record<string, unknown>, count: unknown = 2): Loads => {
    const answer = jsonFixture("sglang-loads-old.json") as Loads;
    const [first = {}, second = {}] = answer.loads;
    return { ...answer, dp_rank_count: count, loads: [{ ...first, ...fields }, second] };
  };
  const unwritten = {
    num_running_reqs: 0,
    num_waiting_reqs: 0,
    num_used_tokens: 0,
    max_total_num_tokens: 0,
    max_running_requests: 0,
  };
  for (const [symptom, answer, reason] of [
    ["loads is gone", { timestamp: "t" }, "missing_metric"],
    ["loads is null", { loads: null }, "missing_metric"],
    ["loads is empty", { loads: [] }, "missing_metric"],
    ["loads is an object", { loads: {} }, "malformed"],
    ["a rank is a number", { loads: [1] }, "malformed"],
    ["the answer is a list", [], "malformed"],
    ["running is null", loadsWith({ num_running_reqs: null }), "missing_metric"],
    ["running is -1", loadsWith({ num_running_reqs: -1 }), "invalid_value"],
    ["running is a text", loadsWith({ num_running_reqs: "7" }), "invalid_value"],
    ["waiting was renamed", loadsWith({ num_waiting_reqs: undefined }), "missing_metric"],
    ["token usage is null", loadsWith({ token_usage: null }), "missing_metric"],
    ["token usage is -1", loadsWith({ token_usage: -1 }), "invalid_value"],
    ["the ranks are fewer than declared", oldWith({}, 3), "invalid_value"],
    ["a rank id stands twice", oldWith({ dp_rank: 1 }), "invalid_value"],
    ["a rank id is out of range", oldWith({ dp_rank: 2 }), "invalid_value"],
    ["a rank id is missing", oldWith({ dp_rank: null }), "invalid_value"],
    ["the total is another sum", oldWith({ num_total_reqs: 22 }), "invalid_value"],
    ["a scheduler has not spoken yet", loadsWith(unwritten), "missing_metric"],
  ] as const) {
    it(`is unknown, never idle, when ${symptom}`, () => {
      expect(reasonOf(parseSglangLoads(answer))).to.equal(reason);
    });
  }
});

describe("SGLang /get_load with /metrics", () => {
  const list = jsonFixture("sglang-get-load.json");

  it("takes counts from the list and the rest from the gauges of the same rank", () => {
    const sample = sampleOf(parseSglangGetLoad(list, ALL_SCHEDULERS));
    expect(sample.source).to.equal("sglang_get_load");
    const more = { maxRunning: 64 };
    // num_reqs counts running and waiting: 9 - 1 and 15 - 4.
    expect(sample.ranks).to.deep.equal([
      rankOf({ running: 8, waiting: 1, tokenUsage: 0.5, tokensPerSecond: 400, ...more }),
      rankOf({ rank: 1, running: 11, waiting: 4, tokenUsage: 0.75, tokensPerSecond: 500, ...more }),
    ]);
  });

  it("copies the mean of the gauges to every rank where they name none", () => {
    const ranks = sampleOf(parseSglangGetLoad(list, METRICS)).ranks;
    expect(ranks.map(({ tokenUsage }) => tokenUsage)).to.deep.equal([0.28, 0.28]);
    expect(ranks[1]?.tokensPerSecond).to.equal(86.50814177726902);
  });

  for (const [symptom, answer, text, reason] of [
    ["the KV gauge is missing", list, "sglang:num_running_reqs 1\n", "missing_metric"],
    ["the list is an object", {}, METRICS, "malformed"],
    ["the list is empty", [], METRICS, "missing_metric"],
    ["more wait than there are", [{ num_reqs: 1, num_waiting_reqs: 2 }], METRICS, "invalid_value"],
    ["waiting is null", [{ num_reqs: 1, num_waiting_reqs: null }], METRICS, "invalid_value"],
    ["the count is null", [{ num_reqs: null, num_waiting_reqs: 0 }], METRICS, "missing_metric"],
  ] as const) {
    it(`is unknown when ${symptom}`, () => {
      expect(reasonOf(parseSglangGetLoad(answer, text))).to.equal(reason);
    });
  }
});

describe("SGLang /metrics alone", () => {
  it("reads the prefix sglang:", () => {
    expect(sampleOf(parseSglangMetrics(METRICS)).ranks).to.deep.equal([
      rankOf({
        running: 162,
        waiting: 2826,
        tokenUsage: 0.28,
        usedTokens: 123_859,
        cacheHitRate: 0.5,
        tokensPerSecond: 86.50814177726902,
      }),
    ]);
  });

  it("reads the prefix sglang_, counts one total of all priorities and one of all tensor ranks", () => {
    expect(sampleOf(parseSglangMetrics(ALL_SCHEDULERS)).ranks).to.deep.equal([
      rankOf({ running: 8, waiting: 1, tokenUsage: 0.5, tokensPerSecond: 400, maxRunning: 64 }),
      rankOf({
        rank: 1,
        running: 11,
        waiting: 4,
        tokenUsage: 0.75,
        tokensPerSecond: 500,
        maxRunning: 64,
      }),
    ]);
  });

  it("sums the priorities when there is no total", () => {
    const text = ALL_SCHEDULERS.split("\n")
      .filter((line) => !(line.includes('dp_rank="0",priority=""') && line.includes("running")))
      .join("\n");
    expect(sampleOf(parseSglangMetrics(text)).ranks[0]?.running).to.equal(8);
  });

  it("takes the lowest tensor rank when they disagree, whatever their order", () => {
    const text =
      `sglang:token_usage{tp_rank="10"} 0.9\nsglang:token_usage{tp_rank="2"} 0.1\n` +
      `sglang:num_running_reqs{tp_rank="10"} 5\nsglang:num_running_reqs{tp_rank="2"} 6\n` +
      `sglang:num_queue_reqs{tp_rank="2"} 0\n`;
    expect(sampleOf(parseSglangMetrics(text)).ranks).to.deep.equal([
      rankOf({ running: 6, waiting: 0, tokenUsage: 0.1 }),
    ]);
  });

  it("reads the text form of /v1/loads, which calls the queue by another name", () => {
    const text =
      `sglang_token_usage{dp_rank="0"} 0.5\nsglang_num_running_reqs{dp_rank="0"} 3\n` +
      `sglang_num_waiting_reqs{dp_rank="0"} 2\n`;
    expect(sampleOf(parseSglangMetrics(text)).ranks[0]?.waiting).to.equal(2);
  });

  for (const [symptom, text, reason] of [
    ["the KV gauge is missing", METRICS.replaceAll("token_usage", "usage"), "missing_metric"],
    ["the queue is missing", METRICS.replaceAll("num_queue", "queue"), "missing_metric"],
    ["token usage is NaN", METRICS.replace(" 0.28", " NaN"), "invalid_value"],
    ["running is -1", METRICS.replace(" 162.0", " -1"), "invalid_value"],
  ] as const) {
    it(`is unknown when ${symptom}`, () => {
      expect(reasonOf(parseSglangMetrics(text))).to.equal(reason);
    });
  }

  it("keeps the sample and names the field when only the throughput is NaN", () => {
    const sample = sampleOf(parseSglangMetrics(METRICS.replace("86.50814177726902", "NaN")));
    expect(sample.ranks[0]?.tokensPerSecond).to.equal(undefined);
    expect(sample.invalidFields).to.deep.equal(["tokensPerSecond"]);
  });
});
