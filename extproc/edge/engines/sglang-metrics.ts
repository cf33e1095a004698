// SGLang's /metrics. The prefix is `sglang:` or, in some builds, `sglang_`: whichever the mandatory gauge
// token_usage carries. Two things make plain sums wrong here. With priority scheduling a gauge has one
// sample for each priority and one for all of them, whose priority is empty: only that one counts.
// With metrics of all schedulers on, every tensor-parallel (and pipeline and expert) rank repeats the
// same gauge: only the lowest of them counts. What is left is summed (counts, rates) or averaged
// (ratios) for each data-parallel rank.

import { RANKS_MAX, type RankReading } from "../../core/workers/telemetry-reading.js";
import { readExposition, type Sample, type SamplesByName } from "./exposition.js";
import { malformed, missingMetric, type Parsed, type Unreadable } from "./parsed.js";
import { ByLabel, countersOf, meanOf, samplesOf, sumOf, valuesOf, withLabel } from "./series.js";

const PREFIXES = ["sglang:", "sglang_"] as const;
const GAUGES = [
  "num_running_reqs",
  "num_queue_reqs",
  "num_waiting_reqs",
  "num_waiting_uncached_tokens",
  "num_used_tokens",
  "max_total_num_tokens",
  "token_usage",
  "utilization",
  "cache_hit_rate",
  "gen_throughput",
  "max_running_requests",
] as const;
type Gauge = (typeof GAUGES)[number];
const GENERATED = "generation_tokens_total";

const SGLANG_METRICS: ReadonlySet<string> = new Set(
  PREFIXES.flatMap((prefix) => [...GAUGES, GENERATED].map((name) => prefix + name)),
);

/** Ranks of one scheduler that report the same gauge once more. */
const REPEATING_LABELS = ["tp_rank", "pp_rank", "moe_ep_rank"] as const;

/** A text whose mandatory gauge was found, ready to be asked. */
export class SglangGauges {
  readonly #samples: SamplesByName;
  readonly #byRank: ByLabel;
  /** What was asked of all ranks together: each of many ranks may ask the same. */
  readonly #whole = new Map<string, readonly Sample[]>();
  readonly #prefix: string;

  private constructor(samples: SamplesByName, prefix: string) {
    this.#samples = samples;
    this.#byRank = new ByLabel(samples, "dp_rank");
    this.#prefix = prefix;
  }

  /** The gauges of a text, or why there are none. */
  static read(text: string): SglangGauges | Unreadable {
    const read = readExposition(text, SGLANG_METRICS);
    if (read.kind === "malformed") return malformed(read.detail);
    const prefix = PREFIXES.find((candidate) => read.samples.has(`${candidate}token_usage`));
    if (prefix === undefined) return missingMetric("sglang:token_usage");
    return new SglangGauges(read.samples, prefix);
  }

  /**
   * The data-parallel ranks that token_usage is reported for; one empty name without any. One rank too
   * many is enough to have the whole refused.
   */
  get ranks(): readonly string[] {
    return valuesOf(this.of("token_usage"), "dp_rank").slice(0, RANKS_MAX + 1);
  }

  /** Samples of a gauge that count, of one data-parallel rank or of all. */
  of(gauge: Gauge, rank?: string): readonly Sample[] {
    const name = this.#prefix + gauge;
    if (rank !== undefined) return withoutRepetitions(totals(this.#byRank.of(name, rank)));
    let whole = this.#whole.get(name);
    if (whole === undefined) {
      whole = withoutRepetitions(totals(samplesOf(this.#samples, name)));
      this.#whole.set(name, whole);
    }
    return whole;
  }

  get counters(): ReturnType<typeof countersOf> {
    return countersOf(
      withoutRepetitions(totals(samplesOf(this.#samples, this.#prefix + GENERATED))),
    );
  }
}

/** Reads the worker from /metrics alone. */
export function parseSglangMetrics(text: string): Parsed {
  const gauges = SglangGauges.read(text);
  if (!(gauges instanceof SglangGauges)) return gauges;
  return {
    kind: "reading",
    reading: {
      source: "sglang_metrics",
      timestamp: undefined,
      ranks: gauges.ranks.map((name, rank) => readRank(gauges, name, rank)),
    },
    counters: gauges.counters,
  };
}

function readRank(gauges: SglangGauges, name: string, rank: number): RankReading {
  const sum = (gauge: Gauge): number | undefined => sumOf(gauges.of(gauge, name));
  const mean = (gauge: Gauge): number | undefined => meanOf(gauges.of(gauge, name));
  return {
    rank,
    running: sum("num_running_reqs"),
    // The text form of /v1/loads has the other name.
    waiting: sum("num_queue_reqs") ?? sum("num_waiting_reqs"),
    waitingUncachedTokens: sum("num_waiting_uncached_tokens"),
    usedTokens: sum("num_used_tokens"),
    maxTokens: sum("max_total_num_tokens"),
    tokenUsage: mean("token_usage"),
    utilization: mean("utilization"),
    cacheHitRate: mean("cache_hit_rate"),
    tokensPerSecond: sum("gen_throughput"),
    maxRunning: sum("max_running_requests"),
  };
}

/** The samples over all priorities; all samples when none says that it is one. */
function totals(samples: readonly Sample[]): readonly Sample[] {
  const total = withLabel(samples, "priority", "");
  return total.length > 0 ? total : samples;
}

/** One sample for each scheduler: the one of its lowest rank. */
function withoutRepetitions(samples: readonly Sample[]): readonly Sample[] {
  const lowest = new Map<string, Sample>();
  for (const sample of samples) {
    const labels = [...sample.labels].filter(([name]) => !isRepeating(name));
    const key = JSON.stringify(labels.sort());
    const other = lowest.get(key);
    if (other === undefined || isLower(sample, other)) lowest.set(key, sample);
  }
  return [...lowest.values()];
}

function isLower(a: Sample, b: Sample): boolean {
  for (const label of REPEATING_LABELS) {
    const difference = Number(a.labels.get(label) ?? 0) - Number(b.labels.get(label) ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return false;
}

function isRepeating(label: string): boolean {
  return (REPEATING_LABELS as readonly string[]).includes(label);
}
