// What capacity credits need from the rest of the file. A credit is bound to a tenant, a model, an
// estimate and a partition that a request names in trusted headers, its slot is booked by fair sharing,
// and its holder proves itself with a key. Without one of these a credit could be issued and never
// redeemed, so each is an error at its own place, and all are shown at once. A generation that was
// refused still means that somebody wants credits.

import { refusal } from "../../core/identity/trusted-header.js";
import type { Draft } from "./draft.js";
import type { ConfigPath, Finding } from "./problem.js";

type CreditsDraft = NonNullable<Draft["credits"]>;

const WHILE = "while credits.generation is set";
const TRUST_SWITCHES = [
  "tenant_id",
  "prefer_tenant_id",
  "request_model",
  "output_token_estimate",
] as const;

/** True when the file asks for credits, soundly or not. */
export function wantsCredits({ credits }: Draft): boolean {
  return credits !== undefined && "generation" in credits;
}

/** Every broken rule of the section. */
export function checkCredits(draft: Draft): Finding[] {
  const { credits } = draft;
  if (credits === undefined) return [];
  if (!wantsCredits(draft)) return checkRequired(credits);
  return [
    ...checkSwitches(draft),
    ...checkPeers(draft),
    ...checkPartitions(draft),
    ...checkServiceKey(credits),
  ];
}

function checkRequired({ required }: CreditsDraft): Finding[] {
  if (required !== true) return [];
  const message =
    "true needs credits.generation; set it, or nobody could send an inference request";
  return [{ path: ["credits", "required"], message }];
}

function checkSwitches(draft: Draft): Finding[] {
  const problems: Finding[] = [];
  const mustBeOn = (path: ConfigPath, value: boolean | undefined): void => {
    if (value === false) problems.push({ path, message: `must be true ${WHILE}, got false` });
  };
  for (const key of TRUST_SWITCHES) mustBeOn(["trust", key], draft.trust?.[key]);
  mustBeOn(["scheduler", "enabled"], draft.scheduler?.enabled);
  mustBeOn(["fair_share", "enabled"], draft.fair_share?.enabled);
  return problems;
}

/** The allocator is known by its address: the admin port asks for no client certificate. */
function checkPeers({ trust }: Draft): Finding[] {
  const peers = trust?.peers;
  if (peers === undefined || peers.length === 0) return [];
  if (peers.some((peer) => peer?.includes("://") !== true)) return [];
  const message = `must hold the address of the allocator ${WHILE}; spiffe:// ids are not seen there`;
  return [{ path: ["trust", "peers"], message }];
}

function checkPartitions({ scheduler }: Draft): Finding[] {
  const partitions = scheduler?.admission_partitions;
  if (partitions === undefined) return [];
  // Partitions that were refused count: somebody wrote them down.
  const names = Object.keys(partitions);
  if (names.length > 0) return names.flatMap(checkPartitionName);
  const message = `must hold at least one name ${WHILE}, because a credit belongs to a partition`;
  return [{ path: ["scheduler", "admission_partitions"], message }];
}

/** A request names the partition of its credit in a header, exactly. */
function checkPartitionName(name: string): Finding[] {
  if (refusal(name, { commas: false }) === undefined) return [];
  const message =
    `must be a name of visible ASCII without blanks and commas ${WHILE}, because a header carries it, ` +
    `got ${JSON.stringify(name)}`;
  return [{ path: ["scheduler", "admission_partitions", name], message }];
}

function checkServiceKey(credits: CreditsDraft): Finding[] {
  const hasVariable = "service_key_env" in credits;
  const hasFile = "service_key_file" in credits;
  if (hasVariable && hasFile) {
    const message = "must be absent while service_key_env is set; keep one of the two";
    return [{ path: ["credits", "service_key_file"], message }];
  }
  if (hasVariable || hasFile) return [];
  const message = `needs service_key_env or service_key_file, the place of the allocator's key`;
  return [{ path: ["credits", "generation"], message }];
}
