// Splits a number of slots over partitions by weight, with whole slots and nothing lost: the method
// of largest remainders (Hamilton's apportionment). Ties go to the smaller name in code-unit order,
// so the same input always gives the same split.

import type { PartitionName } from "../model/ids.js";

/**
 * @param weights weight of each partition, whole numbers >= 0
 * @param total slots to hand out, a whole number >= 0
 * @returns slots per partition; they sum to `total` unless every weight is 0 (then all are 0)
 */
export function splitByWeight(
  weights: ReadonlyMap<PartitionName, number>,
  total: number,
): Map<PartitionName, number> {
  let sum = 0;
  for (const weight of weights.values()) sum += weight;
  const shares = new Map<PartitionName, number>();
  if (sum === 0) {
    for (const name of weights.keys()) shares.set(name, 0);
    return shares;
  }
  const remainders: { readonly name: PartitionName; readonly remainder: number }[] = [];
  let left = total;
  for (const [name, weight] of weights) {
    const share = Math.floor((weight * total) / sum);
    shares.set(name, share);
    left -= share;
    // weight * total stays far below 2^53: both are at most 65535 per partition or in sum.
    remainders.push({ name, remainder: (weight * total) % sum });
  }
  remainders.sort((a, b) => b.remainder - a.remainder || (a.name < b.name ? -1 : 1));
  for (const { name } of remainders.slice(0, left)) shares.set(name, (shares.get(name) ?? 0) + 1);
  return shares;
}
