// What to say about a key the schema does not know: it has another name here, it belongs to a part
// that is not in this version, or it is a typing error, and then the nearest known key is named.
// The list of known keys is read from the schema, so it cannot fall behind.

import { z } from "zod";
import { DEFAULTS } from "./defaults.js";
import type { ConfigPath } from "./problem.js";

type KeysByPath = Readonly<Record<string, string>>;

/** Keys of the strategy `predicted_work`, by the path of their mapping (`*` = any name). */
const NOT_BUILT: KeysByPath = {
  adaptive_admission: "work_horizon_secs prior_observations max_segments cold_start_output_tokens",
};

/** Keys that would hold a secret, listed in the same way. */
const SECRET: KeysByPath = { "workers.*": "api_key", credits: "service_key" };

/** Keys of one section that are easily looked for elsewhere, for instance at the models. */
const SELECTION_KEYS: Readonly<Record<string, string>> = Object.fromEntries(
  Object.keys(DEFAULTS.selection).map((key) => [key, `selection.${key}`]),
);

/** Keys that stand elsewhere or under another name, wherever they are written. */
const RENAMED: Readonly<Record<string, string>> = {
  trust_tenant_header: "trust.tenant_id",
  prefer_trusted_tenant_header: "trust.prefer_tenant_id",
  trust_output_token_estimate_header: "trust.output_token_estimate",
  trust_request_model_header: "trust.request_model",
  priority_scheduler_adaptive_capacity: "scheduler.adaptive_capacity",
  distribution_headroom_partitions: "seeding.partitions",
  distribution_headroom_partition_seed_cap: "seeding.seed_cap",
  load_monitor_interval_secs: "adaptive_admission.load_monitor_interval_secs",
  engine_metrics: "adaptive_admission.engine_metrics",
  priority_scheduler_enabled: "scheduler.enabled",
  capacity_credit_generation: "credits.generation",
  capacity_credit_ttl_ms: "credits.ttl_ms",
  capacity_credit_terminal_retention_secs: "credits.terminal_retention_secs",
  capacity_credit_required: "credits.required",
  ...SELECTION_KEYS,
  cache_aware_engine_load: "selection.engine_load",
  model_policy: "models.<name>.policy",
};

/** The sentence for an unknown `key` of the mapping at `path`. */
export function explainUnknownKey(schema: z.ZodType, path: ConfigPath, key: string): string {
  const renamed = Object.hasOwn(RENAMED, key) ? RENAMED[key] : undefined;
  if (renamed !== undefined) return `is not a key here; the key is ${renamed}`;
  if (isListed(NOT_BUILT, path, key)) {
    return "belongs to the strategy predicted_work, which is not built";
  }
  if (isListed(SECRET, path, key)) {
    return `a key does not stand in this file; name its place with ${key}_env or ${key}_file`;
  }
  const words = allowedWords(schema, path);
  if (words.length > 0) return `is not allowed here; it must be one of ${words.join(", ")}`;
  const nearest = nearestKey(key, knownKeys(schema, path));
  return nearest === undefined
    ? "is not a known key"
    : `is not a known key; did you mean ${nearest}?`;
}

/**
 * The one key that a checked mapping of free names loses without a word, because setting it on an
 * object would replace the object's prototype.
 */
const PROTOTYPE_KEY = "__proto__";

/** Where that key stands in a file. */
export function prototypeKeys(root: unknown): readonly ConfigPath[] {
  const found: ConfigPath[] = [];
  const seen = new Set<object>();
  const look = (value: unknown, path: ConfigPath): void => {
    // An alias of YAML can make a value that contains itself.
    if (typeof value !== "object" || value === null || seen.has(value)) return;
    seen.add(value);
    for (const [key, inner] of Object.entries(value)) {
      const here = [...path, Array.isArray(value) ? Number(key) : key];
      if (key === PROTOTYPE_KEY) found.push(here);
      look(inner, here);
    }
  };
  look(root, []);
  return found;
}

/** The sentence for that key: what any other wrong key of the mapping at `path` would get. */
export function explainPrototypeKey(schema: z.ZodType, path: ConfigPath): string {
  const here = schemaAt(schema, path);
  if (!(here instanceof z.ZodRecord) || allowedWords(schema, path).length > 0) {
    return explainUnknownKey(schema, path, PROTOTYPE_KEY);
  }
  const { error } = z.safeParse(here.keyType, PROTOTYPE_KEY);
  return error?.issues[0]?.message ?? "must be a name other than __proto__";
}

function isListed(table: KeysByPath, path: ConfigPath, key: string): boolean {
  return Object.entries(table).some(([pattern, keys]) => {
    const steps = pattern === "" ? [] : pattern.split(".");
    const here =
      steps.length === path.length && steps.every((step, i) => step === "*" || step === path[i]);
    return here && keys.split(" ").includes(key);
  });
}

/** Keys the schema knows in the mapping at `path`; none when it is no mapping of fixed keys. */
export function knownKeys(schema: z.ZodType, path: ConfigPath): readonly string[] {
  const here = schemaAt(schema, path);
  return here instanceof z.ZodObject ? Object.keys(here.shape) : [];
}

/** The words of a mapping whose names are a few fixed words; none when any name is allowed. */
function allowedWords(schema: z.ZodType, path: ConfigPath): readonly string[] {
  const here = schemaAt(schema, path);
  if (!(here instanceof z.ZodRecord) || !(here.keyType instanceof z.ZodLiteral)) return [];
  return [...here.keyType.values].map(String);
}

function schemaAt(schema: z.ZodType, path: ConfigPath): unknown {
  let here: unknown = unwrapped(schema);
  for (const step of path) {
    if (here instanceof z.ZodObject) here = unwrapped(here.shape[step]);
    else if (here instanceof z.ZodRecord) here = unwrapped(here.valueType);
    else if (here instanceof z.ZodArray) here = unwrapped(here.element);
    else return undefined;
  }
  return here;
}

function unwrapped(schema: unknown): unknown {
  let inner = schema;
  while (
    inner instanceof z.ZodDefault ||
    inner instanceof z.ZodPrefault ||
    inner instanceof z.ZodOptional
  ) {
    inner = inner.unwrap();
  }
  return inner;
}

/** The known key with the fewest edits, when they are few enough to be a slip of the hand. */
export function nearestKey(key: string, known: readonly string[]): string | undefined {
  let nearest: string | undefined;
  // A third of the letters: `queue_sise` finds queue_size, `colour` finds nothing.
  let least = Math.max(2, Math.ceil(key.length / 3)) + 1;
  for (const candidate of known) {
    const edits = editDistance(key.toLowerCase(), candidate.toLowerCase());
    if (edits < least && edits < Math.min(key.length, candidate.length)) {
      least = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

/** Longest key that is compared; the work grows with the product of both lengths. */
const COMPARED_KEY_MAX_CHARS = 64;

/** Levenshtein distance, row by row. */
function editDistance(a: string, b: string): number {
  if (a.length > COMPARED_KEY_MAX_CHARS) return a.length;
  let above = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const replaced = (above[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      const removed = (above[column] ?? 0) + 1;
      const added = (current[column - 1] ?? 0) + 1;
      current.push(Math.min(replaced, removed, added));
    }
    above = current;
  }
  return above[b.length] ?? 0;
}
