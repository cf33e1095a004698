import { expect } from "chai";
import { warningsOf, WORKER } from "./support.js";

const WEIGHTS = 'tenant_weights: { "auth:acme": 2 }';
const TRUSTED = "trust: { request_model: true, tenant_id: true, peers: [10.0.0.1] }\n";
const text = (share: string, scheduler = "", trust = ""): string =>
  `${WORKER}${trust}scheduler: { ${scheduler} }\nfair_share: { ${share} }\n`;

describe("warnings about fair sharing", () => {
  it("name weights that nothing reads because the scheduler is off", () => {
    const off = "enabled: false, max_concurrent_requests: 8";
    expect(warningsOf(text(WEIGHTS, off))).to.deep.equal([
      "fair_share.tenant_weights: without effect while scheduler.enabled is false",
    ]);
    expect(warningsOf(text(`${WEIGHTS}, model_profiles: { m: {} }`, off, TRUSTED))).to.deep.equal([
      "fair_share.tenant_weights, fair_share.model_profiles: without effect while " +
        "scheduler.enabled is false",
    ]);
    expect(warningsOf(text("", off))).to.deep.equal([]);
  });

  it("name weights that nothing reads because sharing is off", () => {
    expect(warningsOf(text(`enabled: false, ${WEIGHTS}`))).to.deep.equal([
      "fair_share.tenant_weights: without effect while fair_share.enabled is false",
    ]);
    expect(
      warningsOf(text("enabled: false, model_profiles: { m: {} }", "", TRUSTED)),
    ).to.deep.equal([
      "fair_share.model_profiles: without effect while fair_share.enabled is false",
    ]);
    expect(warningsOf(text("enabled: false"))).to.deep.equal([]);
    expect(warningsOf(text(WEIGHTS))).to.deep.equal([]);
  });

  const filled = (ceiling: number, queue: string): string =>
    `fair_share.max_queued_requests_per_tenant: ${String(ceiling)} is not below ${queue}, so one ` +
    "tenant can fill the queue, and what others send is then refused before their weights count";

  it("say that one tenant can fill a queue which is no larger than its ceiling", () => {
    const at = (queue: number): readonly string[] =>
      warningsOf(text(WEIGHTS, `queue_size: ${String(queue)}`));
    expect(at(65)).to.deep.equal([]);
    expect(at(64)).to.deep.equal([filled(64, "scheduler.queue_size = 64")]);
    expect(at(2)).to.deep.equal([filled(64, "scheduler.queue_size = 2")]);
    const small = `${WEIGHTS}, max_queued_requests_per_tenant: 1`;
    expect(warningsOf(text(small, "queue_size: 2"))).to.deep.equal([]);
  });

  it("are silent about a queue that cannot be divided, and without weights", () => {
    for (const queue of [0, 1]) {
      expect(warningsOf(text(WEIGHTS, `queue_size: ${String(queue)}`))).to.deep.equal([]);
    }
    expect(warningsOf(text("", "queue_size: 10"))).to.deep.equal([]);
    expect(warningsOf(text("default_weight: 2", "queue_size: 10"))).to.deep.equal([]);
  });

  it("name each partition whose own queue one tenant can fill", () => {
    const part = (waiters: number): string =>
      `{ max_concurrent_requests: 4, queue_size: ${String(waiters)} }`;
    const scheduler =
      "queue_size: 500, admission_partitions: " +
      `{ default: ${part(200)}, kimi: ${part(64)}, idle: ${part(0)} }`;
    expect(warningsOf(text(WEIGHTS, scheduler))).to.deep.equal([
      filled(64, "the queue_size of partition kimi = 64"),
    ]);
  });

  it("say that the configured tenants leave no account to the others", () => {
    const tenants = (count: number): string =>
      Array.from({ length: count }, (_, index) => `"auth:t${String(index)}": 2`).join(", ");
    const of = (count: number, more = ""): readonly string[] =>
      warningsOf(
        text(
          `max_tracked_tenants: 1000, tenant_weights: { ${tenants(count)} }${more}`,
          "",
          TRUSTED,
        ),
      );
    const warning = (count: number): string =>
      `fair_share.max_tracked_tenants: 1000 while ${String(count)} tenants have a weight, ` +
      "so all tenants without one share one account";
    expect(of(999)).to.deep.equal([]);
    expect(of(1000)).to.deep.equal([warning(1000)]);
    // A tenant that is named twice has one account.
    const profile = (tenant: string): string =>
      `, model_profiles: { m: { tenant_weights: { "${tenant}": 1 } } }`;
    expect(of(999, profile("auth:t0"))).to.deep.equal([]);
    expect(of(999, profile("auth:new"))).to.deep.equal([warning(1000)]);
  });

  it("name tenants of a header that nobody may send", () => {
    const share =
      'tenant_weights: { "header:red": 2, "auth:acme": 3, anonymous: 1 }, ' +
      'model_profiles: { m: { tenant_weights: { "header:blue": 4 } } }';
    const modelOnly = "trust: { request_model: true, peers: [10.0.0.1] }\n";
    const never = "no request is of such a tenant while trust.tenant_id is false";
    expect(warningsOf(text(share, "", modelOnly))).to.deep.equal([
      `fair_share.tenant_weights: header:red: ${never}`,
      `fair_share.model_profiles.m.tenant_weights: header:blue: ${never}`,
    ]);
    expect(warningsOf(text(share, "", TRUSTED))).to.deep.equal([]);
  });

  it("list five such tenants and count the rest", () => {
    const tenants = (count: number): string =>
      Array.from({ length: count }, (_, index) => `"header:t${String(index)}": 2`).join(", ");
    const listed = "header:t0, header:t1, header:t2, header:t3, header:t4";
    const never = "no request is of such a tenant while trust.tenant_id is false";
    const of = (count: number): readonly string[] =>
      warningsOf(text(`tenant_weights: { ${tenants(count)} }`));
    expect(of(5)).to.deep.equal([`fair_share.tenant_weights: ${listed}: ${never}`]);
    expect(of(6)).to.deep.equal([`fair_share.tenant_weights: ${listed} and 1 more: ${never}`]);
  });
});
