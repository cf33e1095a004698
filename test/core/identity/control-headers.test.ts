import { expect } from "chai";
import {
  controlRule,
  creditRule,
  earlyStrip,
  namesOf,
  removeUpstream,
  type Control,
} from "../../../extproc/core/identity/control-headers.js";
import type { HeadersConfig, TrustConfig } from "../../../extproc/core/model/config.js";
import { ALIASES_OFF, ALIASES_ON, ALL_TRUSTED, trust } from "./support.js";

const SWITCHED: readonly (readonly [keyof TrustConfig & Control, string])[] = [
  ["request_model", "request-model"],
  ["output_token_estimate", "output-token-estimate"],
  ["admission_partition", "admission-partition"],
  ["target_worker_url", "target-worker-url"],
  ["excluded_worker_urls", "excluded-worker-urls"],
  ["routing_key", "routing-key"],
];
const TENANT_ALIASES = [
  "x-smg-tenant-id",
  "x-gateway-inference-fairness-id",
  "x-llm-d-inference-fairness-id",
];
/** Nobody's to send: route, credits, answer and endpoint headers. */
const NEVER = [
  "x-weir-cluster",
  "x-weir-capacity-credit",
  "x-weir-capacity-credit-generation",
  "x-weir-capacity-credit-request-id",
  "x-weir-fair-share-policy-epoch",
  "x-smg-capacity-credit",
  "x-smg-capacity-credit-generation",
  "x-smg-capacity-credit-request-id",
  "x-smg-fair-share-policy-epoch",
  "x-weir-error-code",
  "x-weir-preempted",
  "x-smg-error-code",
  "x-smg-preempted",
  "x-gateway-destination-endpoint",
  "x-gateway-destination-endpoint-served",
  "x-gateway-destination-endpoint-subset",
  "x-llm-d-request-dropped-reason",
];

describe("identity/control-headers", () => {
  it("strips every control header and alias early when nothing is trusted", () => {
    for (const headers of [ALIASES_OFF, ALIASES_ON]) {
      const strip = earlyStrip(trust(), headers);
      const expected = [...NEVER, "x-weir-tenant-id", ...TENANT_ALIASES];
      for (const [, rest] of SWITCHED) expected.push(`x-weir-${rest}`, `x-smg-${rest}`);
      expect(strip).to.include.members(expected);
    }
  });

  it("keeps a header through the early strip exactly when its own switch is on", () => {
    for (const [control, rest] of SWITCHED) {
      const before = earlyStrip(trust(), ALIASES_OFF);
      const after = earlyStrip(trust({ [control]: true }), ALIASES_OFF);
      expect(before.filter((name) => !after.includes(name))).to.deep.equal([`x-weir-${rest}`]);
    }
  });

  it("keeps the aliases of a trusted header only when aliases are read", () => {
    const off = earlyStrip(ALL_TRUSTED, ALIASES_OFF);
    const on = earlyStrip(ALL_TRUSTED, ALIASES_ON);
    const aliases = [...TENANT_ALIASES, ...SWITCHED.map(([, rest]) => `x-smg-${rest}`)];
    expect(off).to.include.members(aliases);
    expect(on.filter((name) => aliases.includes(name))).to.deep.equal([]);
  });

  it("never lets a client keep the route, credit, answer or endpoint headers", () => {
    for (const headers of [ALIASES_OFF, ALIASES_ON]) {
      expect(earlyStrip(ALL_TRUSTED, headers)).to.include.members(NEVER);
    }
  });

  it("lets the headers of credits in exactly while credits are on, aliases only when they are read", () => {
    const own = [
      "x-weir-admission-partition",
      "x-weir-capacity-credit",
      "x-weir-capacity-credit-generation",
      "x-weir-capacity-credit-request-id",
      "x-weir-fair-share-policy-epoch",
    ];
    const letIn = (headers: HeadersConfig): string[] => {
      const on = earlyStrip(trust(), headers, true);
      return earlyStrip(trust(), headers).filter((name) => !on.includes(name));
    };
    expect(letIn(ALIASES_OFF)).to.deep.equal(own);
    const aliases = own.map((name) => name.replace("x-weir-", "x-smg-"));
    expect(letIn(ALIASES_ON)).to.deep.equal([...aliases, ...own].sort());
  });

  it("reads a control for credits while they are on, whatever its own switch says", () => {
    const names = ["x-weir-admission-partition"];
    const rule = (creditsOn: boolean): object =>
      creditRule("admission_partition", trust(), ALIASES_OFF, creditsOn);
    expect(rule(true)).to.deep.equal({ names, trusted: true });
    expect(rule(false)).to.deep.equal({ names, trusted: false });
    expect(controlRule("admission_partition", trust(), ALIASES_OFF).trusted).to.equal(false);
  });

  it("leaves the priority header to clients, and its alias only when aliases are read", () => {
    for (const rules of [trust(), ALL_TRUSTED]) {
      expect(earlyStrip(rules, ALIASES_OFF)).to.not.include("x-weir-priority");
      expect(earlyStrip(rules, ALIASES_OFF)).to.include("x-smg-priority");
      expect(earlyStrip(rules, ALIASES_ON)).to.not.include("x-smg-priority");
    }
  });

  it("leaves the peer header to Envoy, which overwrites it", () => {
    for (const rules of [trust(), ALL_TRUSTED]) {
      expect(earlyStrip(rules, ALIASES_ON)).to.not.include("x-weir-peer");
    }
  });

  it("covers the configured tenant header and the default one, trusted or not", () => {
    const named = { tenant_header_name: "x-acme-team" };
    const off = earlyStrip(trust(named), ALIASES_OFF);
    const on = earlyStrip(trust({ ...named, tenant_id: true }), ALIASES_OFF);
    expect(off).to.include.members(["x-acme-team", "x-weir-tenant-id"]);
    expect(on).to.include("x-weir-tenant-id");
    expect(on).to.not.include("x-acme-team");
  });

  it("strips the route header even when it is configured as the tenant header", () => {
    const odd = trust({ tenant_id: true, tenant_header_name: "x-weir-cluster" });
    expect(earlyStrip(odd, ALIASES_ON)).to.include("x-weir-cluster");
    expect(removeUpstream(odd, ALIASES_ON)).to.not.include("x-weir-cluster");
  });

  it("leaves priority and peer alone even when they are configured as the tenant header", () => {
    for (const name of ["x-weir-priority", "x-weir-peer"]) {
      expect(earlyStrip(trust({ tenant_header_name: name }), ALIASES_OFF)).to.not.include(name);
    }
  });

  it("removes every control header before a worker sees it, whatever is trusted", () => {
    for (const rules of [trust(), ALL_TRUSTED, trust({ tenant_header_name: "x-acme-team" })]) {
      for (const headers of [ALIASES_OFF, ALIASES_ON]) {
        const removed = removeUpstream(rules, headers);
        const early = earlyStrip(trust({ tenant_header_name: rules.tenant_header_name }), headers);
        const expected = early.filter((name) => name !== "x-weir-cluster");
        expect(removed).to.include.members(expected);
        expect(removed).to.include.members([
          "accept-encoding",
          "x-weir-peer",
          "x-weir-priority",
          "x-smg-priority",
          rules.tenant_header_name,
        ]);
      }
    }
  });

  it("leaves the route header for Envoy's route, and touches no ordinary header", () => {
    const lists = [removeUpstream(ALL_TRUSTED, ALIASES_ON), earlyStrip(trust(), ALIASES_ON)];
    expect(lists[0]).to.not.include("x-weir-cluster");
    for (const name of lists.flat()) {
      expect(name).to.match(/^(accept-encoding|x-(weir|smg|gateway|llm-d)-[a-z-]+)$/);
    }
  });

  it("gives sorted lists without repeats", () => {
    for (const list of [
      earlyStrip(trust({ tenant_header_name: "x-smg-tenant-id" }), ALIASES_ON),
      removeUpstream(trust({ tenant_header_name: "x-smg-tenant-id" }), ALIASES_ON),
    ]) {
      expect(list).to.deep.equal([...new Set(list)].sort());
    }
  });

  it("reads the own name first and aliases only when they are on", () => {
    expect(namesOf("tenant_id", trust(), ALIASES_OFF)).to.deep.equal(["x-weir-tenant-id"]);
    expect(namesOf("tenant_id", trust(), ALIASES_ON)).to.deep.equal([
      "x-weir-tenant-id",
      ...TENANT_ALIASES,
    ]);
    expect(namesOf("priority", trust(), ALIASES_ON)).to.deep.equal([
      "x-weir-priority",
      "x-smg-priority",
    ]);
  });

  it("reads the configured tenant header instead of the default one, and each name once", () => {
    const named = trust({ tenant_header_name: "x-acme-team" });
    expect(namesOf("tenant_id", named, ALIASES_OFF)).to.deep.equal(["x-acme-team"]);
    const alias = trust({ tenant_header_name: "x-smg-tenant-id" });
    expect(namesOf("tenant_id", alias, ALIASES_ON)).to.deep.equal(TENANT_ALIASES);
  });

  it("trusts a control by its own switch only", () => {
    for (const [control] of SWITCHED) {
      expect(controlRule(control, ALL_TRUSTED, ALIASES_OFF).trusted).to.equal(true);
      const others = { ...ALL_TRUSTED, [control]: false };
      expect(controlRule(control, others, ALIASES_OFF).trusted).to.equal(false);
    }
    expect(controlRule("capacity_credit", ALL_TRUSTED, ALIASES_OFF).trusted).to.equal(false);
    expect(controlRule("priority", trust(), ALIASES_OFF).trusted).to.equal(true);
  });
});
