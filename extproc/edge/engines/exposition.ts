// Reads the Prometheus text format (version 0.0.4), as far as it is asked: the samples of the wanted
// names, each name compared whole, so that `vllm:num_requests_waiting` is never mistaken for
// `vllm:num_requests_waiting_by_reason`. A wanted line is read strictly and a line that is no metric at
// all makes the text malformed, because a half-read text must not look like an idle engine. Lines of
// other metrics are stepped over without building anything, which keeps a text of 10 MB well
// under a tenth of a second. The parsers on npm read everything, hold values as texts, and take an HTML page for
// a metric; that is why this one exists.

export interface Sample {
  /** Labels with their values unescaped; an empty value is kept. */
  readonly labels: ReadonlyMap<string, string>;
  /** May be NaN or infinite. */
  readonly value: number;
}

export type SamplesByName = ReadonlyMap<string, readonly Sample[]>;

export type ExpositionResult =
  | { readonly kind: "samples"; readonly samples: SamplesByName }
  | { readonly kind: "malformed"; readonly detail: string };

/** Samples of wanted names in one text: sixteen for each of the most ranks a worker can have. */
export const SAMPLES_MAX = 16_384;

const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/;
const TIMESTAMP = /^-?\d+$/;
const LABEL_NAME = /[a-zA-Z_][a-zA-Z0-9_]*/y;
const BLANKS = /[ \t]*/y;

/** Reads the samples of the wanted names; names without a sample are absent from the result. */
export function readExposition(text: string, wanted: ReadonlySet<string>): ExpositionResult {
  const samples = new Map<string, Sample[]>();
  const seen = new Set<string>();
  let lineNumber = 0;
  for (let start = 0; start < text.length;) {
    lineNumber += 1;
    const feed = text.indexOf("\n", start);
    if (feed < 0) return malformed(lineNumber, "the text ends within a line");
    const from = startOfName(text, start, feed);
    start = feed + 1;
    if (from === feed) continue;
    const nameEnd = endOfName(text, from, feed);
    if (nameEnd < 0) return malformed(lineNumber, "it does not begin with a metric name");
    const name = text.slice(from, nameEnd);
    if (!wanted.has(name)) continue;
    const read = readLine(text.slice(nameEnd, feed));
    if (typeof read === "string") return malformed(lineNumber, `${name}: ${read}`);
    const series = seriesKey(name, read.labels);
    if (seen.has(series)) return malformed(lineNumber, `${name}: the same series twice`);
    seen.add(series);
    if (seen.size > SAMPLES_MAX) {
      return malformed(lineNumber, `more than ${String(SAMPLES_MAX)} samples`);
    }
    const list = samples.get(name);
    if (list === undefined) samples.set(name, [read]);
    else list.push(read);
  }
  return { kind: "samples", samples };
}

function malformed(lineNumber: number, detail: string): ExpositionResult {
  return { kind: "malformed", detail: `line ${String(lineNumber)}: ${detail}` };
}

/** Where the name of a line begins; its end for an empty line or a comment. */
function startOfName(text: string, start: number, end: number): number {
  let at = start;
  while (at < end && isBlank(text.charCodeAt(at))) at += 1;
  return text.charCodeAt(at) === HASH ? end : at;
}

/** Where the metric name that begins at `from` ends; -1 when there is none. */
function endOfName(text: string, from: number, end: number): number {
  let at = from;
  while (at < end && NAME_CODES[text.charCodeAt(at)] === 1) at += 1;
  const isDigitFirst = at > from && isDigit(text.charCodeAt(from));
  const next = text.charCodeAt(at);
  const isEnded = at === end || next === BRACE || isBlank(next);
  return at === from || isDigitFirst || !isEnded ? -1 : at;
}

const HASH = "#".charCodeAt(0);
const BRACE = "{".charCodeAt(0);
/** 1 for each character code that a metric name may hold. */
const NAME_CODES = Uint8Array.from({ length: 128 }, (_, code) =>
  /[a-zA-Z0-9_:]/.test(String.fromCharCode(code)) ? 1 : 0,
);

/** Space, tabulator, or the carriage return of a server that ends its lines with two characters. */
function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09 || code === 0x0d;
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

/** Reads what follows the name: labels, value, timestamp; a text says what is wrong with it. */
function readLine(rest: string): Sample | string {
  let at = skipBlanks(rest, 0);
  const labels = new Map<string, string>();
  if (rest[at] === "{") {
    const after = readLabels(rest, at + 1, labels);
    if (typeof after === "string") return after;
    at = after;
  }
  const [value, timestamp, ...more] = rest
    .slice(at)
    .trim()
    .split(/[ \t]+/);
  if (more.length > 0) return "there is more after the timestamp";
  if (timestamp !== undefined && !TIMESTAMP.test(timestamp)) return "the timestamp is no number";
  const number = readNumber(value ?? "");
  return number === undefined ? "the value is no number" : { labels, value: number };
}

function readNumber(text: string): number | undefined {
  if (NUMBER.test(text)) return Number(text);
  switch (text.toLowerCase()) {
    case "nan":
      return Number.NaN;
    case "inf":
    case "+inf":
      return Number.POSITIVE_INFINITY;
    case "-inf":
      return Number.NEGATIVE_INFINITY;
    default:
      return undefined;
  }
}

/** Reads labels from behind `{` on; the index behind `}`, or what is wrong. */
function readLabels(rest: string, start: number, labels: Map<string, string>): number | string {
  let at = skipBlanks(rest, start);
  while (rest[at] !== "}") {
    LABEL_NAME.lastIndex = at;
    const name = LABEL_NAME.exec(rest)?.[0];
    if (name === undefined) return "a label has no name";
    if (labels.has(name)) return `label ${name} stands twice`;
    at = skipBlanks(rest, at + name.length);
    if (rest[at] !== "=") return `label ${name} has no value`;
    at = skipBlanks(rest, at + 1);
    if (rest[at] !== '"') return `the value of label ${name} is not quoted`;
    const close = closingQuote(rest, at + 1);
    if (close < 0) return `the value of label ${name} does not end`;
    const value = unescape(rest.slice(at + 1, close));
    if (value === undefined) return `the value of label ${name} has an unknown escape`;
    labels.set(name, value);
    at = skipBlanks(rest, close + 1);
    if (rest[at] === ",") at = skipBlanks(rest, at + 1);
    else if (rest[at] !== "}") return "the labels do not end";
  }
  return at + 1;
}

function closingQuote(rest: string, start: number): number {
  let at = start;
  while (at < rest.length && rest[at] !== '"') at += rest[at] === "\\" ? 2 : 1;
  return at < rest.length ? at : -1;
}

function unescape(text: string): string | undefined {
  if (!text.includes("\\")) return text;
  if (/\\[^\\"n]/.test(text.replaceAll("\\\\", ""))) return undefined;
  return text.replace(/\\(.)/g, (_, escaped: string) => (escaped === "n" ? "\n" : escaped));
}

function skipBlanks(text: string, start: number): number {
  BLANKS.lastIndex = start;
  BLANKS.test(text);
  return BLANKS.lastIndex;
}

function seriesKey(name: string, labels: ReadonlyMap<string, string>): string {
  const parts = [...labels].filter(([, value]) => value !== "");
  return JSON.stringify([name, ...parts.sort(([a], [b]) => (a < b ? -1 : 1)).flat()]);
}
