// What is wrong with a configuration, and where. A problem points at the place a person has to edit:
// a line and column of the file, an environment variable or a flag. Problems are values: all of
// them are collected and shown at once, in the order in which the file is read.

/** Keys and list indexes from the root of the file down to one value. */
export type ConfigPath = readonly (string | number)[];

export type ConfigOrigin =
  | { readonly kind: "file"; readonly file: string; readonly line: number; readonly column: number }
  | { readonly kind: "environment"; readonly name: string }
  /** The flag as it was written, dashes included. */
  | { readonly kind: "flag"; readonly name: string };

export interface ConfigProblem {
  readonly origin: ConfigOrigin;
  /** For example `workers[1].url`; empty for a problem of the file as a whole. */
  readonly path: string;
  /** What is allowed and which value was found. */
  readonly message: string;
}

/** A problem before its place is known. */
export interface Finding {
  readonly path: ConfigPath;
  readonly message: string;
}

/** Longest part of a found value that is shown; a pasted certificate must not fill the screen. */
const SHOWN_VALUE_MAX_CHARS = 80;

/** `weir.yaml:12:3 scheduler.queue_size: must be a whole number from 0 to 1000000, got -1` */
export function formatProblem(problem: ConfigProblem): string {
  const where = formatOrigin(problem.origin);
  return problem.path === ""
    ? `${where} ${problem.message}`
    : `${where} ${problem.path}: ${problem.message}`;
}

function formatOrigin(origin: ConfigOrigin): string {
  switch (origin.kind) {
    case "file":
      return `${origin.file}:${String(origin.line)}:${String(origin.column)}`;
    case "environment":
      return `environment ${origin.name}`;
    case "flag":
      return `flag ${origin.name}`;
  }
}

/** `["workers", 1, "url"]` -> `workers[1].url`; a name with a dot or blank is quoted. */
export function formatPath(path: ConfigPath): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${String(step)}]`;
    else {
      const name = /^[\w-]+$/.test(step) ? step : JSON.stringify(step);
      text += text === "" ? name : `.${name}`;
    }
  }
  return text;
}

/** A found value as it is shown in a message: text in quotes, everything short. */
export function showValue(value: unknown): string {
  if (value === null || value === undefined) return "nothing";
  const text = typeof value === "number" ? String(value) : jsonOf(value);
  return text.length <= SHOWN_VALUE_MAX_CHARS ? text : `${text.slice(0, SHOWN_VALUE_MAX_CHARS)}…`;
}

/** A YAML alias can make a value that contains itself, which JSON cannot write. */
function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    return "a value that contains itself";
  }
}

/** Sorts by place: the file from top to bottom, then environment and flags by name. */
export function sortProblems(problems: readonly ConfigProblem[]): ConfigProblem[] {
  return [...problems].sort((a, b) => compareOrigins(a.origin, b.origin));
}

const KIND_ORDER = { file: 0, environment: 1, flag: 2 } satisfies Record<
  ConfigOrigin["kind"],
  number
>;

function compareOrigins(a: ConfigOrigin, b: ConfigOrigin): number {
  if (a.kind === "file" && b.kind === "file") return a.line - b.line || a.column - b.column;
  if (a.kind !== "file" && b.kind !== "file" && a.kind === b.kind) {
    return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
  }
  return KIND_ORDER[a.kind] - KIND_ORDER[b.kind];
}
