// Reads one YAML document and remembers where everything stood. It owns nothing beyond the parsed
// tree: the plain value for validation, and the positions for messages. A key of a mapping is found
// at its key (that is where an editor should jump to), an element of a list at its first character.
// Size, aliases and parser failures are bounded here, so that a hostile or broken file gives a
// message and never a crash.

import { isAlias, isMap, isNode, isScalar, isSeq, Lexer, LineCounter } from "yaml";
import { parseDocument, Parser, visit } from "yaml";
import type { Document, ParsedNode } from "yaml";
import type { ConfigPath } from "./problem.js";

/** Largest file that is read: far above a thousand workers, far below what hurts to parse. */
const CONFIG_FILE_MAX_BYTES = 1_048_576;

/** Most uses of aliases in one file; keeps a "billion laughs" file from being expanded. */
const CONFIG_ALIASES_MAX = 100;

/** Mappings and lists inside of each other; Envoy filters in the file need about twenty. */
const CONFIG_NESTING_MAX = 100;

/** Faults of syntax that are shown; what follows the first few is mostly their consequence. */
const SYNTAX_PROBLEMS_MAX = 20;

const KEY_TWICE = "this key stands twice in one mapping; keep one of them";

export interface SyntaxProblem {
  readonly line: number;
  readonly column: number;
  readonly message: string;
}

export interface ConfigDocument {
  /** Plain value of the text; null when it holds none. */
  readonly value: unknown;
  /** Where a value stands; for something that is absent, where its nearest parent stands. */
  locate(path: ConfigPath): Located;
}

export interface Located {
  readonly line: number;
  readonly column: number;
  /** False when the file does not reach down to the path. */
  readonly exact: boolean;
}

export type ParsedConfig =
  | { readonly ok: true; readonly document: ConfigDocument }
  | { readonly ok: false; readonly problems: readonly SyntaxProblem[] };

/** Parses the text of a configuration file; never throws. */
export function parseConfigText(text: string): ParsedConfig {
  const bytes = new TextEncoder().encode(text).length;
  if (bytes > CONFIG_FILE_MAX_BYTES) {
    const allowed = `at most ${String(CONFIG_FILE_MAX_BYTES)} bytes are read`;
    return refused(`the file is too large: ${allowed}, got ${String(bytes)}`);
  }
  if (isNestedTooDeep(text)) {
    const most = String(CONFIG_NESTING_MAX);
    return refused(`nesting is too deep: at most ${most} mappings and lists inside of each other`);
  }
  try {
    return parseBounded(text);
  } catch (error) {
    // Too many aliases, or one that leads nowhere, are thrown when the tree is made plain.
    return refused(`not readable as YAML: ${messageOf(error)}`);
  }
}

/** Looks at the open collections while reading: composing the tree recurses, and would overflow. */
function isNestedTooDeep(text: string): boolean {
  const parser = new Parser();
  for (const lexeme of new Lexer().lex(text)) {
    // Documents that are complete are of no interest here, but the parser wants to be drained.
    for (const token of parser.next(lexeme)) if (token.type === "error") continue;
    if (parser.stack.length > CONFIG_NESTING_MAX) return true;
  }
  return false;
}

function parseBounded(text: string): ParsedConfig {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    uniqueKeys: true,
    logLevel: "error",
  });
  const faults = [...document.errors, ...document.warnings];
  if (faults.length > 0) {
    // One fault often repeats at the same place; the first one is the cause.
    const firsts = new Map<number, SyntaxProblem>();
    for (const fault of faults) {
      const [offset] = fault.pos;
      if (firsts.has(offset)) continue;
      const { line, col } = lines.linePos(offset);
      const message = describeFault(fault.code, fault.message);
      firsts.set(offset, { line, column: col, message });
    }
    return { ok: false, problems: [...firsts.values()].slice(0, SYNTAX_PROBLEMS_MAX) };
  }
  const twice = repeatedKeys(document).map((offset): SyntaxProblem => {
    const { line, col } = lines.linePos(offset);
    return { line, column: col, message: KEY_TWICE };
  });
  if (twice.length > 0) return { ok: false, problems: twice.slice(0, SYNTAX_PROBLEMS_MAX) };
  const value: unknown = document.toJS({ maxAliasCount: CONFIG_ALIASES_MAX });
  const locate = (path: ConfigPath): Located => {
    const { offset, exact } = offsetOf(document, path);
    const { line, col } = lines.linePos(offset);
    // An empty document has no line yet.
    return { line: Math.max(1, line), column: Math.max(1, col), exact };
  };
  return { ok: true, document: { value, locate } };
}

/**
 * Offsets of keys that are one key as plain values, although the parser tells them apart: `1` beside
 * `"1"`, or an alias of another key. The later one would silently win.
 */
function repeatedKeys(document: Document.Parsed): number[] {
  const offsets: number[] = [];
  visit(document, {
    Map: (_, { items }) => {
      const seen = new Set<string>();
      for (const { key } of items) {
        const text = keyText(isAlias(key) ? key.resolve(document) : key);
        if (seen.has(text)) offsets.push(startOf(key) ?? 0);
        seen.add(text);
      }
    },
  });
  return offsets;
}

function describeFault(code: string, message: string): string {
  if (code === "DUPLICATE_KEY") return KEY_TWICE;
  if (code === "MULTIPLE_DOCS") return "the file holds more than one YAML document; keep one";
  return `not readable as YAML: ${message}`;
}

/** Walks as far down the path as the file goes and returns the offset of what it reached. */
function offsetOf(
  document: Document.Parsed,
  path: ConfigPath,
): { readonly offset: number; readonly exact: boolean } {
  let node: unknown = document.contents;
  let offset = startOf(node) ?? 0;
  for (const step of path) {
    if (isAlias(node)) node = node.resolve(document);
    if (isMap(node)) {
      const pair = node.items.find((item) => keyText(item.key) === String(step));
      if (pair === undefined) return { offset, exact: false };
      offset = startOf(pair.key) ?? offset;
      node = pair.value;
    } else if (isSeq(node) && typeof step === "number" && step < node.items.length) {
      node = node.items[step];
      offset = startOf(node) ?? offset;
    } else {
      return { offset, exact: false };
    }
  }
  return { offset, exact: true };
}

/** A key as the plain value has it; without a text it is empty. */
function keyText(key: unknown): string {
  const text = isScalar(key) ? String(key.value) : String(key);
  return isScalar(key) && key.value === null ? "" : text;
}

function startOf(node: unknown): number | undefined {
  return isNode(node) ? (node as ParsedNode).range[0] : undefined;
}

function refused(message: string): ParsedConfig {
  return { ok: false, problems: [{ line: 1, column: 1, message }] };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
