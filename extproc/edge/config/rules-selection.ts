// Rules of how workers are chosen: a cooldown needs something to cool down, ownership by events needs
// events, and these need an engine that publishes them and a port for each of its ranks. One port read
// for two workers would make each the owner of what the other holds, so ports are compared across them.

import type { TcpEndpoint } from "./addresses.js";
import { readTcpEndpoint } from "./addresses.js";
import { KV_EVENTS_DEFAULTS } from "./defaults.js";
import type { Draft } from "./draft.js";
import { formatPath } from "./problem.js";
import type { ConfigPath, Finding } from "./problem.js";
import { aliasOwners } from "./rules-workers.js";
import { listWorkers } from "./worker-list.js";

type WorkerDraft = NonNullable<NonNullable<Draft["workers"]>[number]>;

const PORT_MAX = 65_535;

/** Engines whose events have the format that is read; one of an unknown kind may be such. */
const PUBLISHERS: readonly string[] = ["vllm", "sglang"];

/** Most workers a message lists. */
const LISTED_WORKERS_MAX = 8;

/** Characters of a prompt that are hashed before it waits or runs: more would hold up other requests. */
export const PREFIX_CHARS_MAX = 262_144;

/** Every broken rule. */
export function checkSelection(draft: Draft): Finding[] {
  return [
    ...checkCooldown(draft),
    ...checkPrefixLength(draft),
    ...checkPublishers(draft),
    ...checkPorts(draft),
    ...checkOwnership(draft),
  ];
}

function checkCooldown({ selection }: Draft): Finding[] {
  const cooldown = selection?.cache_owner_spill_cooldown_secs ?? 0;
  if (cooldown === 0 || selection?.max_cached_owners_per_prefix !== 0) return [];
  const message =
    "must be 0 while selection.max_cached_owners_per_prefix is 0, because nothing spreads then, " +
    `got ${String(cooldown)}`;
  return [{ path: ["selection", "cache_owner_spill_cooldown_secs"], message }];
}

function checkPrefixLength({ selection }: Draft): Finding[] {
  const { block_chars: chars, max_prefix_blocks: blocks } = selection ?? {};
  if (typeof chars !== "number" || typeof blocks !== "number") return [];
  if (chars * blocks <= PREFIX_CHARS_MAX) return [];
  const message =
    `times selection.block_chars (${String(chars)}) must be at most ` +
    `${String(PREFIX_CHARS_MAX)} characters, got ${String(blocks)}`;
  return [{ path: ["selection", "max_prefix_blocks"], message }];
}

function checkPublishers({ workers }: Draft): Finding[] {
  const problems: Finding[] = [];
  for (const [index, worker] of (workers ?? []).entries()) {
    const engine = worker?.engine;
    if (worker === undefined || !("kv_events" in worker) || engine === undefined) continue;
    if (PUBLISHERS.includes(engine)) continue;
    const message =
      `must be absent while engine is ${engine}; ` +
      `only events of ${PUBLISHERS.join(" and ")} can be read`;
    problems.push({ path: ["workers", index, "kv_events"], message });
  }
  return problems;
}

/** The ports of all ranks of one endpoint. */
interface Ports {
  readonly path: ConfigPath;
  readonly host: string;
  readonly first: number;
  readonly last: number;
  /** Beginning of the topics that are read there; undefined = everything, as with a replay. */
  readonly topic: string | undefined;
}

function checkPorts({ workers }: Draft): Finding[] {
  const problems: Finding[] = [];
  const seen = new Map<string, Ports[]>();
  for (const [index, worker] of (workers ?? []).entries()) {
    const feed = worker?.kv_events;
    if (feed === undefined) continue;
    // Whatever was meant by a number that was refused, it is at least one.
    const ranks = feed.ranks ?? KV_EVENTS_DEFAULTS.ranks;
    for (const key of ["endpoint", "replay_endpoint"] as const) {
      const address = addressOf(feed[key]);
      if (address === undefined) continue;
      const path = ["workers", index, "kv_events", key];
      const last = address.port + ranks - 1;
      if (last > PORT_MAX) {
        problems.push({ path, message: tooHigh(address, ranks) });
        continue;
      }
      const topic = key === "endpoint" ? (feed.topic ?? KV_EVENTS_DEFAULTS.topic) : undefined;
      const ports: Ports = { path, host: address.host, first: address.port, last, topic };
      const sameHost = seen.get(ports.host) ?? [];
      const other = sameHost.find((earlier) => collide(earlier, ports));
      if (other !== undefined) problems.push({ path, message: twice(ports, other) });
      seen.set(ports.host, [...sameHost, ports]);
    }
  }
  return problems;
}

function addressOf(text: string | undefined): TcpEndpoint | undefined {
  return text === undefined ? undefined : readTcpEndpoint(text);
}

function tooHigh(address: TcpEndpoint, ranks: number): string {
  return (
    `must have a port of at most ${String(PORT_MAX - ranks + 1)}, because each of ` +
    `${String(ranks)} ranks has one of its own, got ${JSON.stringify(address.text)}`
  );
}

/** True when both read one port, unless topics keep apart what a relay publishes there. */
function collide(a: Ports, b: Ports): boolean {
  if (a.first > b.last || b.first > a.last) return false;
  if (a.topic === undefined || b.topic === undefined) return true;
  return a.topic.startsWith(b.topic) || b.topic.startsWith(a.topic);
}

function twice(ports: Ports, other: Ports): string {
  const shared = String(Math.max(ports.first, other.first));
  return `must be unique, but port ${shared} of ${ports.host} is also one of ${formatPath(other.path)}`;
}

function checkOwnership(draft: Draft): Finding[] {
  const { workers, models } = draft;
  if (workers === undefined) return [];
  const aliases = aliasOwners(draft);
  const problems: Finding[] = [];
  for (const [model, settings] of Object.entries(models ?? {})) {
    if (settings?.ownership !== "events") continue;
    if (workers.some((worker) => mayFeed(worker, model, aliases))) continue;
    problems.push({ path: ["models", model, "ownership"], message: noFeed(model, workers) });
  }
  return problems;
}

/** True when the worker's events tell of the model, or may do so once what was refused is mended. */
function mayFeed(
  worker: WorkerDraft | undefined,
  model: string,
  aliases: ReadonlyMap<string, string>,
): boolean {
  if (worker === undefined) return true;
  if (!("kv_events" in worker)) return false;
  const [first] = worker.models ?? [];
  return first === undefined || (aliases.get(first) ?? first) === model;
}

function noFeed(model: string, workers: NonNullable<Draft["workers"]>): string {
  const needs =
    `events needs kv_events at a worker whose first model is ${JSON.stringify(model)}, ` +
    "the one its events tell of; ";
  const serving = [...workers.entries()]
    .filter(([, worker]) => worker?.models?.includes(model))
    .map(([index]) => index);
  if (serving.length === 0) return `${needs}no worker serves the model`;
  const listed = listWorkers(serving, LISTED_WORKERS_MAX);
  return `${needs}none of those that serve it (${listed}) is one`;
}
