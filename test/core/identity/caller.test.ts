import { expect } from "chai";
import {
  identityRules,
  resolveCaller,
  type Caller,
} from "../../../extproc/core/identity/caller.js";
import type { Evidence } from "../../../extproc/core/identity/evidence.js";
import type { HeadersConfig, TrustConfig } from "../../../extproc/core/model/config.js";
import { headersFrom } from "../../../extproc/core/model/headers.js";
import { rankOf } from "../../../extproc/core/model/priority.js";
import { ALIASES_OFF, ALIASES_ON, ALL_TRUSTED, evidence, trust } from "./support.js";

const envoy = {
  identity_metadata: [{ namespace: "envoy.filters.http.jwt_authn", path: ["claims", "sub"] }],
};
const scheduler = { tenant_policies: new Map(), default_max_class: rankOf("interactive") };

function resolve(
  trusted: TrustConfig,
  record: Record<string, string | readonly string[]>,
  known: Partial<Evidence> = {},
  headers: HeadersConfig = ALIASES_OFF,
): Caller {
  const fair_share = { default_output_tokens: 256 };
  const rules = identityRules({ trust: trusted, headers, envoy, fair_share, scheduler });
  return resolveCaller(rules, headersFrom(record), evidence(known));
}

const FULL = {
  "x-weir-tenant-id": "team-red",
  "x-weir-request-model": "demo",
  "x-weir-output-token-estimate": "128",
  "x-weir-admission-partition": "batch",
  "x-weir-target-worker-url": "http://127.0.0.1:8101",
  "x-weir-excluded-worker-urls": "http://127.0.0.1:8102, http://127.0.0.1:8103",
};
const DEFAULT_PRIORITY = {
  requested: rankOf("default"),
  effective: rankOf("default"),
  unknownValue: false,
};
const IGNORED = {
  tenant: "ip:192.0.2.9",
  source: "address",
  priority: DEFAULT_PRIORITY,
  requestModel: { kind: "absent" },
  estimate: { tokens: 256, fallback: "untrusted_estimate", refused: undefined },
  partitionHint: undefined,
  targetWorkerUrl: undefined,
  excludedWorkerUrls: [],
  workerConstraintRefused: false,
  refused: [],
};
const sourceAddress = "192.0.2.9:1234";

describe("identity/caller", () => {
  it("reads every hint of a trusted proxy", () => {
    expect(resolve(ALL_TRUSTED, FULL, { sourceAddress })).to.deep.equal({
      tenant: "header:team-red",
      source: "header",
      priority: DEFAULT_PRIORITY,
      requestModel: { kind: "value", header: "x-weir-request-model", value: "demo" },
      estimate: { tokens: 128, fallback: undefined, refused: undefined },
      partitionHint: "batch",
      targetWorkerUrl: "http://127.0.0.1:8101",
      excludedWorkerUrls: ["http://127.0.0.1:8102", "http://127.0.0.1:8103"],
      workerConstraintRefused: false,
      refused: [],
    });
  });

  it("a client that sends every control header gains nothing while nothing is trusted", () => {
    expect(resolve(trust(), FULL, { sourceAddress })).to.deep.equal(IGNORED);
  });

  it("a peer that is no proxy gains nothing while everything is trusted", () => {
    const known = { sourceAddress, peerIsProxy: false };
    expect(resolve(ALL_TRUSTED, FULL, known)).to.deep.equal(IGNORED);
  });

  it("each switch lets in its own header only", () => {
    const off = resolve(trust(), FULL, { sourceAddress });
    const changed = (on: Partial<TrustConfig>): string[] => {
      const now = resolve(trust(on), FULL, { sourceAddress });
      const keys = Object.keys(off) as (keyof Caller)[];
      return keys.filter((name) => JSON.stringify(now[name]) !== JSON.stringify(off[name]));
    };
    expect(changed({ tenant_id: true })).to.deep.equal(["tenant", "source"]);
    expect(changed({ request_model: true })).to.deep.equal(["requestModel"]);
    expect(changed({ output_token_estimate: true })).to.deep.equal(["estimate"]);
    expect(changed({ admission_partition: true })).to.deep.equal(["partitionHint"]);
    expect(changed({ target_worker_url: true })).to.deep.equal(["targetWorkerUrl"]);
    expect(changed({ excluded_worker_urls: true })).to.deep.equal(["excludedWorkerUrls"]);
    expect(changed({ prefer_tenant_id: true })).to.deep.equal([]);
  });

  it("a verified claim wins over the trusted header unless the header is preferred", () => {
    const metadata = ["alice"];
    expect(resolve(ALL_TRUSTED, FULL, { metadata }).tenant).to.equal("auth:alice");
    const preferred = { ...ALL_TRUSTED, prefer_tenant_id: true };
    expect(resolve(preferred, FULL, { metadata }).tenant).to.equal("header:team-red");
  });

  it("collects every refused value with its header or source", () => {
    const caller = resolve(
      ALL_TRUSTED,
      {
        "x-weir-tenant-id": ["a", "b"],
        "x-weir-request-model": "a,b",
        "x-weir-output-token-estimate": "0",
        "x-weir-admission-partition": "",
        "x-weir-target-worker-url": "http://a b",
        "x-weir-excluded-worker-urls": ["http://a", "http://b"],
      },
      { metadata: [""] },
    );
    expect(caller.refused).to.deep.equal([
      { header: "envoy.filters.http.jwt_authn:claims.sub", reason: "empty" },
      { header: "x-weir-tenant-id", reason: "duplicate" },
      { header: "x-weir-request-model", reason: "list" },
      { header: "x-weir-output-token-estimate", reason: "invalid" },
      { header: "x-weir-admission-partition", reason: "empty" },
      { header: "x-weir-target-worker-url", reason: "not_visible_ascii" },
      { header: "x-weir-excluded-worker-urls", reason: "duplicate" },
    ]);
    expect(caller.tenant).to.equal("anonymous");
    expect(caller.partitionHint).to.equal(undefined);
  });

  it("reads worker urls in any spelling of host and trailing slash", () => {
    const caller = resolve(ALL_TRUSTED, {
      "x-weir-target-worker-url": "HTTP://Worker-1:8101/",
      "x-weir-excluded-worker-urls": "http://a:1/, http://B:2",
    });
    expect(caller.targetWorkerUrl).to.equal("http://worker-1:8101");
    expect(caller.excludedWorkerUrls).to.deep.equal(["http://a:1", "http://b:2"]);
  });

  it("flags a worker constraint that cannot be read instead of dropping it", () => {
    for (const name of ["x-weir-target-worker-url", "x-weir-excluded-worker-urls"]) {
      const record = { [name]: ["http://a", "http://b"] };
      expect(resolve(ALL_TRUSTED, record).workerConstraintRefused).to.equal(true);
      expect(resolve(trust(), record).workerConstraintRefused).to.equal(false);
      const known = { peerIsProxy: false };
      expect(resolve(ALL_TRUSTED, record, known).workerConstraintRefused).to.equal(false);
    }
  });

  it("reads aliases only when they are on", () => {
    const record = { "x-llm-d-inference-fairness-id": "team-blue", "x-smg-request-model": "demo" };
    const off = resolve(ALL_TRUSTED, record);
    const on = resolve(ALL_TRUSTED, record, {}, ALIASES_ON);
    expect([off.tenant, off.requestModel.kind]).to.deep.equal(["anonymous", "absent"]);
    expect([on.tenant, on.requestModel.kind]).to.deep.equal(["header:team-blue", "value"]);
  });

  it("refuses a tenant that comes under two names", () => {
    const record = { "x-weir-tenant-id": "red", "x-gateway-inference-fairness-id": "blue" };
    const caller = resolve(ALL_TRUSTED, record, {}, ALIASES_ON);
    expect(caller.tenant).to.equal("anonymous");
    expect(caller.refused).to.deep.equal([{ header: "x-weir-tenant-id", reason: "duplicate" }]);
  });

  it("reads the configured tenant header and no longer the default one", () => {
    const named = { ...ALL_TRUSTED, tenant_header_name: "x-acme-team" };
    expect(resolve(named, { "x-acme-team": "red" }).tenant).to.equal("header:red");
    expect(resolve(named, { "x-weir-tenant-id": "red" }).tenant).to.equal("anonymous");
  });
});
