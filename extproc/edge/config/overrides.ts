// Lays environment variables and command-line flags over the file: flag beats environment beats
// file. `WEIR_SCHEDULER__QUEUE_SIZE=5` and `--scheduler.queue_size 5` name a key by its path; the
// value is read as YAML, so lists and mappings can be given in flow style. Text that is not YAML
// (`[::1]:9002`) is taken as it stands. `WEIR_WORKERS` replaces a whole section. Other names that
// begin with WEIR_ belong to somebody else (WEIR_PORT_BASE) and are left alone; a name with a double
// underscore can only be meant for the configuration, so a wrong one is an error.

import { parseConfigText } from "./document.js";
import type { ConfigOrigin, ConfigPath, ConfigProblem } from "./problem.js";
import { formatPath } from "./problem.js";

export interface Override {
  readonly path: readonly string[];
  readonly value: unknown;
  readonly origin: ConfigOrigin;
}

export interface Overrides {
  readonly overrides: readonly Override[];
  readonly problems: readonly ConfigProblem[];
}

const STEP = /^[A-Za-z0-9][A-Za-z0-9_-]*$/;

/** Overrides of the environment. `sections` are the top-level keys that may be replaced whole. */
export function readEnvironment(
  env: Readonly<Record<string, string | undefined>>,
  sections: readonly string[],
): Overrides {
  const overrides: Override[] = [];
  const problems: ConfigProblem[] = [];
  const seen = new Map<string, string>();
  for (const name of Object.keys(env).sort()) {
    const text = env[name];
    if (text === undefined || !name.startsWith("WEIR_")) continue;
    const path = name.slice("WEIR_".length).toLowerCase().split("__");
    const origin: ConfigOrigin = { kind: "environment", name };
    if (path.length === 1 && !sections.includes(path[0] ?? "")) continue;
    const refuse = (message: string): unknown => problems.push({ origin, path: "", message });
    const key = path.join(".");
    // Letters of a name count in the environment and not in a path, so two names may mean one key.
    const other = seen.get(key);
    if (!path.every((step) => STEP.test(step))) refuse("must have the form WEIR_SECTION__KEY");
    else if (other !== undefined) refuse(`sets the same key as ${other}; keep one of them`);
    else overrides.push({ path, value: readValue(text), origin });
    seen.set(key, other ?? name);
  }
  return { overrides, problems };
}

/** Overrides of the command line: `--section.key value` or `--section.key=value`. */
export function readFlags(flags: readonly string[]): Overrides {
  const overrides: Override[] = [];
  const problems: ConfigProblem[] = [];
  const seen = new Set<string>();
  for (let index = 0; index < flags.length; index += 1) {
    const argument = flags[index] ?? "";
    const equals = argument.indexOf("=");
    const written = equals < 0 ? argument : argument.slice(0, equals);
    const origin: ConfigOrigin = { kind: "flag", name: written };
    const path = written.slice(2).split(".");
    const refuse = (message: string): unknown => problems.push({ origin, path: "", message });
    if (!argument.startsWith("--") || !path.every((step) => STEP.test(step))) {
      refuse("is not a setting; settings have the form --section.key value");
      continue;
    }
    let text = equals < 0 ? undefined : argument.slice(equals + 1);
    const next = flags[index + 1];
    if (text === undefined && next !== undefined && !next.startsWith("--")) {
      text = next;
      index += 1;
    }
    if (text === undefined) refuse("needs a value: --section.key value or --section.key=value");
    else if (seen.has(written)) refuse("is given twice; keep one of them");
    else overrides.push({ path, value: readValue(text), origin });
    seen.add(written);
  }
  return { overrides, problems };
}

function readValue(text: string): unknown {
  const parsed = parseConfigText(text);
  return parsed.ok ? parsed.document.value : text;
}

/**
 * Returns a copy of `root` with every override applied in order. A path that runs through something
 * that is not a mapping replaces it only when it is absent; otherwise it is a problem.
 */
export function applyOverrides(
  root: unknown,
  overrides: readonly Override[],
): { readonly root: unknown; readonly problems: readonly ConfigProblem[] } {
  let result = root;
  const problems: ConfigProblem[] = [];
  for (const override of overrides) {
    const applied = withValueAt(result, override.path, override.value);
    if (applied.ok) result = applied.value;
    else {
      const message = "cannot be set: a part of its path is not a mapping in the file";
      problems.push({ origin: override.origin, path: formatPath(override.path), message });
    }
  }
  return { root: result, problems };
}

type Applied = { readonly ok: true; readonly value: unknown } | { readonly ok: false };

function withValueAt(parent: unknown, path: readonly string[], value: unknown): Applied {
  const [step, ...rest] = path;
  if (step === undefined) return { ok: true, value };
  if (parent !== undefined && parent !== null && !isMapping(parent)) return { ok: false };
  const mapping = parent ?? {};
  const child = Object.hasOwn(mapping, step) ? mapping[step] : undefined;
  const inner = withValueAt(child, rest, value);
  if (!inner.ok) return inner;
  return { ok: true, value: { ...mapping, [step]: inner.value } };
}

/** True for a plain mapping as the YAML reader makes it. */
export function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The last override whose path leads to `path` or above it; undefined = the file decided. */
export function overrideAbove(
  path: ConfigPath,
  overrides: readonly Override[],
): Override | undefined {
  return overrides.findLast((override) => override.path.every((step, i) => path[i] === step));
}

/** The last override that set something below `path`. */
export function overrideBelow(
  path: ConfigPath,
  overrides: readonly Override[],
): Override | undefined {
  return overrides.findLast((override) => path.every((step, i) => override.path[i] === step));
}
