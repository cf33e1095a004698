// What `npm run simulate` does with its arguments: lists the scenarios, or simulates one of them on
// virtual time, prints its figures, and draws it. Whether the drawing can be written is looked at first,
// since a run takes minutes.

import { accessSync, constants, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { parseArgs } from "node:util";
import { FAIR_SHARE_DEMONSTRATIONS } from "../fair-share/demonstrations.js";
import { FEEDBACK_DEMONSTRATIONS } from "../feedback/demonstrations.js";
import type { Demonstration, Demonstrations } from "./demonstration.js";

const MINUTE_MS = 60_000;
const DEFAULT_MINUTES = 60;
/** A week; the waits of all requests are kept for their quantiles. */
const MINUTES_MAX = 10_080;
const SEEDS = 2 ** 32;
const ALL: Demonstrations = { ...FAIR_SHARE_DEMONSTRATIONS, ...FEEDBACK_DEMONSTRATIONS };
const USAGE =
  "usage: npm run simulate -- --scenario <name> [--seed n] [--minutes m] [--out file.svg]";

interface Wish {
  readonly name: string;
  readonly demonstration: Demonstration;
  readonly seed: number;
  readonly minutes: number;
  readonly out: string | undefined;
}

function scenarioList(): string {
  const width = Math.max(...Object.keys(ALL).map((name) => name.length));
  const rows = Object.entries(ALL).map(([name, { title }]) => `  ${name.padEnd(width)}  ${title}`);
  return ["scenarios:", ...rows].join("\n");
}

/** The number of a flag; throws naming what is allowed. */
function numberOf(
  flag: string,
  text: string | undefined,
  fallback: number,
  allowed: { readonly from: number; readonly to: number; readonly whole: boolean },
): number {
  if (text === undefined) return fallback;
  const value = Number(text);
  const { from, to, whole } = allowed;
  const fits = text.trim() !== "" && value >= from && value <= to;
  if (fits && (!whole || Number.isInteger(value))) return value;
  const kind = whole ? "a whole number" : "a number";
  throw new Error(`${flag}: ${kind} from ${String(from)} to ${String(to)}, got "${text}"`);
}

const OPTIONS = {
  scenario: { type: "string" },
  seed: { type: "string" },
  minutes: { type: "string" },
  out: { type: "string" },
} as const;

/** `--minutes -1` as `--minutes=-1`: a number is no flag, and its range says what is wrong with it. */
function withNegativeNumbers(args: readonly string[]): string[] {
  const joined: string[] = [];
  for (const argument of args) {
    const flag = joined.at(-1) ?? "";
    const isValue = /^-[.\d]/.test(argument) && Object.hasOwn(OPTIONS, flag.slice(2));
    if (isValue && flag.startsWith("--")) joined.splice(-1, 1, `${flag}=${argument}`);
    else joined.push(argument);
  }
  return joined;
}

/** Undefined when only the list of scenarios is wanted; throws for wrong arguments. */
function readWish(args: readonly string[]): Wish | undefined {
  const { values, tokens } = parseArgs({
    args: withNegativeNumbers(args),
    options: OPTIONS,
    tokens: true,
  });
  const seen = new Set<string>();
  for (const token of tokens) {
    if (token.kind !== "option") continue;
    if (seen.has(token.name)) throw new Error(`--${token.name}: given twice; keep one of them`);
    seen.add(token.name);
  }
  const { scenario: name, out } = values;
  if (name === undefined) return undefined;
  const demonstration = Object.hasOwn(ALL, name) ? ALL[name] : undefined;
  if (demonstration === undefined) throw new Error(`--scenario: "${name}" is unknown`);
  return {
    name,
    demonstration,
    seed: numberOf("--seed", values.seed, 1, { from: 0, to: SEEDS - 1, whole: true }),
    minutes: numberOf("--minutes", values.minutes, DEFAULT_MINUTES, {
      from: demonstration.minutesMin,
      to: MINUTES_MAX,
      whole: false,
    }),
    out,
  };
}

/** Why a file cannot be written; undefined = it can, as far as one can see before. */
function hindrance(file: string): string | undefined {
  if (file === "") return "the name is empty";
  const folder = dirname(file);
  try {
    const stats = statSync(folder, { throwIfNoEntry: false });
    if (stats === undefined) return `the folder ${folder} does not exist`;
    if (!stats.isDirectory()) return `${folder} is not a folder`;
    const present = statSync(file, { throwIfNoEntry: false });
    if (present?.isDirectory() === true) return "it is a folder";
    accessSync(present === undefined ? folder : file, constants.W_OK);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Where the command writes its lines. */
export interface Output {
  readonly print: (text: string) => void;
  readonly complain: (text: string) => void;
}

const cannotWrite = (file: string, reason: string): string =>
  `--out: cannot write "${file}": ${reason}`;

/** Its exit code, 1 when the drawing cannot be written. */
async function simulate(wish: Wish, to: Output): Promise<0 | 1> {
  const { name, demonstration, seed, minutes, out } = wish;
  const reason = out === undefined ? undefined : hindrance(out);
  if (out !== undefined && reason !== undefined) {
    to.complain(cannotWrite(out, reason));
    return 1;
  }
  const { title, shows } = demonstration;
  to.print(`${name}: ${title}, ${String(minutes)} virtual minutes, seed ${String(seed)}`);
  to.print(`${shows}\n`);
  const { parts, svg } = demonstration.run(seed, minutes * MINUTE_MS);
  for (const lines of parts) to.print(`${lines.join("\n")}\n`);
  if (out === undefined) {
    to.print("--out file.svg draws it");
    return 0;
  }
  const drawing = await svg();
  try {
    writeFileSync(out, drawing);
  } catch (error) {
    to.complain(cannotWrite(out, messageOf(error)));
    return 1;
  }
  to.print(`drawn in ${out}`);
  return 0;
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

/** Runs the command; its exit code: 1 for a file that cannot be written, 2 for wrong arguments. */
export async function runSimulate(args: readonly string[], to: Output): Promise<0 | 1 | 2> {
  let wish: Wish | undefined;
  try {
    wish = readWish(args);
  } catch (error) {
    to.complain(`${messageOf(error)}\n\n${USAGE}\n\n${scenarioList()}`);
    return 2;
  }
  if (wish !== undefined) return simulate(wish, to);
  to.print(`${USAGE}\n\n${scenarioList()}`);
  return 0;
}
