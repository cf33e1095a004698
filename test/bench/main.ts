// The benchmarks, by name: `npm run bench` runs them all, `npm run bench -- noisy` (or `--only noisy`)
// one of them. Figures of one machine say little; the ratios and shares are what to read. Nothing here
// asserts a bar.

import { parseArgs } from "node:util";
import { startProcess } from "../support/process.js";
import { benchCodec } from "./codec.js";
import { benchGateway } from "./gateway.js";
import { printMachine } from "./machine.js";
import { benchNoisy } from "./noisy.js";
import { print, type Bench } from "./print.js";
import type { Pace } from "./rounds.js";
import { compiled } from "./processes.js";
import { benchProfile } from "./profile.js";
import { benchSelection } from "./selection.js";
import { benchStall } from "./stall.js";
import { WORKLOADS } from "./workloads.js";
import { findWrk, type Wrk } from "./wrk.js";

/** All but those with Envoy under full load, which have options of their own. */
const BENCHES: Readonly<Record<string, Bench>> = {
  scheduler: coreCosts("scheduler"),
  "fair-share": coreCosts("fair-share"),
  noisy: benchNoisy,
  prefixes: coreCosts("prefixes"),
  selection: benchSelection,
  stall: benchStall,
  profile: benchProfile,
};
const LOADS = WORKLOADS.map(({ name }) => name);
const NAMES = ["gateway", ...LOADS, "codec", ...Object.keys(BENCHES)];

/** Code of Weir is compiled for speed only after thousands of requests. */
const FULL: Pace = { rounds: 5, seconds: 4, warmUpSeconds: 8 };
const SMOKE: Pace = { rounds: 1, seconds: 1, warmUpSeconds: 0 };
const ROUNDS_MAX = 1_000;
const SECONDS_MAX = 3_600;

const USAGE = `usage: npm run bench -- [NAME ...] [options]

  --only NAME        the same as NAME; can be repeated, commas between names are fine
  --peers            measure other gateways in the same rounds; installs them into the cache folder
  --transport NAME   a value of listen.transport; can be repeated, to compare them
  --rounds N         alternating rounds of gateway and codec, 1 to ${String(ROUNDS_MAX)} (${String(FULL.rounds)})
  --seconds N        length of each measurement of gateway and codec, 1 to ${String(SECONDS_MAX)} (${String(FULL.seconds)})
  --smoke            everything once and briefly

names: ${NAMES.join(", ")}; gateway is ${LOADS.join(", ")}
`;

/** Wrong arguments; the message says which. */
class UsageError extends Error {
  override readonly name = "UsageError";
}

interface Arguments {
  readonly names: ReadonlySet<string>;
  readonly pace: Pace;
  readonly smoke: boolean;
  readonly peers: boolean;
  readonly transports: readonly string[];
}

function readArguments(argv: readonly string[]): Arguments {
  const { values, positionals } = parse(argv);
  const given = splitAll([...positionals, ...values.only]);
  for (const name of given) {
    if (!NAMES.includes(name)) {
      throw new UsageError(`no benchmark "${name}"; there are: ${NAMES.join(", ")}`);
    }
  }
  const names = new Set(given.length === 0 ? NAMES : given);
  if (names.delete("gateway")) for (const name of LOADS) names.add(name);
  const { rounds, seconds, warmUpSeconds } = values.smoke ? SMOKE : FULL;
  return {
    names,
    pace: {
      rounds: wholeNumber("--rounds", values.rounds, rounds, ROUNDS_MAX),
      seconds: wholeNumber("--seconds", values.seconds, seconds, SECONDS_MAX),
      warmUpSeconds,
    },
    smoke: values.smoke,
    peers: values.peers,
    transports: splitAll(values.transport),
  };
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        only: { type: "string", multiple: true, default: [] },
        transport: { type: "string", multiple: true, default: [] },
        rounds: { type: "string" },
        seconds: { type: "string" },
        smoke: { type: "boolean", default: false },
        peers: { type: "boolean", default: false },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

const splitAll = (words: readonly string[]): readonly string[] =>
  words.flatMap((word) => word.split(",")).filter((word) => word !== "");

function wholeNumber(flag: string, text: string | undefined, absent: number, max: number): number {
  if (text === undefined) return absent;
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw new UsageError(`${flag} must be a whole number from 1 to ${String(max)}, got ${text}`);
}

/** A benchmark of the core, in a process of its own that runs compiled code. */
function coreCosts(name: string): Bench {
  return async (print, smoke) => {
    const args = [...compiled("test/bench/core-costs.ts"), name, String(smoke)];
    const child = startProcess(process.execPath, args, { name });
    if ((await child.ended).code !== 0) throw new Error(child.describe());
    print(child.stdout.trimEnd());
  };
}

/** wrk, or undefined where a brief run may do without it. */
async function loadGenerator(smoke: boolean): Promise<Wrk | undefined> {
  try {
    return await findWrk();
  } catch (error) {
    if (!smoke) throw error;
    print(`Without wrk, our own client loads JSON too. ${String(error)}`);
    return undefined;
  }
}

async function main(argv: readonly string[]): Promise<void> {
  const { names, pace, smoke, peers, transports } = readArguments(argv);
  const workloads = WORKLOADS.filter(({ name }) => names.has(name));
  const json = names.has("codec") || workloads.some(({ unit }) => unit === "request");
  const wrk = json ? await loadGenerator(smoke) : undefined;
  await printMachine(print, wrk === undefined ? "own load client" : `wrk ${wrk.version}`);
  if (workloads.length > 0) {
    await benchGateway(print, { workloads, pace, wrk, peers, transports });
  }
  if (names.has("codec")) await benchCodec(print, pace, wrk);
  for (const [name, bench] of Object.entries(BENCHES)) {
    if (names.has(name)) await bench(print, smoke);
  }
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`${error.message}\n\n${USAGE}`);
  process.exitCode = 2;
}
