import { expect } from "chai";
import {
  identityRules,
  resolveCaller,
  type Caller,
} from "../../../extproc/core/identity/caller.js";
import type { Evidence } from "../../../extproc/core/identity/evidence.js";
import { ModelNames } from "../../../extproc/core/identity/model-names.js";
import { TRUSTED_VALUE_MAX_CHARS } from "../../../extproc/core/identity/trusted-header.js";
import type {
  HeadersConfig,
  ModelProfileConfig,
  TrustConfig,
} from "../../../extproc/core/model/config.js";
import { headersFrom } from "../../../extproc/core/model/headers.js";
import { modelId, type ModelId } from "../../../extproc/core/model/ids.js";
import { rankOf } from "../../../extproc/core/model/priority.js";
import { ALIASES_OFF, ALIASES_ON, ALL_TRUSTED, CREDITS_OFF, evidence, trust } from "./support.js";

const envoy = {
  identity_metadata: [{ namespace: "envoy.filters.http.jwt_authn", path: ["claims", "sub"] }],
};
const scheduler = { tenant_policies: new Map(), default_max_class: rankOf("interactive") };

function resolve(
  trusted: TrustConfig,
  record: Record<string, string | readonly string[]>,
  known: Partial<Evidence> = {},
  headers: HeadersConfig = ALIASES_OFF,
  model_profiles: ReadonlyMap<ModelId, ModelProfileConfig> = new Map(),
): Caller {
  const fair_share = { default_output_tokens: 256, model_profiles };
  const rules = identityRules({
    trust: trusted,
    headers,
    envoy,
    fair_share,
    scheduler,
    credits: CREDITS_OFF,
  });
  return resolveCaller(rules, headersFrom(record), evidence(known));
}

const FULL = {
  "x-weir-tenant-id": "team-red",
  "x-weir-request-model": "demo",
  "x-weir-output-token-estimate": "128",
  "x-weir-admission-partition": "batch",
  "x-weir-target-worker-url": "http://127.0.0.1:8101",
  "x-weir-excluded-worker-urls": "http://127.0.0.1:8102, http://127.0.0.1:8103",
  "x-weir-routing-key": "session-7",
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
  requestModelFallback: undefined,
  estimate: { tokens: 256, fallback: "untrusted_estimate", refused: undefined },
  partitionHint: undefined,
  targetWorkerUrl: undefined,
  excludedWorkerUrls: [],
  routingKey: undefined,
  workerConstraintRefused: false,
  credit: { kind: "absent" },
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
      requestModelFallback: undefined,
      estimate: { tokens: 128, fallback: undefined, refused: undefined },
      partitionHint: "batch",
      targetWorkerUrl: "http://127.0.0.1:8101",
      excludedWorkerUrls: ["http://127.0.0.1:8102", "http://127.0.0.1:8103"],
      routingKey: "session-7",
      workerConstraintRefused: false,
      credit: { kind: "absent" },
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
    expect(changed({ routing_key: true })).to.deep.equal(["routingKey"]);
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
        "x-weir-routing-key": "a b",
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
      { header: "x-weir-routing-key", reason: "not_visible_ascii" },
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

  describe("the routing key", () => {
    const NAME = "x-weir-routing-key";
    const TRUSTED = trust({ routing_key: true });
    const keyOf = (value: string | readonly string[]): string | undefined =>
      resolve(TRUSTED, { [NAME]: value }).routingKey;

    it("is the value without the blanks around it, letters as they are", () => {
      expect(keyOf("Session-7/a=b;c")).to.equal("Session-7/a=b;c");
      expect(keyOf(" \tuser:42 ")).to.equal("user:42");
    });

    it("is at most as long as every trusted value", () => {
      expect(TRUSTED_VALUE_MAX_CHARS).to.equal(256);
      expect(keyOf("k".repeat(256))).to.equal("k".repeat(256));
      const { routingKey, refused } = resolve(TRUSTED, { [NAME]: "k".repeat(257) });
      expect(routingKey).to.equal(undefined);
      expect(refused).to.deep.equal([{ header: NAME, reason: "too_long" }]);
    });

    it("that cannot be read is dropped and told, and constrains nothing", () => {
      for (const [value, reason] of [
        ["", "empty"],
        ["a,b", "list"],
        [["a", "b"], "duplicate"],
        ["é", "not_visible_ascii"],
      ] as const) {
        const caller = resolve(TRUSTED, { [NAME]: value });
        expect(caller.routingKey, reason).to.equal(undefined);
        expect(caller.workerConstraintRefused, reason).to.equal(false);
        expect(caller.refused).to.deep.equal([{ header: NAME, reason }]);
      }
    });

    it("is ignored unless its switch is on and the peer is a proxy", () => {
      const sent = { [NAME]: "session-7" };
      const off = { ...ALL_TRUSTED, routing_key: false };
      for (const caller of [
        resolve(trust(), sent),
        resolve(off, sent),
        resolve(TRUSTED, sent, { peerIsProxy: false }),
      ]) {
        expect(caller.routingKey).to.equal(undefined);
        expect(caller.refused).to.deep.equal([]);
      }
    });

    it("is read under another gateway's name only when aliases are on", () => {
      const sent = { "x-smg-routing-key": "session-7" };
      expect(resolve(TRUSTED, sent).routingKey).to.equal(undefined);
      expect(resolve(TRUSTED, sent, {}, ALIASES_ON).routingKey).to.equal("session-7");
    });
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

  describe("the model header while profiles are configured", () => {
    const DEEPSEEK = modelId("deepseek-v4-flash");
    const profiles = new Map([[DEEPSEEK, { tenant_weights: new Map(), other_weight: 1 }]]);
    const NAME = "x-weir-request-model";
    const TRUSTED = trust({ request_model: true });
    type Sent = Record<string, string | readonly string[]>;
    const fallback = (trusted: TrustConfig, sent: Sent, peerIsProxy = true): unknown =>
      resolve(trusted, sent, { peerIsProxy }, ALIASES_OFF, profiles).requestModelFallback;

    it("I-3 names an alias as it is sent, and the alias leads to the canonical model", () => {
      const sent = { [NAME]: " deepseek-flash " };
      const caller = resolve(TRUSTED, sent, {}, ALIASES_OFF, profiles);
      expect(caller.requestModelFallback).to.equal(undefined);
      expect(caller.requestModel).to.deep.equal({
        kind: "value",
        header: NAME,
        value: "deepseek-flash",
      });
      const names = new ModelNames({
        models: new Map([
          [
            DEEPSEEK,
            { aliases: ["deepseek-flash"], policy: "power_of_two", ownership: "committed" },
          ],
        ]),
        workers: [],
      });
      expect(names.canonical("deepseek-flash")).to.equal("deepseek-v4-flash");
    });

    it("counts no fallback for a model without a profile: it was named", () => {
      expect(fallback(TRUSTED, { [NAME]: "kimi" })).to.equal(undefined);
    });

    it("is missing when a trusted proxy sends none, a blank one or one that cannot be read", () => {
      const unreadable = ["", " \t ", "a,b", "é", "a b", ["a", "b"], "x".repeat(257)];
      expect(fallback(TRUSTED, {})).to.equal("missing_request_model");
      for (const value of unreadable) {
        expect(fallback(TRUSTED, { [NAME]: value }), String(value)).to.equal(
          "missing_request_model",
        );
      }
      expect(fallback(TRUSTED, { [NAME]: "x".repeat(256) })).to.equal(undefined);
    });

    it("is untrusted when it is sent while the switch is off or by a peer that is no proxy", () => {
      for (const value of ["deepseek-v4-flash", "", ["a", "b"]]) {
        expect(fallback(trust(), { [NAME]: value })).to.equal("untrusted_request_model");
        expect(fallback(TRUSTED, { [NAME]: value }, false)).to.equal("untrusted_request_model");
      }
    });

    it("counts nothing when nobody trusted is there and nothing is sent", () => {
      expect(fallback(trust(), {})).to.equal(undefined);
      expect(fallback(TRUSTED, {}, false)).to.equal(undefined);
    });

    it("counts another gateway's name only when aliases are read", () => {
      const sent = { "x-smg-request-model": "kimi" };
      const on = resolve(trust(), sent, {}, ALIASES_ON, profiles);
      expect(on.requestModelFallback).to.equal("untrusted_request_model");
      expect(fallback(trust(), sent)).to.equal(undefined);
    });
  });

  it("counts no fallback of the model header while no profiles are configured", () => {
    for (const trusted of [trust(), trust({ request_model: true })]) {
      for (const sent of [{}, { "x-weir-request-model": "kimi" }, { "x-weir-request-model": "" }]) {
        expect(resolve(trusted, sent).requestModelFallback).to.equal(undefined);
      }
    }
  });

  it("I-2 an untrusted estimate of 1 books 256, a trusted one of 128 books 128", () => {
    const sent = (value: string): Record<string, string> => ({
      "x-weir-output-token-estimate": value,
    });
    const trusted = trust({ output_token_estimate: true });
    expect(resolve(trust(), sent("1")).estimate.tokens).to.equal(256);
    expect(resolve(trusted, sent("1"), { peerIsProxy: false }).estimate.tokens).to.equal(256);
    expect(resolve(trusted, sent("128")).estimate.tokens).to.equal(128);
  });
});
