// The section `credits` and what it needs from the others. A title that begins with a letter and a number
// is a row of the acceptance table.

import { expect } from "chai";
import { configOf, problemsOf, warningsOf, WORKER } from "./support.js";

/** Lines 3 to 5: everything credits need, from line 6 on the section itself. */
const NEEDS = `trust: { tenant_id: true, prefer_tenant_id: true, request_model: true, output_token_estimate: true, peers: [10.0.0.1] }
scheduler: { admission_partitions: { default: { max_concurrent_requests: 4, queue_size: 4 } } }
fair_share: { enabled: true }
`;
const credits = (fields: string): string => `${WORKER}${NEEDS}credits: { ${fields} }\n`;
const SOUND = "generation: g1, service_key_env: CREDIT_KEY";

describe("capacity credits in the configuration", () => {
  it("are off, with defaults that would apply", () => {
    expect(configOf(WORKER).credits).to.deep.equal({
      generation: undefined,
      ttl_ms: 30_000,
      terminal_retention_secs: 600,
      required: false,
      service_key: undefined,
    });
  });

  it("are read back as they were written", () => {
    const more = "ttl_ms: 2000, terminal_retention_secs: 60, required: true";
    expect(configOf(credits(`${SOUND}, ${more}`)).credits).to.deep.equal({
      generation: "g1",
      ttl_ms: 2_000,
      terminal_retention_secs: 60,
      required: true,
      service_key: { kind: "env", name: "CREDIT_KEY" },
    });
    const file = configOf(credits("generation: g1, service_key_file: /run/key")).credits;
    expect(file.service_key).to.deep.equal({ kind: "file", path: "/run/key" });
    expect(warningsOf(credits(SOUND))).to.deep.equal([]);
  });

  it("K2 take no generation that is empty, padded, over 128 characters or not fit for a header", () => {
    for (const good of ["g", "x".repeat(128), "2026-11-30/3"]) {
      configOf(credits(`generation: "${good}", service_key_env: K`));
    }
    const bad = ["", " g1", "g1 ", "x".repeat(129), "a b", "a,b", "é", "a\\nb"];
    for (const generation of bad) {
      const problems = problemsOf(credits(`generation: "${generation}", service_key_env: K`));
      expect(problems, generation).to.have.length(1);
      expect(problems[0]).to.contain(
        "weir.yaml:6:12 credits.generation: must be 1 to 128 characters of visible ASCII without " +
          "blanks and commas, got ",
      );
    }
  });

  it("K2 take no life and no memory of 0, nor one over the limit", () => {
    const bounds = [
      ["ttl_ms", 3_600_000],
      ["terminal_retention_secs", 86_400],
    ] as const;
    for (const [key, most] of bounds) {
      for (const value of [1, most]) configOf(credits(`${SOUND}, ${key}: ${String(value)}`));
      for (const value of [0, -1, most + 1, 0.5]) {
        expect(problemsOf(credits(`${SOUND}, ${key}: ${String(value)}`))).to.deep.equal([
          `weir.yaml:6:57 credits.${key}: must be a whole number from 1 to ${String(most)}, got ${String(value)}`,
        ]);
      }
    }
  });

  it("cannot be required without a generation", () => {
    expect(problemsOf(`${WORKER}credits: { required: true }\n`)).to.deep.equal([
      "weir.yaml:3:12 credits.required: true needs credits.generation; set it, or nobody could send an inference request",
    ]);
  });

  it("name everything that is missing at once, each at its place", () => {
    const text = `${WORKER}trust: { tenant_id: false }
scheduler: { enabled: false }
fair_share: { enabled: false }
credits: { generation: g1 }
`;
    const on = "must be true while credits.generation is set, got false";
    expect(problemsOf(text)).to.deep.equal([
      `weir.yaml:3:1 trust.prefer_tenant_id: ${on}`,
      `weir.yaml:3:1 trust.request_model: ${on}`,
      `weir.yaml:3:1 trust.output_token_estimate: ${on}`,
      `weir.yaml:3:10 trust.tenant_id: ${on}`,
      "weir.yaml:4:1 scheduler.admission_partitions: must hold at least one name while " +
        "credits.generation is set, because a credit belongs to a partition",
      `weir.yaml:4:14 scheduler.enabled: ${on}`,
      `weir.yaml:5:15 fair_share.enabled: ${on}`,
      "weir.yaml:6:12 credits.generation: needs service_key_env or service_key_file, the place of the allocator's key",
    ]);
  });

  it("need partitions that a header can name", () => {
    for (const name of ["big pool", "größe", "a,b"]) {
      const text = credits(SOUND).replace(
        "{ default: {",
        `{ "${name}": { max_concurrent_requests: 1, queue_size: 1 }, default: {`,
      );
      expect(problemsOf(text), name).to.have.length(1);
      expect(problemsOf(text)[0]).to.contain(
        "must be a name of visible ASCII without blanks and commas",
      );
    }
  });

  it("that were meant, but with a refused generation, name what is missing too", () => {
    const text = `${WORKER}credits: { generation: "", service_key_env: K, required: true }\n`;
    expect(problemsOf(text)).to.have.length(6);
  });

  it("know one place of the key and never show one that was pasted", () => {
    expect(problemsOf(credits(`${SOUND}, service_key_file: /k`))).to.deep.equal([
      "weir.yaml:6:57 credits.service_key_file: must be absent while service_key_env is set; keep one of the two",
    ]);
    const pasted = problemsOf(credits("generation: g1, service_key_env: sk-secret"));
    expect(pasted).to.have.length(1);
    expect(pasted[0]).to.not.contain("sk-secret");
    expect(
      problemsOf(credits("generation: g1, service_key: sk-secret, service_key_env: K")),
    ).to.deep.equal([
      "weir.yaml:6:28 credits.service_key: a key does not stand in this file; " +
        "name its place with service_key_env or service_key_file",
    ]);
  });

  it("need a peer with an address, where peers are named: an allocator shows no certificate", () => {
    const text = credits(SOUND).replace("[10.0.0.1]", '["spiffe://a/gateway"]');
    expect(problemsOf(text)).to.deep.equal([
      "weir.yaml:3:101 trust.peers: must hold the address of the allocator while credits.generation is set; " +
        "spiffe:// ids are not seen there",
    ]);
    configOf(credits(SOUND).replace("[10.0.0.1]", '["spiffe://a/gateway", "10.0.0.0/8"]'));
  });

  it("that everybody could present are a warning", () => {
    const [warning = ""] = warningsOf(credits(SOUND).replace(", peers: [10.0.0.1]", ""));
    expect(warning).to.contain("credits.generation: on while trust.peers is empty");
  });

  it("P9 stop the start when the scheduler cannot be built, although the fallback is on", () => {
    const broken = (generation: string): string => `${WORKER}scheduler:
  fallback_to_limiter: true
  tenant_policies: { acme: { max_class: bulk } }
  admission_partitions: { default: { max_concurrent_requests: 4, queue_size: 4 } }
trust: { tenant_id: true, prefer_tenant_id: true, request_model: true, output_token_estimate: true }
credits: { ${generation}service_key_env: K }
`;
    expect(problemsOf(broken("generation: g1, "))).to.deep.equal([
      "weir.yaml:5:22 scheduler.tenant_policies.acme: must be a tenant key: auth:<id>, header:<id>, " +
        "ip:<address> in its shortest spelling, or anonymous",
    ]);
    expect(configOf(broken("")).scheduler.enabled).to.equal(false);
  });
});
