// The one table of control headers: which names exist, which switch of `trust` lets them in, and
// which other gateways' names mean the same. Weir reads by it, and the bootstrap writer strips by
// it, so the two can never disagree. A control whose switch is off is removed by Envoy before the
// route is chosen and ignored by Weir; names that only Weir or another gateway ever writes (route and
// answer headers) are never accepted from a client. The headers of capacity credits are let in exactly
// when credits are on, and whoever does not say that they are has them stripped. Names are lower case.

import type { HeadersConfig, TrustConfig } from "../model/config.js";

/** Names the Envoy cluster of the chosen worker; Envoy routes by it. */
export const ROUTE_HEADER = "x-weir-cluster";
/** Direct peer's address; Envoy overwrites it on every request, so its value is Envoy's word. */
export const PEER_HEADER = "x-weir-peer";

type TrustSwitch =
  | "tenant_id"
  | "request_model"
  | "output_token_estimate"
  | "admission_partition"
  | "target_worker_url"
  | "excluded_worker_urls"
  | "routing_key";

interface ControlRow {
  readonly own: string;
  /** Other gateways' names, in the order in which they are read. */
  readonly aliases: readonly string[];
  /** Who may send it: proxies by a switch or with credits, any client, or nobody. */
  readonly sender: TrustSwitch | "credits" | "client" | "nobody";
  /** A credit names it too: while credits are on it is let in, and read for credits. */
  readonly ofCredits?: true;
}

const CONTROLS = {
  tenant_id: {
    own: "x-weir-tenant-id",
    aliases: [
      "x-smg-tenant-id",
      "x-gateway-inference-fairness-id",
      "x-llm-d-inference-fairness-id",
    ],
    sender: "tenant_id",
  },
  request_model: controlRow("request-model", "request_model"),
  output_token_estimate: controlRow("output-token-estimate", "output_token_estimate"),
  admission_partition: {
    ...controlRow("admission-partition", "admission_partition"),
    ofCredits: true,
  },
  target_worker_url: controlRow("target-worker-url", "target_worker_url"),
  excluded_worker_urls: controlRow("excluded-worker-urls", "excluded_worker_urls"),
  routing_key: controlRow("routing-key", "routing_key"),
  priority: controlRow("priority", "client"),
  capacity_credit: controlRow("capacity-credit", "credits"),
  capacity_credit_generation: controlRow("capacity-credit-generation", "credits"),
  capacity_credit_request_id: controlRow("capacity-credit-request-id", "credits"),
  fair_share_policy_epoch: controlRow("fair-share-policy-epoch", "credits"),
} satisfies Record<string, ControlRow>;

export type Control = keyof typeof CONTROLS;

/** One control as the hot path needs it: the names to read and whether they count at all. */
export interface ControlRule {
  readonly names: readonly string[];
  readonly trusted: boolean;
}

/** Written by gateways into answers or towards endpoints; a request that carries one is forging it. */
const NEVER_ACCEPTED: readonly string[] = [
  "x-weir-error-code",
  "x-weir-preempted",
  "x-smg-error-code",
  "x-smg-preempted",
  "x-smg-target-worker",
  "x-gateway-destination-endpoint",
  "x-gateway-destination-endpoint-served",
  "x-gateway-destination-endpoint-subset",
  "x-gateway-inference-objective",
  "x-gateway-model-name-rewrite",
  "x-llm-d-inference-objective",
  "x-llm-d-model-name-rewrite",
  "x-llm-d-request-dropped-reason",
];

const ROWS: readonly (readonly [Control, ControlRow])[] = Object.entries(CONTROLS) as [
  Control,
  ControlRow,
][];

/** The names to read for one control, own name first; aliases only when `headers.aliases` is on. */
export function namesOf(
  control: Control,
  trust: TrustConfig,
  headers: HeadersConfig,
): readonly string[] {
  const row: ControlRow = CONTROLS[control];
  const own = control === "tenant_id" ? trust.tenant_header_name : row.own;
  return headers.aliases ? [...new Set([own, ...row.aliases])] : [own];
}

/** Names and switch of one control, looked up once at start. */
export function controlRule(
  control: Control,
  trust: TrustConfig,
  headers: HeadersConfig,
): ControlRule {
  const row: ControlRow = CONTROLS[control];
  return { names: namesOf(control, trust, headers), trusted: accepted(row, trust, false) };
}

/** The same for a control as part of a credit: it counts exactly when credits are on. */
export function creditRule(
  control: Control,
  trust: TrustConfig,
  headers: HeadersConfig,
  creditsOn: boolean,
): ControlRule {
  return { names: namesOf(control, trust, headers), trusted: creditsOn };
}

/**
 * Names Envoy removes before it chooses the route, sorted and unique: each control nobody may send,
 * each alias that is not read, always the route header. The priority header stays (clients may send
 * it), and the peer header is overwritten instead.
 */
export function earlyStrip(
  trust: TrustConfig,
  headers: HeadersConfig,
  creditsOn = false,
): readonly string[] {
  const names = new Set<string>();
  for (const [control, row] of ROWS) addAllNames(names, control, row, trust);
  for (const [control, row] of ROWS) {
    if (!accepted(row, trust, creditsOn) && !(creditsOn && row.ofCredits === true)) continue;
    for (const name of namesOf(control, trust, headers)) names.delete(name);
  }
  for (const name of [ROUTE_HEADER, ...NEVER_ACCEPTED]) names.add(name);
  names.delete(PEER_HEADER);
  return [...names].sort();
}

/**
 * Names Weir removes before the request goes to a worker, sorted and unique: every control with all
 * its aliases, the peer header, and `accept-encoding` (usage is read from the answer, so the answer
 * must come plain). Not the route header: Envoy still needs it.
 */
export function removeUpstream(trust: TrustConfig, headers: HeadersConfig): readonly string[] {
  const names = new Set<string>([PEER_HEADER, "accept-encoding", ...NEVER_ACCEPTED]);
  for (const [control, row] of ROWS) {
    addAllNames(names, control, row, trust);
    for (const name of namesOf(control, trust, headers)) names.add(name);
  }
  names.delete(ROUTE_HEADER);
  return [...names].sort();
}

function addAllNames(
  names: Set<string>,
  control: Control,
  row: ControlRow,
  trust: TrustConfig,
): void {
  names.add(row.own);
  for (const alias of row.aliases) names.add(alias);
  if (control === "tenant_id") names.add(trust.tenant_header_name);
}

function accepted({ sender }: ControlRow, trust: TrustConfig, creditsOn: boolean): boolean {
  if (sender === "client") return true;
  if (sender === "credits") return creditsOn;
  return sender !== "nobody" && trust[sender];
}

function controlRow<Sender extends ControlRow["sender"]>(
  rest: string,
  sender: Sender,
): { readonly own: string; readonly aliases: readonly string[]; readonly sender: Sender } {
  return { own: `x-weir-${rest}`, aliases: [`x-smg-${rest}`], sender };
}
