// What decisions of the core cost, in a process of its own that runs compiled code:
// `core-costs.js <benchmark> <smoke: true|false>`.

import { benchFairShare } from "./fair-share.js";
import { benchPrefixes } from "./prefixes.js";
import { print, type Bench } from "./print.js";
import { benchScheduler } from "./scheduler.js";

const BENCHES: Readonly<Record<string, Bench>> = {
  scheduler: benchScheduler,
  "fair-share": benchFairShare,
  prefixes: benchPrefixes,
};

const [name = "", smoke] = process.argv.slice(2);
await BENCHES[name]?.(print, smoke === "true");
