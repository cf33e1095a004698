// The benchmarks, by name: `npm run bench` runs them all, `npm run bench -- noisy` one of them.
// Figures of one machine say little; the ratios and shares are what to read. Nothing here asserts a
// bar.

import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { benchFairShare } from "./fair-share.js";
import { benchGateway } from "./gateway.js";
import { benchNoisy } from "./noisy.js";
import { benchPrefixes } from "./prefixes.js";
import { print, type Bench } from "./print.js";
import { benchScheduler } from "./scheduler.js";
import { benchProfile } from "./profile.js";
import { benchSelection } from "./selection.js";
import { benchStall } from "./stall.js";

const BENCHES: Readonly<Record<string, Bench>> = {
  gateway: benchGateway,
  scheduler: benchScheduler,
  "fair-share": benchFairShare,
  noisy: benchNoisy,
  prefixes: benchPrefixes,
  selection: benchSelection,
  stall: benchStall,
  profile: benchProfile,
};

async function main(): Promise<void> {
  const { values: flags, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      smoke: { type: "boolean", default: false },
      peers: { type: "boolean", default: false },
    },
  });
  const names = positionals.length === 0 ? Object.keys(BENCHES) : positionals;
  const benches = names.map((name) => {
    const bench = Object.hasOwn(BENCHES, name) ? BENCHES[name] : undefined;
    if (bench !== undefined) return bench;
    throw new Error(`no benchmark "${name}"; there are: ${Object.keys(BENCHES).join(", ")}`);
  });
  if (flags.peers) print("No peers are measured in this version.");
  print(`node ${process.version}, ${String(cpus().length)} x ${cpus()[0]?.model ?? "unknown CPU"}`);
  for (const bench of benches) await bench(print, flags.smoke);
}

await main();
