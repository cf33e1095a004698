// What the settlement record says about seeding: of a request that the engines' feedback refused in a
// partition that seeds, why it did not become a seed, or how the seed ended.

import type { SeedOutcome } from "../seeding/counts.js";
import type { IneligibleReason } from "../seeding/eligibility.js";
import type { SeedRefusal } from "../seeding/refusals.js";
import type { SeedStory } from "../seeding/seed.js";
import type { SeedAttempt } from "./seed-attempt.js";
import type { SeedFault } from "./seed-run.js";

export type SeedRecord =
  | { readonly kind: "ineligible"; readonly reason: IneligibleReason }
  | { readonly kind: "refused"; readonly refusal: SeedRefusal }
  | {
      readonly kind: "seeded";
      readonly story: SeedStory;
      readonly outcome: SeedOutcome;
      /** Why its answer made nobody an owner; undefined when nothing spoke against the answer. */
      readonly uncommitted: SeedFault | undefined;
      /** The worker counts as an owner of the prompt from now on, by this success. */
      readonly published: boolean;
    };

export function seedRecord(attempt: SeedAttempt): SeedRecord {
  if (attempt.kind !== "seeded") return attempt;
  const { story, fault, end } = attempt.run;
  const { outcome, published } = end ?? { outcome: "undispatched", published: false };
  const uncommitted = outcome === "undispatched" ? undefined : fault;
  return { kind: "seeded", story, outcome, uncommitted, published };
}
