// `npm run incident`: replays the incident without and with seeding, under the same load, prints what the
// engines did, and draws it where `--out` says. It needs Envoy and real time, about a minute. Exit code:
// 0 = both runs ended, 1 = one did not, 2 = wrong arguments.

import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { table } from "../sim/command/table.js";
import { incidentSvg } from "./incident-chart.js";
import { mostAtOnce, seedVisits } from "./incident-seeds.js";
import { replayIncident, type IncidentRun } from "./incident.js";

const SECONDS = { least: 10, most: 300, usual: 22 };
const USAGE = `usage: npm run incident -- [--seconds N] [--out file.svg]

  --seconds N   length of each run from the burst on, ${String(SECONDS.least)} to ${String(SECONDS.most)} (${String(SECONDS.usual)})
  --out FILE    draws both runs
`;

const HEADINGS = [
  "",
  "most waiting",
  "answered",
  "refused",
  "engines used",
  "seeds",
  "new owners",
  "seeds at once",
];

/** What one run came to, under the headings. */
function rowOf(run: IncidentRun): string[] {
  const { samples, hot, served } = run;
  const waiting = samples.map(({ loads }) => loads[hot]?.waiting ?? 0);
  const last = samples.at(-1);
  const seeds = seedVisits(run);
  const newOwners = seeds.filter(
    ({ seed }) =>
      seed.outcome === "succeeded" && seed.story.kind === "cache_aware_distribution_seed",
  );
  const figures = [
    waiting.reduce((one, other) => Math.max(one, other), 0),
    last?.answered ?? 0,
    last?.refused ?? 0,
    served.filter((count) => count > 0).length,
    seeds.length,
    newOwners.length,
    mostAtOnce(seeds),
  ];
  return [`seeding ${run.seeding ? "on" : "off"}`, ...figures.map(String)];
}

function usageError(message: string): never {
  process.stderr.write(`${message}\n\n${USAGE}`);
  process.exit(2);
}

function wish(): { readonly seconds: number; readonly out: string | undefined } {
  try {
    const { values } = parseArgs({
      options: {
        seconds: { type: "string", default: String(SECONDS.usual) },
        out: { type: "string" },
      },
    });
    const seconds = Number(values.seconds);
    if (Number.isInteger(seconds) && seconds >= SECONDS.least && seconds <= SECONDS.most) {
      return { seconds, out: values.out };
    }
    const range = `${String(SECONDS.least)} to ${String(SECONDS.most)}`;
    return usageError(`--seconds must be a whole number from ${range}, got ${values.seconds}`);
  } catch (error) {
    return usageError(error instanceof Error ? error.message : String(error));
  }
}

async function main(): Promise<void> {
  const { seconds, out } = wish();
  const runs: IncidentRun[] = [];
  for (const seeding of [false, true]) runs.push(await replayIncident(seeding, seconds * 1_000));
  process.stdout.write(`${table([HEADINGS, ...runs.map(rowOf)]).join("\n")}\n`);
  if (out === undefined) return;
  await writeFile(out, await incidentSvg(runs));
  process.stdout.write(`drawn in ${out}\n`);
}

try {
  await main();
  // Connections that are kept for the next request would hold the process up.
  process.exit(0);
} catch (error) {
  process.stderr.write(
    `${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  );
  process.exit(1);
}
