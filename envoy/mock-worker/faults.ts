// Which misbehaviour has a test asked for? Faults come with one request in the header `x-mock`
// (`status=503, delay_ms=200, hang`) or for all following requests as JSON to /mock/faults; the
// header wins where both name the same fault. Names are spelled the same in both and in this type.
// An unknown name or a bad value is an error that says what is allowed, so that a test with a
// misspelled fault cannot pass by accident.
import { zstdIsAvailable } from "./encodings.js";

export interface RequestFaults {
  /** Answer this status (200 to 599) with an error body; the engine never sees the request. */
  readonly status?: number;
  /** Stay silent this long first; inside the slot when the request reaches the engine. */
  readonly delay_ms?: number;
  /** Cut the connection before the headers, or after about half of the body. */
  readonly reset?: "before" | "after";
  /** Usage left out, written as null, or with every count as a text. */
  readonly usage?: "none" | "null" | "wrong";
  readonly encoding?: "gzip" | "deflate" | "br" | "zstd";
  /** Take a slot and never answer. */
  readonly hang?: boolean;
  /** Send the headers of a stream when the request gets its slot, not with the first token. */
  readonly headers?: "early" | "late";
  /** Exact number of tokens of each choice, whatever the request's limit. */
  readonly tokens?: number;
  /** Every token is this text; percent-encoded in the header. */
  readonly text?: string;
  /** End a well-formed HTTP answer half-way: a JSON body cut, a stream without its last events. */
  readonly truncate?: boolean;
  /** An error event in the middle of a stream, which ends there. */
  readonly error_event?: boolean;
  /** Write the last events of a stream, or the last 512 bytes of a JSON body, byte by byte. */
  readonly usage_split?: boolean;
  /** Close the answer with an HTTP trailer. */
  readonly trailers?: boolean;
}

/** Faults of the whole worker: those of requests, of its telemetry and of its KV events. */
export interface Faults extends RequestFaults {
  /** Freeze what the telemetry paths say at this moment. */
  readonly stale_metrics?: boolean;
  readonly metrics_status?: number;
  /** Answer /metrics with this text, whatever it is. */
  readonly metrics_body?: string;
  /** Status of /v1/loads. */
  readonly loads_status?: number;
  readonly loads_form?: "current" | "old";
  readonly get_load_status?: number;
  readonly health_status?: number;
  /** Never answer a telemetry path. */
  readonly telemetry_hang?: boolean;
  /** Answer 401 on telemetry paths to whoever does not bring this key as bearer token. */
  readonly telemetry_key?: string;
  /** Keep the next so many batches of KV events from the subscribers; a replay still has them. */
  readonly kv_drop?: number;
  /** Number the batches of KV events from 0 again at once, and keep none of the earlier ones. */
  readonly kv_restart?: boolean;
}

export type FaultsResult<F> =
  | { readonly kind: "faults"; readonly faults: F }
  | { readonly kind: "error"; readonly message: string };

interface Rule {
  readonly accepts: (value: unknown) => boolean;
  readonly allowed: string;
}

const MAX_DELAY_MS = 3_600_000;
const MAX_TOKENS = 1_000_000;
const MAX_DROPPED_BATCHES = 1_000_000;

const status = whole(200, 599);
const flag: Rule = { accepts: (value) => typeof value === "boolean", allowed: "true or false" };
const anyText: Rule = { accepts: (value) => typeof value === "string", allowed: "a text" };

const REQUEST_RULES: Readonly<Record<keyof RequestFaults, Rule>> = {
  status,
  delay_ms: whole(0, MAX_DELAY_MS),
  reset: oneOf("before", "after"),
  usage: oneOf("none", "null", "wrong"),
  encoding: oneOf("gzip", "deflate", "br", ...(zstdIsAvailable() ? ["zstd"] : [])),
  hang: flag,
  headers: oneOf("early", "late"),
  tokens: whole(0, MAX_TOKENS),
  text: anyText,
  truncate: flag,
  error_event: flag,
  usage_split: flag,
  trailers: flag,
};

const WORKER_RULES: Readonly<Record<keyof Faults, Rule>> = {
  ...REQUEST_RULES,
  stale_metrics: flag,
  metrics_status: status,
  metrics_body: anyText,
  loads_status: status,
  loads_form: oneOf("current", "old"),
  get_load_status: status,
  health_status: status,
  telemetry_hang: flag,
  telemetry_key: anyText,
  kv_drop: whole(1, MAX_DROPPED_BATCHES),
  kv_restart: flag,
};

/** Reads the header `x-mock`; no header means no faults. */
export function readFaultHeader(header: string | undefined): FaultsResult<RequestFaults> {
  const values: Record<string, unknown> = {};
  for (const part of (header ?? "").split(",")) {
    const item = part.trim();
    if (item === "") continue;
    const equals = item.indexOf("=");
    const name = equals < 0 ? item : item.slice(0, equals);
    values[name] = equals < 0 ? true : headerValue(item.slice(equals + 1));
  }
  return check<RequestFaults>("x-mock", values, REQUEST_RULES);
}

/** Checks a JSON value meant as faults for all following requests. */
export function readFaults(value: unknown): FaultsResult<Faults> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return { kind: "error", message: "faults must be a JSON object" };
  }
  return check<Faults>("faults", value, WORKER_RULES);
}

/** The faults of one request: its own first, the worker's where it names none. */
export function faultsFor(worker: Faults, request: RequestFaults): Faults {
  return { ...worker, ...request };
}

function headerValue(text: string): unknown {
  if (/^\d+$/.test(text)) return Number(text);
  if (text === "true" || text === "false") return text === "true";
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function check<F>(
  where: string,
  values: object,
  rules: Readonly<Record<string, Rule>>,
): FaultsResult<F> {
  for (const [name, value] of Object.entries(values)) {
    const rule = Object.hasOwn(rules, name) ? rules[name] : undefined;
    if (rule === undefined) {
      const allowed = Object.keys(rules).join(", ");
      return { kind: "error", message: `${where}: unknown fault "${name}"; allowed: ${allowed}` };
    }
    if (!rule.accepts(value)) {
      const got = JSON.stringify(value);
      return { kind: "error", message: `${where}: ${name} is ${got}; allowed: ${rule.allowed}` };
    }
  }
  return { kind: "faults", faults: values as F };
}

function whole(min: number, max: number): Rule {
  return {
    accepts: (value) => Number.isInteger(value) && Number(value) >= min && Number(value) <= max,
    allowed: `a whole number from ${String(min)} to ${String(max)}`,
  };
}

function oneOf(...allowed: readonly string[]): Rule {
  return {
    accepts: (value) => typeof value === "string" && allowed.includes(value),
    allowed: `one of ${allowed.join(", ")}`,
  };
}
