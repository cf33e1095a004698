// Where a request with a capacity credit takes its slot, and what is wrong with a credit that cannot be
// looked up at all. A credit names its partition exactly: its slot was taken there, so there is no
// fallback. No message repeats the token.

import type { Caller } from "../identity/caller.js";
import { findPartition, type PartitionChoice, type PartitionRules } from "../identity/partition.js";
import { reject, type Rejection } from "../model/rejection.js";
import { isCreditToken } from "../scheduler/credit-token.js";

/** The partition of a credit, or the refusal; undefined = the request brings none. */
export function creditPlace(
  rules: PartitionRules,
  { credit, source }: Pick<Caller, "credit" | "source">,
): PartitionChoice | { readonly rejection: Rejection } | undefined {
  if (credit.kind === "absent") return undefined;
  if (credit.kind === "refused") {
    const { header, reason } = credit;
    return refused(`a capacity credit needs the header "${header}" once and readable (${reason})`);
  }
  if (!isCreditToken(credit.token)) {
    return refused("the capacity credit is not 43 characters of base64url");
  }
  if (source !== "header") {
    return refused("a capacity credit needs the header of its tenant once and readable");
  }
  const partition = findPartition(rules, credit.partition);
  if (partition !== undefined) return { partition, unknownHeader: false };
  return refused(`the capacity credit names the partition "${credit.partition}", which is none`);
}

function refused(message: string): { readonly rejection: Rejection } {
  return { rejection: reject("invalid_capacity_credit", message) };
}
