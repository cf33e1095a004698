// The section `seeding`: in which partitions a refused request may make a clean worker an owner of its
// prefix, and what such a request must be able to show. What seeding needs from other sections stands in
// rules-seeding.ts.

import { SEED_CAP } from "../../core/seeding/rules.js";
import { DEFAULTS } from "./defaults.js";
import { list, mapping, oneOf, text, whole } from "./fields.js";

const SEEDING = DEFAULTS.seeding;

/** A partition that seeds has workers of its own, so there are no more of them than workers. */
const PARTITIONS_MAX = 1000;
/** A name is a label of every seed's metrics. */
const PARTITION_NAME_MAX_BYTES = 128;
/** Shorter than this is no whole answer of any engine. */
const RESPONSE_BYTES_MIN = 1024;
/** The answer of one seed per partition is held in memory until it ends. */
const RESPONSE_BYTES_MAX = 67_108_864;

const partitionName = text(
  `a name of 1 to ${String(PARTITION_NAME_MAX_BYTES)} bytes without blanks around it`,
  (value) => {
    const bytes = Buffer.byteLength(value);
    return bytes > 0 && bytes <= PARTITION_NAME_MAX_BYTES && value === value.trim();
  },
);

export const seedingSection = mapping({
  partitions: list(partitionName, PARTITIONS_MAX)
    .default([...SEEDING.partitions])
    .describe("Partitions that seed, by their exact names; without effect while seed_cap is 0."),
  seed_cap: whole(0, SEED_CAP)
    .default(SEEDING.seed_cap)
    .describe("Seeds under way in one partition; 0 = off. More than one at a time is not built."),
  proof_source: oneOf(["credits", "scheduler"])
    .default(SEEDING.proof_source)
    .describe("What gives the right to seed: a redeemed credit, or every grant of the fair queue."),
  seed_response_max_bytes: whole(RESPONSE_BYTES_MIN, RESPONSE_BYTES_MAX)
    .default(SEEDING.seed_response_max_bytes)
    .describe("Longest answer of a seed that still counts as its success."),
});
