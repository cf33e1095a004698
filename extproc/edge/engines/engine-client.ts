// How is one worker asked? One client for each worker keeps what it has learned about its engine: the
// kind where none is configured, which of SGLang's protocols it speaks, the counters of the scrape
// before. What was learned is dropped with the first failure, so that an engine which was replaced
// under the same address is looked at afresh. One deadline covers a whole poll with all its requests.
//
// Order of detection: /v1/loads answers with a list of loads: SGLang; else /metrics has the names of
// vLLM, SGLang, TensorRT-LLM or Triton, the first of these; else /prometheus/metrics has those of
// TensorRT-LLM. Order for SGLang: /v1/loads; else /get_load with /metrics; else /metrics alone.

import type { EngineKind } from "../../core/model/config.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { SampleToken, TelemetryFailure, WorkerSample } from "../../core/workers/telemetry.js";
import { readSample, type ReadingResult } from "../../core/workers/telemetry-reading.js";
import { CounterRate } from "./counter-rate.js";
import { getText, type GetFailure, type TextAnswer } from "./http-get.js";
import { malformed, missingMetric, type Parsed, type Unreadable } from "./parsed.js";
import { GET_LOAD_PATH, parseSglangGetLoad } from "./sglang-get-load.js";
import { LOADS_PATH, looksLikeLoads, parseSglangLoads } from "./sglang-loads.js";
import { parseSglangMetrics } from "./sglang-metrics.js";
import { parseTritonMetrics } from "./triton.js";
import { parseTrtllmMetrics } from "./trtllm.js";
import { parseVllmMetrics } from "./vllm.js";

/** Largest answer that is read: a hundred times what a busy engine writes. */
export const ANSWER_BYTES_MAX = 10 * 1024 * 1024;

const METRICS_PATH = "/metrics";
const TRTLLM_METRICS_PATH = "/prometheus/metrics";
/** Asks for the text format that is read here, not for its successors. */
const ACCEPT = "text/plain;version=0.0.4, application/json;q=0.9, */*;q=0.1";

/** How one poll is sent. */
export interface PollRequest {
  /** Ends at the deadline of the whole poll. */
  readonly signal: AbortSignal;
  readonly apiKey: string | undefined;
  readonly now: () => MonotonicMs;
}

export type PollResult =
  | { readonly kind: "sample"; readonly sample: WorkerSample; readonly at: MonotonicMs }
  | PollFailure;

export interface PollFailure {
  readonly kind: "unknown";
  readonly reason: TelemetryFailure;
  readonly detail: string;
}

type SglangForm = "loads" | "get_load" | "metrics";
type Answer = TextAnswer | GetFailure;
/** A sample, or why there is none. */
type Outcome = ReadingResult | Unreadable | GetFailure;
type Ask = (path: string) => Promise<Answer>;

const PARSERS = {
  vllm: parseVllmMetrics,
  sglang: parseSglangMetrics,
  trtllm: parseTrtllmMetrics,
  triton: parseTritonMetrics,
} as const satisfies Record<EngineKind, (text: string) => Parsed>;

/**
 * How a line of each kind's metrics begins, in the order in which an unknown text is tried. Only the
 * kind is told by a beginning: values are read by whole names, and a kind that was told says which of
 * its metrics is missing.
 */
const BEGINNINGS: readonly (readonly [kind: EngineKind, line: RegExp])[] = [
  ["vllm", /^vllm:/m],
  ["sglang", /^sglang[:_]/m],
  ["trtllm", /^trtllm_/m],
  ["triton", /^nv_trt_llm_/m],
];

export class EngineClient {
  readonly #baseUrl: string;
  readonly #configured: EngineKind | undefined;
  #detected: EngineKind | undefined;
  #sglangForm: SglangForm | undefined;
  readonly #rate = new CounterRate();
  #sequence = 0;

  /** @param baseUrl where the engine's metrics are, `http://host:port` */
  constructor(baseUrl: string, configured: EngineKind | undefined) {
    this.#baseUrl = baseUrl;
    this.#configured = configured;
  }

  /** The kind by configuration or by the last poll. */
  get engine(): EngineKind | undefined {
    return this.#configured ?? this.#detected;
  }

  /** Asks once; it never throws. Not to be called again before it has ended. */
  async poll({ signal, apiKey, now }: PollRequest): Promise<PollResult> {
    const headers = {
      accept: ACCEPT,
      ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
    };
    const ask: Ask = (path) =>
      getText(new URL(path, this.#baseUrl), { signal, headers }, ANSWER_BYTES_MAX);
    const outcome = await this.#ask(ask, now);
    if (outcome.kind === "sample") return { ...outcome, at: now() };
    this.#detected = undefined;
    this.#sglangForm = undefined;
    return { kind: "unknown", reason: outcome.reason, detail: outcome.detail };
  }

  async #ask(ask: Ask, now: () => MonotonicMs): Promise<Outcome> {
    const kind = this.engine;
    switch (kind) {
      case undefined:
        return this.#detect(ask, now);
      case "sglang":
        return this.#askSglang(ask, now);
      case "trtllm":
        return this.#askTrtllm(ask, now);
      case "vllm":
      case "triton":
        return this.#read(parsedText(await ask(METRICS_PATH), PARSERS[kind]), now());
    }
  }

  async #detect(ask: Ask, now: () => MonotonicMs): Promise<Outcome> {
    const loads = await ask(LOADS_PATH);
    if (loads.kind === "failed" && isFinal(loads)) return loads;
    if (loads.kind === "text" && looksLikeLoads(parseJson(loads.text))) {
      this.#detected = "sglang";
      return this.#askSglang(ask, now, loads);
    }
    const metrics = await ask(METRICS_PATH);
    if (metrics.kind === "failed" && isFinal(metrics)) return metrics;
    if (metrics.kind === "text") {
      const found = BEGINNINGS.find(([, line]) => line.test(metrics.text));
      this.#detected = found?.[0];
      if (this.#detected === "sglang") return this.#askSglang(ask, now, loads);
      if (this.#detected !== undefined) {
        return this.#read(PARSERS[this.#detected](metrics.text), now());
      }
    }
    const trtllm = this.#read(
      parsedText(await ask(TRTLLM_METRICS_PATH), parseTrtllmMetrics),
      now(),
    );
    if (trtllm.kind === "sample") {
      this.#detected = "trtllm";
      return trtllm;
    }
    return metrics.kind === "failed" ? metrics : missingMetric("a metric of any known engine");
  }

  /** @param loads the answer of /v1/loads, when it was asked already */
  async #askSglang(ask: Ask, now: () => MonotonicMs, loads?: Answer): Promise<Outcome> {
    const known = this.#sglangForm;
    const failures: Exclude<Outcome, { kind: "sample" }>[] = [];
    for (const form of known === undefined ? SGLANG_FORMS : [known]) {
      const outcome = this.#read(await askForm(ask, form, loads), now());
      if (outcome.kind === "sample") {
        this.#sglangForm = form;
        return outcome;
      }
      if (outcome.kind === "failed" && isFinal(outcome)) return outcome;
      failures.push(outcome);
    }
    return mostTelling(failures);
  }

  async #askTrtllm(ask: Ask, now: () => MonotonicMs): Promise<Outcome> {
    const first = await ask(TRTLLM_METRICS_PATH);
    // Builds without the path serve the same text at the common one.
    const isElsewhere = first.kind === "failed" && first.reason === "status_404";
    const answer = isElsewhere ? await ask(METRICS_PATH) : first;
    return this.#read(parsedText(answer, parseTrtllmMetrics), now());
  }

  #read(parsed: Parsed | GetFailure, at: MonotonicMs): Outcome {
    if (parsed.kind !== "reading") return parsed;
    this.#sequence += 1;
    const { timestamp, ...reading } = parsed.reading;
    const { counters } = parsed;
    return readSample({
      ...reading,
      token: tokenOf(timestamp, this.#sequence),
      countedTokensPerSecond: counters.size === 0 ? undefined : this.#rate.observe(counters, at),
    });
  }
}

const SGLANG_FORMS: readonly SglangForm[] = ["loads", "get_load", "metrics"];

async function askForm(
  ask: Ask,
  form: SglangForm,
  loads: Answer | undefined,
): Promise<Parsed | GetFailure> {
  switch (form) {
    case "loads":
      return parsedJson(loads ?? (await ask(LOADS_PATH)), parseSglangLoads);
    case "get_load": {
      const [list, gauges] = await Promise.all([ask(GET_LOAD_PATH), ask(METRICS_PATH)]);
      return parsedJson(list, (value) =>
        parsedText(gauges, (text) => parseSglangGetLoad(value, text)),
      );
    }
    case "metrics":
      return parsedText(await ask(METRICS_PATH), parseSglangMetrics);
  }
}

function tokenOf(timestamp: string | undefined, sequence: number): SampleToken {
  if (timestamp === undefined) return { kind: "scrape", sequence };
  return timestamp === "" ? { kind: "none" } : { kind: "timestamp", value: timestamp };
}

function parsedText(answer: Answer, parse: (text: string) => Parsed): Parsed | GetFailure {
  return answer.kind === "text" ? parse(answer.text) : answer;
}

function parsedJson(
  answer: Answer,
  parse: (value: unknown) => Parsed | GetFailure,
): Parsed | GetFailure {
  if (answer.kind === "failed") return answer;
  const value = parseJson(answer.text);
  return value === undefined ? malformed("the answer is no JSON") : parse(value);
}

/** Undefined when the text is no JSON, which itself has no such value. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** Failures after which another path of the same worker has no better answer. */
function isFinal({ reason }: GetFailure): boolean {
  return reason === "timeout" || reason === "connect" || reason === "status_401";
}

/** The first failure that says more than that a path does not exist. */
function mostTelling(failures: readonly Exclude<Outcome, { kind: "sample" }>[]): Outcome {
  return (
    failures.find(({ reason }) => reason !== "status_404") ?? failures[0] ?? malformed("no answer")
  );
}
