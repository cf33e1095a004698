// CPU time of processes, and the arithmetic of repeated measurements.

import { readdirSync, readFileSync } from "node:fs";

/** Clock ticks per second of /proc/<pid>/stat; 100 on every Linux this runs on. */
const TICKS_PER_SECOND = 100;

/** The fields of /proc/<pid>/stat from the third one on; undefined when the process is gone. */
function statOf(pid: number): readonly string[] | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${String(pid)}/stat`, "utf8");
  } catch {
    return undefined;
  }
  // The command's name may hold blanks; the fields are counted behind its closing bracket.
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

/** CPU time of a process so far, user and system, in microseconds. Linux only. */
export function cpuMicros(pid: number): number {
  const fields = statOf(pid);
  if (fields === undefined) throw new Error(`process ${String(pid)} is gone`);
  return ((Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND) * 1_000_000;
}

/** A process and all its descendants, as they are now. */
export function processTree(root: number): readonly number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    const parent = Number.isInteger(pid) ? statOf(pid)?.[1] : undefined;
    if (parent === undefined) continue;
    children.set(Number(parent), [...(children.get(Number(parent)) ?? []), pid]);
  }
  const tree = [root];
  for (const pid of tree) tree.push(...(children.get(pid) ?? []));
  return tree;
}

/** NaN for no values. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The value below which `part` (0 to 1) of the values lie, between two of them where it falls so. */
export function quantile(values: readonly number[], part: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * part;
  const lower = sorted[Math.floor(at)] ?? NaN;
  const upper = sorted[Math.ceil(at)] ?? NaN;
  return lower + (upper - lower) * (at - Math.floor(at));
}
