// What is measured side by side: Envoy alone, Envoy with a server that decides nothing, Envoy with Weir
// over one or several transports, and other gateways where they are asked for. All stand in front of the
// same workers; only one of them is under load at a time.

import { fullConfig } from "./full-config.js";
import { PEERS, installPeer, startPeer } from "./peers.js";
import type { Print } from "./print.js";
import type { Gateway, Processes } from "./processes.js";

export interface Target {
  readonly title: string;
  /** Where requests are sent. */
  readonly port: number;
  /** Envoy in front of the server, or all there is. */
  readonly envoyPid?: number;
  /** What is not Envoy. */
  readonly serverPid?: number;
  /** The bars are Weir's. */
  readonly weir: boolean;
}

/** The first one is Envoy alone, to which the others are compared. */
export type Targets = readonly [plain: Target, ...others: Target[]];

export interface TargetOptions {
  /** Values of `listen.transport`, each an Envoy and a Weir of its own; empty: the shipped one. */
  readonly transports: readonly string[];
  readonly peers: boolean;
}

export async function startTargets(
  processes: Processes,
  workers: readonly string[],
  { transports, peers }: TargetOptions,
  print: Print,
): Promise<Targets> {
  const sketch = fullConfig(workers);
  const plain = await processes.plainEnvoy(sketch);
  const empty = await processes.emptyGateway(sketch);
  const others: Target[] = [gatewayTarget("Envoy + empty server", empty, false)];
  for (const transport of transports.length === 0 ? [undefined] : transports) {
    const title = transport === undefined ? "Envoy + Weir" : `Envoy + Weir (${transport})`;
    others.push(gatewayTarget(title, await processes.gateway(sketch, { transport }), true));
  }
  if (peers) others.push(...(await startPeers(processes, workers, print)));
  const alone = { title: "Envoy alone", port: plain.port, envoyPid: plain.process.pid };
  return [{ ...alone, weir: false }, ...others];
}

function gatewayTarget(
  title: string,
  { envoy, weir: { pid } }: Pick<Gateway, "envoy" | "weir">,
  weir: boolean,
): Target {
  return { title, port: envoy.port, envoyPid: envoy.process.pid, serverPid: pid, weir };
}

/** Those that can be installed and started here; for the others, the reason is printed. */
async function startPeers(
  processes: Processes,
  workers: readonly string[],
  print: Print,
): Promise<readonly Target[]> {
  const started: Target[] = [];
  for (const peer of PEERS) {
    const program = await installPeer(peer);
    if (typeof program !== "string") {
      print(`${peer.name}: not measured, it cannot be installed: ${program.problem}`);
      continue;
    }
    print(`${peer.name} ${peer.version}, ${program}`);
    for (const policy of peer.policies) {
      const title = `${peer.name}, ${policy}`;
      const running = await startPeer(processes, { peer, program, policy, workers });
      if ("problem" in running)
        print(`${title}: not measured, it does not start: ${running.problem}`);
      else started.push({ title, port: running.port, serverPid: running.pid, weir: false });
    }
  }
  return started;
}
