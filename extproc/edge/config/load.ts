// From the text of weir.yaml, the environment and the command line to a frozen configuration, or to
// every problem there is, sorted by place. The steps: read the file with positions, lay overrides
// over it, check each value by the schema, check rules across values on what is sound, freeze. A file
// whose scheduler alone is wrong may load as a limiter, when it asks for that. It reads no file and no
// process state itself: all input is an argument.

import type { z } from "zod";
import type { WeirConfig } from "../../core/model/config.js";
import { parseConfigText } from "./document.js";
import type { ConfigDocument } from "./document.js";
import { draftOf } from "./draft.js";
import type { Draft } from "./draft.js";
import { FALLBACK_NOTE, limiterInstead } from "./fallback.js";
import { freezeConfig } from "./freeze.js";
import { explainPrototypeKey, explainUnknownKey } from "./known-keys.js";
import { knownKeys, prototypeKeys } from "./known-keys.js";
import { applyOverrides, isMapping, readEnvironment, readFlags } from "./overrides.js";
import { overrideAbove, overrideBelow } from "./overrides.js";
import type { Override } from "./overrides.js";
import { formatPath, formatProblem, showValue, sortProblems } from "./problem.js";
import type { ConfigOrigin, ConfigPath, ConfigProblem, Finding } from "./problem.js";
import { checkRules } from "./rules.js";
import { configSchema } from "./schema.js";
import type { FileConfig } from "./schema.js";
import { configWarnings } from "./warnings.js";

export interface ConfigSource {
  /** The YAML text. */
  readonly text: string;
  /** How messages name the file. */
  readonly file: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** `--section.key value` and `--section.key=value`, without the command's own arguments. */
  readonly flags: readonly string[];
}

export type LoadedConfig =
  | { readonly ok: true; readonly config: WeirConfig; readonly warnings: readonly string[] }
  | { readonly ok: false; readonly problems: readonly ConfigProblem[] };

/** Loads a configuration; precedence flag, environment, file, default. Never throws. */
export function loadConfig(source: ConfigSource): LoadedConfig {
  const environment = readEnvironment(source.env, knownKeys(configSchema, []));
  const flags = readFlags(source.flags);
  const outside = [...environment.problems, ...flags.problems];
  const parsed = parseConfigText(source.text);
  if (!parsed.ok) {
    const syntax = parsed.problems.map(({ line, column, message }): ConfigProblem => {
      return { origin: { kind: "file", file: source.file, line, column }, path: "", message };
    });
    return { ok: false, problems: sortProblems([...syntax, ...outside]) };
  }
  const overrides = [...environment.overrides, ...flags.overrides];
  const applied = applyOverrides(parsed.document.value ?? {}, overrides);
  const checked = checkRoot(applied.root);
  const locate = ({ path, message }: Finding): ConfigProblem => {
    const origin = originOf(path, parsed.document, overrides, source.file);
    return { origin, path: formatPath(path), message };
  };
  const elsewhere = [...outside, ...applied.problems];
  const problems = sortProblems([...checked.findings.map(locate), ...elsewhere]);
  if (problems.length === 0 && checked.file !== undefined) return accepted(checked.file, []);
  if (elsewhere.length > 0) return { ok: false, problems };
  const fallback = limiterInstead(applied.root, checked.draft, checked.findings);
  if (fallback === undefined) return { ok: false, problems };
  const limiter = checkRoot(fallback);
  if (limiter.file === undefined || limiter.findings.length > 0) {
    return { ok: false, problems: sortProblems([...problems, ...limiter.findings.map(locate)]) };
  }
  const passedOver = problems.map((problem) => `${formatProblem(problem)}; ${FALLBACK_NOTE}`);
  return accepted(limiter.file, passedOver);
}

interface CheckedRoot {
  /** The sound part, for rules across values. */
  readonly draft: Draft;
  readonly findings: readonly Finding[];
  /** Undefined when a value was refused by itself. */
  readonly file: FileConfig | undefined;
}

function checkRoot(root: unknown): CheckedRoot {
  const checked = configSchema.safeParse(root);
  const refused = schemaFindings(checked.error?.issues ?? [], root);
  const draft = draftOf(
    root,
    refused.map((finding) => finding.path),
  );
  const findings = [...refused, ...checkRules(draft)];
  return { draft, findings, file: checked.success ? checked.data : undefined };
}

function accepted(file: FileConfig, warnings: readonly string[]): LoadedConfig {
  const config = freezeConfig(file);
  return { ok: true, config, warnings: [...warnings, ...configWarnings(config, file)] };
}

/** One finding per refused value and unknown key. */
function schemaFindings(issues: readonly z.core.$ZodIssue[], root: unknown): Finding[] {
  const findings = new Map<string, Finding>();
  const add = (path: ConfigPath, message: string): void => {
    const key = JSON.stringify(path);
    if (!findings.has(key)) findings.set(key, { path, message });
  };
  for (const issue of issues) {
    const path = issue.path.filter((step) => typeof step !== "symbol");
    if (issue.code === "unrecognized_keys") {
      for (const key of issue.keys) {
        add([...path, key], explainUnknownKey(configSchema, path, key));
      }
    } else if (issue.code === "invalid_key") {
      add(path, issue.issues[0]?.message ?? issue.message);
    } else {
      add(path, withFoundValue(issue.message, valueAt(root, path)));
    }
  }
  for (const path of prototypeKeys(root)) {
    add(path, explainPrototypeKey(configSchema, path.slice(0, -1)));
  }
  return [...findings.values()];
}

/** A sentence that says what is allowed gets the value that was found. */
function withFoundValue(message: string, value: unknown): string {
  if (!message.startsWith("must ")) return message;
  return value === undefined ? `is missing; it ${message}` : `${message}, got ${showValue(value)}`;
}

function valueAt(root: unknown, path: ConfigPath): unknown {
  let value = root;
  for (const step of path) {
    if (Array.isArray(value) && typeof step === "number") value = value[step];
    else if (isMapping(value) && Object.hasOwn(value, step)) value = value[step];
    else return undefined;
  }
  return value;
}

/** Whoever set the value last; for a value nobody set, where the file would hold it. */
function originOf(
  path: ConfigPath,
  document: ConfigDocument,
  overrides: readonly Override[],
  file: string,
): ConfigOrigin {
  const { line, column, exact } = document.locate(path);
  const override =
    overrideAbove(path, overrides) ?? (exact ? undefined : overrideBelow(path, overrides));
  return override?.origin ?? { kind: "file", file, line, column };
}
