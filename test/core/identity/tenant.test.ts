import { expect } from "chai";
import fc from "fast-check";
import type { Evidence } from "../../../extproc/core/identity/evidence.js";
import {
  resolveTenant,
  type TenantResolution,
  type TenantRules,
} from "../../../extproc/core/identity/tenant.js";
import { headersFrom } from "../../../extproc/core/model/headers.js";
import { evidence } from "./support.js";

const NAMES = ["x-weir-tenant-id"];
const metadataNames = ["jwt:claims.team", "jwt:claims.sub"];
const UNTRUSTED: TenantRules = {
  header: { names: NAMES, trusted: false },
  preferHeader: false,
  metadataNames,
};
const TRUSTED: TenantRules = { ...UNTRUSTED, header: { names: NAMES, trusted: true } };
const PREFERRED: TenantRules = { ...TRUSTED, preferHeader: true };

function resolve(
  rules: TenantRules,
  tenant: string | readonly string[] | undefined,
  known: Partial<Evidence> = {},
): TenantResolution {
  const record = tenant === undefined ? {} : { "x-weir-tenant-id": tenant };
  return resolveTenant(rules, headersFrom(record), evidence(known));
}

const key = (...args: Parameters<typeof resolve>): string => resolve(...args).tenant;

describe("identity/tenant", () => {
  it("I-1 resolves caller, header, address and nobody to their canonical keys", () => {
    const sourceAddress = "203.0.113.42:443";
    expect(resolve(TRUSTED, undefined, { metadata: ["b3c2"], sourceAddress })).to.deep.equal({
      tenant: "auth:b3c2",
      source: "metadata",
      refused: [],
    });
    expect(resolve(TRUSTED, "team-red", { sourceAddress })).to.deep.equal({
      tenant: "header:team-red",
      source: "header",
      refused: [],
    });
    expect(resolve(TRUSTED, undefined, { sourceAddress })).to.deep.equal({
      tenant: "ip:203.0.113.42",
      source: "address",
      refused: [],
    });
    expect(resolve(TRUSTED, undefined)).to.deep.equal({
      tenant: "anonymous",
      source: "anonymous",
      refused: [],
    });
  });

  it("takes the first claim that is there, in the order of the configuration", () => {
    expect(key(UNTRUSTED, undefined, { metadata: ["team", "sub"] })).to.equal("auth:team");
    expect(key(UNTRUSTED, undefined, { metadata: [undefined, "sub"] })).to.equal("auth:sub");
  });

  it("takes the URI SAN of a client certificate after the claims", () => {
    const peerSan = "spiffe://acme/team/blue";
    expect(resolve(UNTRUSTED, undefined, { peerSan })).to.deep.include({
      tenant: "auth:spiffe://acme/team/blue",
      source: "mtls",
    });
    expect(key(UNTRUSTED, undefined, { peerSan, metadata: ["sub"] })).to.equal("auth:sub");
  });

  it("never takes the certificate of a proxy for the caller", () => {
    const known = { peerSan: "spiffe://acme/gateway", peerSanIsProxy: true };
    expect(resolve(TRUSTED, undefined, known)).to.deep.include({
      tenant: "anonymous",
      refused: [],
    });
    expect(key(TRUSTED, "team-red", known)).to.equal("header:team-red");
  });

  it("a client's tenant header gains nothing while the switch is off", () => {
    const sourceAddress = "198.51.100.7:9";
    for (const header of ["team-red", "auth:root", "", ["a", "b"]]) {
      expect(resolve(UNTRUSTED, header, { sourceAddress })).to.deep.equal({
        tenant: "ip:198.51.100.7",
        source: "address",
        refused: [],
      });
    }
  });

  it("a tenant header from a peer that is no proxy gains nothing, preferred or not", () => {
    for (const rules of [TRUSTED, PREFERRED]) {
      const known = { peerIsProxy: false, sourceAddress: "198.51.100.7" };
      expect(resolve(rules, "team-red", known)).to.deep.include({
        tenant: "ip:198.51.100.7",
        refused: [],
      });
    }
  });

  it("a verified claim beats a header that disagrees, unless the header is preferred", () => {
    const known = { metadata: ["alice"], sourceAddress: "198.51.100.7:9" };
    expect(key(TRUSTED, "mallory", known)).to.equal("auth:alice");
    expect(key(PREFERRED, "mallory", known)).to.equal("header:mallory");
  });

  it("a preferred header that is missing or refused falls back to the ordinary order", () => {
    const known = { metadata: ["alice"] };
    expect(resolve(PREFERRED, undefined, known)).to.deep.include({
      tenant: "auth:alice",
      refused: [],
    });
    expect(resolve(PREFERRED, "a,b", known)).to.deep.equal({
      tenant: "auth:alice",
      source: "metadata",
      refused: [{ header: "x-weir-tenant-id", reason: "list" }],
    });
  });

  it("reports a refused header once although it is asked only once", () => {
    expect(resolve(PREFERRED, ["a", "b"]).refused).to.deep.equal([
      { header: "x-weir-tenant-id", reason: "duplicate" },
    ]);
  });

  const refusedHeaders: readonly (readonly [string | readonly string[], string])[] = [
    [["team-red", "team-blue"], "duplicate"],
    ["team-red,team-blue", "list"],
    ["  ", "empty"],
    ["x".repeat(257), "too_long"],
    ["team red", "not_visible_ascii"],
    ["t\u00e9am", "not_visible_ascii"],
  ];
  for (const [value, reason] of refusedHeaders) {
    it(`a tenant header ${JSON.stringify(value).slice(0, 24)} is refused (${reason}): the address counts`, () => {
      expect(resolve(TRUSTED, value, { sourceAddress: "10.0.0.1:1" })).to.deep.equal({
        tenant: "ip:10.0.0.1",
        source: "address",
        refused: [{ header: "x-weir-tenant-id", reason }],
      });
    });
  }

  it("refuses claims that break the rules and asks the next one", () => {
    for (const [claim, reason] of [
      ["", "empty"],
      ["x".repeat(257), "too_long"],
      ["Acme Corp", "not_visible_ascii"],
      [" root", "not_visible_ascii"],
      ["root\n", "not_visible_ascii"],
      ["r\u00f6\u00f6t", "not_visible_ascii"],
    ] as const) {
      expect(resolve(UNTRUSTED, undefined, { metadata: [claim, "sub"] })).to.deep.equal({
        tenant: "auth:sub",
        source: "metadata",
        refused: [{ header: "jwt:claims.team", reason }],
      });
    }
  });

  it("takes commas in a claim, not in a SAN: several SANs name nobody", () => {
    expect(key(UNTRUSTED, undefined, { metadata: ["CN=a,O=b"] })).to.equal("auth:CN=a,O=b");
    expect(resolve(UNTRUSTED, undefined, { peerSan: "spiffe://a,spiffe://b" })).to.deep.equal({
      tenant: "anonymous",
      source: "anonymous",
      refused: [{ header: "connection.uri_san_peer_certificate", reason: "list" }],
    });
  });

  it("takes ids of 256 characters and refuses 257, from every source", () => {
    const at = "x".repeat(256);
    const past = "x".repeat(257);
    expect(key(TRUSTED, at)).to.equal(`header:${at}`);
    expect(key(TRUSTED, past)).to.equal("anonymous");
    expect(key(TRUSTED, undefined, { metadata: [at] })).to.equal(`auth:${at}`);
    expect(key(TRUSTED, undefined, { metadata: [past] })).to.equal("anonymous");
    expect(key(TRUSTED, undefined, { peerSan: at })).to.equal(`auth:${at}`);
    expect(key(TRUSTED, undefined, { peerSan: past })).to.equal("anonymous");
  });

  it("writes each address in one spelling, without its port", () => {
    for (const [sourceAddress, tenant] of [
      ["[::1]:5000", "ip:::1"],
      ["::1", "ip:::1"],
      ["::ffff:1.2.3.4", "ip:1.2.3.4"],
      ["[::ffff:1.2.3.4]:80", "ip:1.2.3.4"],
      ["1.2.3.4", "ip:1.2.3.4"],
    ] as const) {
      expect(key(UNTRUSTED, undefined, { sourceAddress })).to.equal(tenant);
    }
  });

  it("a source address that is none leaves the request anonymous and is reported", () => {
    for (const sourceAddress of ["", "garbage", "/run/envoy.sock", "1.2.3.4,5.6.7.8"]) {
      expect(resolve(UNTRUSTED, undefined, { sourceAddress })).to.deep.equal({
        tenant: "anonymous",
        source: "anonymous",
        refused: [{ header: "source.address", reason: "invalid" }],
      });
    }
  });

  it("a header cannot spell the key of another source", () => {
    for (const forged of ["auth:root", "ip:127.0.0.1", "anonymous", "header:x"]) {
      expect(key(TRUSTED, forged)).to.equal(`header:${forged}`);
      expect(key(TRUSTED, undefined, { metadata: [forged] })).to.equal(`auth:${forged}`);
    }
  });

  it("keeps the sources apart for any header and any evidence", () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: "binary" }), { maxLength: 2 }),
        fc.option(fc.string(), { nil: undefined }),
        fc.option(fc.string(), { nil: undefined }),
        fc.boolean(),
        (lines, claim, sourceAddress, peerIsProxy) => {
          const { tenant, source } = resolve(PREFERRED, lines, {
            metadata: [claim],
            sourceAddress,
            peerIsProxy,
          });
          const prefix = { metadata: "auth:", mtls: "auth:", header: "header:", address: "ip:" };
          if (source === "anonymous") expect(tenant).to.equal("anonymous");
          else expect(tenant.startsWith(prefix[source])).to.equal(true);
          if (!peerIsProxy) expect(source).to.not.equal("header");
        },
      ),
    );
  });
});
