// On what was measured? Figures of one machine say little about another; the ratios say more.

import { cpus, loadavg, release, totalmem, type } from "node:os";
import { envoyBinary, ENVOY_VERSION } from "../../envoy/demo/envoy-binary.mjs";
import { runCommand } from "./cache.js";
import type { Print } from "./print.js";

const GIGABYTE = 1_073_741_824;

/** Prints date, machine and versions; `loadGenerator` in its own words. */
export async function printMachine(print: Print, loadGenerator: string): Promise<void> {
  const { stdout } = await runCommand(await envoyBinary(), ["--version"], { limitMs: 20_000 });
  const envoy = /\/(\d+\.\d+\.\d+)\//.exec(stdout)?.[1] ?? ENVOY_VERSION;
  const memory = `${(totalmem() / GIGABYTE).toFixed(0)} GiB`;
  const model = cpus()[0]?.model ?? "unknown CPU";
  print(`${new Date().toISOString().slice(0, 10)}, ${String(cpus().length)} x ${model}, ${memory}`);
  print(
    `${type()} ${release()}, node ${process.version}, Envoy ${envoy} with one worker thread, ` +
      loadGenerator,
  );
  print(`load average at the start ${(loadavg()[0] ?? 0).toFixed(2)}`);
}
