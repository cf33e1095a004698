// Rules that need more than one value: what must be unique, what must fit into what, what needs
// something else to be on. Each rule reads the sound part of the file only and reports the place a
// person would change first, naming the other place in the message.

import type { ListenAddress } from "../../core/model/config.js";
import { isLocal, readListenAddress } from "./addresses.js";
import type { Draft } from "./draft.js";
import type { ConfigPath, Finding } from "./problem.js";
import { checkAdaptiveCapacity } from "./rules-adaptive-admission.js";
import { checkCredits } from "./rules-credits.js";
import { checkFairShare } from "./rules-fair-share.js";
import { checkScheduler } from "./rules-scheduler.js";
import { checkSeeding } from "./rules-seeding.js";
import { checkSelection } from "./rules-selection.js";
import { checkModels, checkWorkers } from "./rules-workers.js";

/** Every broken rule of a draft. */
export function checkRules(draft: Draft): Finding[] {
  return [
    ...checkWorkers(draft),
    ...checkModels(draft),
    ...checkTrust(draft),
    ...checkScheduler(draft),
    ...checkFairShare(draft),
    ...checkAdaptiveCapacity(draft),
    ...checkSelection(draft),
    ...checkCredits(draft),
    ...checkSeeding(draft),
    ...checkHealth(draft),
    ...checkListeners(draft),
    ...checkTransport(draft),
  ];
}

function checkTrust({ trust }: Draft): Finding[] {
  if (trust?.prefer_tenant_id !== true || trust.tenant_id !== false) return [];
  const message =
    "trust.prefer_tenant_id is on and trust.tenant_id is off; " +
    "turn trust.tenant_id on, or trust.prefer_tenant_id off";
  return [{ path: ["trust", "prefer_tenant_id"], message }];
}

function checkHealth({ health }: Draft): Finding[] {
  const interval = health?.interval_secs;
  const timeout = health?.timeout_secs;
  if (interval === undefined || timeout === undefined || timeout < interval) return [];
  const message = `must be below health.interval_secs = ${String(interval)}, got ${String(timeout)}`;
  return [{ path: ["health", "timeout_secs"], message }];
}

function checkTransport({ listen }: Draft): Finding[] {
  const address = readListenAddress(listen?.ext_proc ?? "");
  if (listen?.transport !== "h2c" || address === undefined || isLocal(address)) return [];
  const message =
    "h2c is made for one trusted peer: listen.ext_proc must be a unix socket or a loopback address, " +
    `got ${listen.ext_proc ?? ""}; or take auto, http2 or grpc_js`;
  return [{ path: ["listen", "transport"], message }];
}

interface Listener {
  readonly path: ConfigPath;
  readonly name: string;
  readonly address: ListenAddress;
}

function checkListeners(draft: Draft): Finding[] {
  const { envoy } = draft;
  const weir = [
    listener(["listen", "ext_proc"], draft.listen?.ext_proc),
    listener(["admin", "listen"], draft.admin?.listen),
  ];
  const doors = [
    listener(["envoy", "port"], hostPort(envoy?.address, envoy?.port)),
    listener(["envoy", "admin_port"], hostPort(envoy?.admin_address, envoy?.admin_port)),
  ];
  // With a target of its own Envoy runs on another host, or in another container.
  const hosts = envoy?.ext_proc_target === undefined ? [[...weir, ...doors]] : [weir, doors];
  const problems: Finding[] = [];
  for (const host of hosts) {
    const seen: Listener[] = [];
    for (const next of host) {
      if (next === undefined) continue;
      const other = seen.find((earlier) => collide(earlier.address, next.address));
      if (other !== undefined) {
        problems.push({ path: next.path, message: `is the address of ${other.name} as well` });
      }
      seen.push(next);
    }
  }
  return problems;
}

function listener(path: readonly string[], text: string | undefined): Listener | undefined {
  const address = text === undefined ? undefined : readListenAddress(text);
  return address === undefined ? undefined : { path, name: path.join("."), address };
}

function hostPort(host: string | undefined, port: number | undefined): string | undefined {
  if (host === undefined || port === undefined) return undefined;
  return host.includes(":") ? `[${host}]:${String(port)}` : `${host}:${String(port)}`;
}

/** True when the operating system would refuse the second of two listeners. */
function collide(a: ListenAddress, b: ListenAddress): boolean {
  if (a.kind === "unix" || b.kind === "unix" || a.port !== b.port) return false;
  return plainHost(a.host) === plainHost(b.host) || isEverywhere(a.host) || isEverywhere(b.host);
}

function plainHost(host: string): string {
  return host === "localhost" ? "127.0.0.1" : host;
}

function isEverywhere(host: string): boolean {
  return host === "0.0.0.0" || host === "::";
}
