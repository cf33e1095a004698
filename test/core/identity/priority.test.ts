import { expect } from "chai";
import { headersFrom } from "../../../extproc/core/model/headers.js";
import { tenantKey } from "../../../extproc/core/model/ids.js";
import { className, rankOf, type PriorityClass } from "../../../extproc/core/model/priority.js";
import {
  parseClass,
  resolvePriority,
  type PriorityRules,
} from "../../../extproc/core/identity/priority.js";

const rules = (
  defaultMax: PriorityClass,
  policies: Record<string, PriorityClass> = {},
): PriorityRules => ({
  names: ["x-weir-priority"],
  defaultMax: rankOf(defaultMax),
  maxByTenant: new Map(
    Object.entries(policies).map(([tenant, name]) => [tenantKey(tenant), rankOf(name)]),
  ),
});

function effective(of: PriorityRules, value: string | undefined, tenant = "anonymous"): string {
  const headers = headersFrom(value === undefined ? {} : { "x-weir-priority": value });
  return className(resolvePriority(of, headers, tenantKey(tenant)).effective);
}

describe("priority", () => {
  it("C1 reads the four classes in any case and with blanks; anything else is the default class", () => {
    for (const name of ["system", "interactive", "default", "bulk"] as const) {
      for (const value of [name, name.toUpperCase(), ` ${name}\t`]) {
        expect(parseClass(value), value).to.equal(rankOf(name));
      }
    }
    for (const value of ["urgent", "", "123"]) {
      expect(effective(rules("system"), value), value).to.equal("default");
    }
    expect(effective(rules("system"), undefined)).to.equal("default");
  });

  it("C2 lowers a request to its ceiling and never raises it", () => {
    expect(effective(rules("default"), "interactive")).to.equal("default");
    expect(effective(rules("interactive"), "system")).to.equal("interactive");
    expect(effective(rules("system"), "bulk")).to.equal("bulk");
  });

  it("C3 takes the ceiling of the tenant's policy, and the configured one for unknown tenants", () => {
    const policies = rules("default", { "auth:acme": "interactive" });
    expect(effective(policies, "system", "auth:acme")).to.equal("interactive");
    expect(effective(policies, "system", "auth:other")).to.equal("default");
    expect(effective(policies, "system", "header:auth:acme")).to.equal("default");
  });

  it("tells an unknown word from an empty or absent one, and takes several copies for one unknown word", () => {
    const unknown = (value: string | readonly string[] | undefined): boolean =>
      resolvePriority(
        rules("system"),
        headersFrom(value === undefined ? {} : { "x-weir-priority": value }),
        tenantKey("anonymous"),
      ).unknownValue;
    expect([unknown("urgent"), unknown("system,bulk"), unknown(["system", "bulk"])]).to.deep.equal([
      true,
      true,
      true,
    ]);
    expect([unknown(""), unknown("  "), unknown(undefined), unknown("bulk")]).to.deep.equal([
      false,
      false,
      false,
      false,
    ]);
    expect(effective(rules("system"), "system,system")).to.equal("default");
  });
});
