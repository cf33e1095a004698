// What a request says about the capacity credit it brings: the token, and the seven facts the credit is
// bound to. A request that sends the header of the token at all, even a blank one, means to bring a
// credit; then everything else must be there and readable, or the request is refused. It is never let
// through as an ordinary one, because its sender has taken a slot for it. Nobody reads these headers while
// credits are off, or from a peer that is no trusted proxy. The tenant is not among them: it is who the
// request comes from.

import type { CreditsConfig, HeadersConfig, TrustConfig } from "../model/config.js";
import type { HeaderSource } from "../model/headers.js";
import { creditRule, type Control, type ControlRule } from "./control-headers.js";
import { parseEstimate } from "./estimate.js";
import { readTrusted, type RefusedReason } from "./trusted-header.js";

export interface PresentedCredit {
  readonly kind: "presented";
  readonly token: string;
  readonly generation: string;
  readonly policyEpoch: bigint;
  /** As written; it may name no partition. */
  readonly partition: string;
  /** As written; it may be an alias, or no model at all. */
  readonly model: string;
  readonly requestId: string;
  readonly estimateTokens: number;
}

export type CreditReading =
  | { readonly kind: "absent" }
  | {
      readonly kind: "refused";
      readonly header: string;
      readonly reason: RefusedReason | "missing";
    }
  | PresentedCredit;

type CreditControl =
  | "capacity_credit"
  | "capacity_credit_generation"
  | "fair_share_policy_epoch"
  | "admission_partition"
  | "request_model"
  | "capacity_credit_request_id"
  | "output_token_estimate";

export type CreditRules = Readonly<Record<CreditControl, ControlRule>>;

/** Largest policy epoch: an unsigned 64-bit integer. */
export const POLICY_EPOCH_MAX = 2n ** 64n - 1n;

const ABSENT = { kind: "absent" } as const;
const DECIMAL = /^[0-9]{1,20}$/;

/** Looks every name up once. */
export function creditRules(
  credits: CreditsConfig,
  trust: TrustConfig,
  headers: HeadersConfig,
): CreditRules {
  const creditsOn = credits.generation !== undefined;
  const rule = (control: Control): ControlRule => creditRule(control, trust, headers, creditsOn);
  return {
    capacity_credit: rule("capacity_credit"),
    capacity_credit_generation: rule("capacity_credit_generation"),
    fair_share_policy_epoch: rule("fair_share_policy_epoch"),
    admission_partition: rule("admission_partition"),
    request_model: rule("request_model"),
    capacity_credit_request_id: rule("capacity_credit_request_id"),
    output_token_estimate: rule("output_token_estimate"),
  };
}

/** Reads the credit of a request; the first header that cannot be read is named. */
export function readCredit(
  rules: CreditRules,
  headers: HeaderSource,
  peerIsProxy: boolean,
): CreditReading {
  const token = readTrusted(rules.capacity_credit, headers, peerIsProxy);
  if (token.kind === "absent") return ABSENT;
  const reader = new Fields(rules, headers, peerIsProxy);
  const presented: PresentedCredit = {
    kind: "presented",
    token: reader.text("capacity_credit"),
    generation: reader.text("capacity_credit_generation"),
    policyEpoch: reader.parsed("fair_share_policy_epoch", parseEpoch) ?? 0n,
    partition: reader.text("admission_partition"),
    model: reader.text("request_model"),
    requestId: reader.text("capacity_credit_request_id"),
    estimateTokens: reader.parsed("output_token_estimate", parseEstimate) ?? 0,
  };
  return reader.refused ?? presented;
}

/** Reads one field after the other and keeps the first refusal. */
class Fields {
  readonly #rules: CreditRules;
  readonly #headers: HeaderSource;
  readonly #peerIsProxy: boolean;
  refused: Extract<CreditReading, { readonly kind: "refused" }> | undefined;

  constructor(rules: CreditRules, headers: HeaderSource, peerIsProxy: boolean) {
    this.#rules = rules;
    this.#headers = headers;
    this.#peerIsProxy = peerIsProxy;
  }

  /** The trimmed value; empty when it is refused. */
  text(control: CreditControl): string {
    const rule = this.#rules[control];
    const reading = readTrusted(rule, this.#headers, this.#peerIsProxy);
    if (reading.kind === "value") return reading.value;
    const [own = control] = rule.names;
    if (reading.kind === "absent") this.#refuse(own, "missing");
    else this.#refuse(reading.header, reading.reason);
    return "";
  }

  parsed<Value>(
    control: CreditControl,
    parse: (text: string) => Value | undefined,
  ): Value | undefined {
    const text = this.text(control);
    const value = parse(text);
    const [own = control] = this.#rules[control].names;
    if (value === undefined) this.#refuse(own, "invalid");
    return value;
  }

  #refuse(header: string, reason: RefusedReason | "missing"): void {
    this.refused ??= { kind: "refused", header, reason };
  }
}

/** An unsigned 64-bit decimal; undefined for anything else. */
function parseEpoch(text: string): bigint | undefined {
  if (!DECIMAL.test(text)) return undefined;
  const value = BigInt(text);
  return value <= POLICY_EPOCH_MAX ? value : undefined;
}
