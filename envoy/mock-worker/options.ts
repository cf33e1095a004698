// How is a mock worker set up? One options record with a default for every field, read either from
// code or from command-line flags. A bad value is an error that names the flag, the value and what
// is allowed; a worker never starts on half-understood flags.

export interface MockWorkerOptions {
  readonly host: string;
  /** TCP port; 0 lets the system choose one. */
  readonly port: number;
  /** Model names this worker serves; the first one labels its metrics. */
  readonly models: readonly string[];
  /** Whose telemetry it speaks. Every generating path is served by both kinds. */
  readonly engine: "vllm" | "sglang";
  /** Requests that run at once; more wait inside the worker, first in, first out. */
  readonly slots: number;
  /** Milliseconds from one token of a running request to its next; 0 = as fast as possible. */
  readonly msPerToken: number;
  /** Milliseconds spent on each prompt block that is not cached, before the first token. */
  readonly prefillMsPerBlock: number;
  /** Blocks of the KV cache, shared by running requests and remembered prefixes. */
  readonly kvBlocks: number;
  /** Characters in a block; a token is four characters. */
  readonly blockChars: number;
  /** `manual` stands still until advanced. */
  readonly clock: "real" | "manual";
  /** TCP port of the publisher of KV events; 0 lets the system choose one, absent = none. */
  readonly kvEventsPort?: number;
  /** TCP port where missed batches are asked for, likewise. */
  readonly kvReplayPort?: number;
}

export const DEFAULT_OPTIONS: MockWorkerOptions = {
  host: "127.0.0.1",
  port: 8101,
  models: ["demo"],
  engine: "vllm",
  slots: 8,
  msPerToken: 0,
  prefillMsPerBlock: 0,
  kvBlocks: 4096,
  blockChars: 256,
  clock: "real",
};

type Read = { readonly value: unknown } | { readonly allowed: string };
interface Flag {
  readonly field: keyof MockWorkerOptions;
  readonly read: (text: string) => Read;
}

const FLAGS: Readonly<Record<string, Flag>> = {
  "--host": { field: "host", read: text },
  "--port": { field: "port", read: number({ min: 0, max: 65_535, whole: true }) },
  "--model": { field: "models", read: names },
  "--engine": { field: "engine", read: oneOf("vllm", "sglang") },
  "--slots": { field: "slots", read: number({ min: 1, max: 100_000, whole: true }) },
  "--ms-per-token": { field: "msPerToken", read: number({ min: 0, max: 3_600_000, whole: false }) },
  "--prefill-ms-per-block": {
    field: "prefillMsPerBlock",
    read: number({ min: 0, max: 3_600_000, whole: false }),
  },
  "--kv-blocks": { field: "kvBlocks", read: number({ min: 1, max: 10_000_000, whole: true }) },
  "--block-chars": { field: "blockChars", read: multipleOfFour },
  "--kv-events-port": {
    field: "kvEventsPort",
    read: number({ min: 0, max: 65_535, whole: true }),
  },
  "--kv-replay-port": {
    field: "kvReplayPort",
    read: number({ min: 0, max: 65_535, whole: true }),
  },
  "--clock": { field: "clock", read: oneOf("real", "manual") },
};

export type FlagsResult =
  | { readonly kind: "options"; readonly options: MockWorkerOptions }
  | { readonly kind: "error"; readonly message: string };

/** Reads `--name value` and `--name=value`; `--model` may come several times. */
export function readFlags(words: readonly string[]): FlagsResult {
  const fields: Record<string, unknown> = {};
  for (let i = 0; i < words.length; i += 1) {
    const word = words[i] ?? "";
    const equals = word.indexOf("=");
    const name = equals < 0 ? word : word.slice(0, equals);
    const flag = Object.hasOwn(FLAGS, name) ? FLAGS[name] : undefined;
    if (flag === undefined) {
      return fail(`unknown flag "${word}"; allowed: ${Object.keys(FLAGS).join(", ")}`);
    }
    const value = equals < 0 ? words[++i] : word.slice(equals + 1);
    if (value === undefined) return fail(`flag ${name} needs a value`);
    const read = flag.read(value);
    if ("allowed" in read) return fail(`flag ${name}: "${value}" is not ${read.allowed}`);
    const earlier = fields[flag.field];
    fields[flag.field] = Array.isArray(earlier)
      ? [...(earlier as string[]), ...(read.value as string[])]
      : read.value;
  }
  if (fields["kvReplayPort"] !== undefined && fields["kvEventsPort"] === undefined) {
    return fail("flag --kv-replay-port needs --kv-events-port: there is nothing to replay");
  }
  return { kind: "options", options: { ...DEFAULT_OPTIONS, ...fields } };
}

function fail(message: string): FlagsResult {
  return { kind: "error", message };
}

function text(value: string): Read {
  return value === "" ? { allowed: "a non-empty text" } : { value };
}

function names(value: string): Read {
  const list = value.split(",").map((name) => name.trim());
  return list.includes("") ? { allowed: "a comma list of model names" } : { value: list };
}

function oneOf(...allowed: readonly string[]): (value: string) => Read {
  return (value) =>
    allowed.includes(value) ? { value } : { allowed: `one of ${allowed.join(", ")}` };
}

function number(range: {
  readonly min: number;
  readonly max: number;
  readonly whole: boolean;
}): (value: string) => Read {
  const kind = range.whole ? "a whole number" : "a number";
  const allowed = `${kind} from ${String(range.min)} to ${String(range.max)}`;
  return (value) => {
    const parsed = /^\d+(\.\d+)?$/.test(value) ? Number(value) : NaN;
    const inside = parsed >= range.min && parsed <= range.max;
    return inside && (!range.whole || Number.isInteger(parsed)) ? { value: parsed } : { allowed };
  };
}

function multipleOfFour(value: string): Read {
  const read = number({ min: 4, max: 1_048_576, whole: true })(value);
  if ("value" in read && Number(read.value) % 4 === 0) return read;
  return { allowed: "a multiple of 4 from 4 to 1048576" };
}
