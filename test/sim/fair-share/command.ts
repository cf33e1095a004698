// What `npm run simulate` does with its arguments: lists the scenarios, or simulates one of them on
// virtual time, prints what each tenant got, and draws it.

import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { chartSvg } from "./chart.js";
import { reportLines, simulatePool } from "./report.js";
import { SCENARIOS, type Scenario } from "./scenarios.js";

const MINUTE_MS = 60_000;
const DEFAULT_MINUTES = 60;
/** A week; the waits of all requests are kept for their quantiles. */
const MINUTES_MAX = 10_080;
const SEEDS = 2 ** 32;
const USAGE =
  "usage: npm run simulate -- --scenario <name> [--seed n] [--minutes m] [--out file.svg]";

interface Wish {
  readonly name: string;
  readonly scenario: Scenario;
  readonly seed: number;
  readonly minutes: number;
  readonly out: string | undefined;
}

function scenarioList(): string {
  const width = Math.max(...Object.keys(SCENARIOS).map((name) => name.length));
  const rows = Object.entries(SCENARIOS).map(
    ([name, { title }]) => `  ${name.padEnd(width)}  ${title}`,
  );
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

/** Undefined when only the list of scenarios is wanted; throws for wrong arguments. */
function readWish(args: string[]): Wish | undefined {
  const { values } = parseArgs({
    args,
    options: {
      scenario: { type: "string" },
      seed: { type: "string" },
      minutes: { type: "string" },
      out: { type: "string" },
    },
  });
  const { scenario: name, out } = values;
  if (name === undefined) return undefined;
  const scenario = Object.hasOwn(SCENARIOS, name) ? SCENARIOS[name] : undefined;
  if (scenario === undefined) throw new Error(`--scenario: "${name}" is unknown`);
  return {
    name,
    scenario,
    seed: numberOf("--seed", values.seed, 1, { from: 0, to: SEEDS - 1, whole: true }),
    minutes: numberOf("--minutes", values.minutes, DEFAULT_MINUTES, {
      from: 1,
      to: MINUTES_MAX,
      whole: false,
    }),
    out,
  };
}

/** Where the command writes its lines. */
export interface Output {
  readonly print: (text: string) => void;
  readonly complain: (text: string) => void;
}

async function simulate({ name, scenario, seed, minutes, out }: Wish, to: Output): Promise<void> {
  const { title, shows, pools } = scenario;
  to.print(`${name}: ${title}, ${String(minutes)} virtual minutes, seed ${String(seed)}`);
  to.print(`${shows}\n`);
  const lengthMs = minutes * MINUTE_MS;
  const reports = pools(lengthMs).map((plan) => simulatePool(plan, seed, lengthMs));
  for (const report of reports) to.print(`${reportLines(report).join("\n")}\n`);
  if (out === undefined) {
    to.print("--out file.svg draws it");
    return;
  }
  writeFileSync(out, await chartSvg(title, `${shows}; seed ${String(seed)}`, reports));
  to.print(`drawn in ${out}`);
}

/** Runs the command; its exit code, 2 for wrong arguments and a file that cannot be written. */
export async function runSimulate(args: string[], to: Output): Promise<0 | 2> {
  try {
    const wish = readWish(args);
    if (wish === undefined) to.print(`${USAGE}\n\n${scenarioList()}`);
    else await simulate(wish, to);
    return 0;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    to.complain(`${reason}\n\n${USAGE}\n\n${scenarioList()}`);
    return 2;
  }
}
