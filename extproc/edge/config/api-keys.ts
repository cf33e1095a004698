// Can the keys that the configuration names be read, those of the engines and the allocator's? Asked once
// before the start, so that a forgotten variable stops it with its name instead of showing later as workers
// without telemetry. Reading comes in as an argument; no key is kept here. A place that several workers
// share is read and reported once.

import type { ApiKeySource, CreditsConfig, WorkerConfig } from "../../core/model/config.js";

/** Reads one key; a problem names the place and never the key. */
export type ReadKey = (
  source: ApiKeySource,
) => Promise<{ readonly kind: "key" } | { readonly kind: "problem"; readonly problem: string }>;

/** One line per place that holds no usable key, in the order of the workers. */
export async function apiKeyProblems(
  workers: readonly WorkerConfig[],
  read: ReadKey,
): Promise<string[]> {
  const places = new Map<string, { readonly source: ApiKeySource; readonly users: number[] }>();
  for (const [index, { api_key: source }] of workers.entries()) {
    if (source === undefined) continue;
    const key = JSON.stringify(source);
    const place = places.get(key);
    if (place === undefined) places.set(key, { source, users: [index] });
    else place.users.push(index);
  }
  const problems: string[] = [];
  for (const { source, users } of places.values()) {
    const result = await read(source);
    if (result.kind === "key") continue;
    const others = users.length === 1 ? "" : ` (and ${String(users.length - 1)} more)`;
    const where = `workers[${String(users[0])}].api_key_${source.kind}${others}`;
    problems.push(`${where}: ${result.problem}`);
  }
  return problems;
}

/** The line for the allocator's key, if there should be one and is not. */
export async function serviceKeyProblems(
  { service_key: source }: Pick<CreditsConfig, "service_key">,
  read: ReadKey,
): Promise<string[]> {
  if (source === undefined) return [];
  const result = await read(source);
  return result.kind === "key" ? [] : [`credits.service_key_${source.kind}: ${result.problem}`];
}
