import { expect } from "chai";
import { simulatePool } from "./report.js";
import { SCENARIOS } from "./scenarios.js";

// With flat weights 5, 3, 1 and at most 56 invented names of weight 1 at once, acme is due at least 5/65
// of the service; nine tenths of that are asked for here. In the profile, carol is due 1/57 of the bucket.
describe("a flood of names that are never used twice", () => {
  it("does not starve a named tenant with flat weights, nor an unnamed one in a profile's bucket", () => {
    const [profile, flat] = (SCENARIOS["identity-flood"]?.pools(3_600_000) ?? []).map((plan) =>
      simulatePool(plan, 1, 3_600_000),
    );
    const served = (flat?.tally.contestants ?? []).map(({ servedTokens }) => servedTokens);
    const all = served.reduce((sum, one) => sum + one, 0);
    const carol = profile?.tally.tenants.find(({ name }) => name === "carol");
    expect([(served[0] ?? 0) / all, carol?.requests]).to.satisfy(
      ([share, requests]: [number, number]) => share > 0.9 * (5 / 65) && requests > 15,
      `got ${String((served[0] ?? 0) / all)} and ${String(carol?.requests)}`,
    );
  });
});
