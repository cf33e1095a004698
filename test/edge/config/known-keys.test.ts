import { expect } from "chai";
import { nearestKey } from "../../../extproc/edge/config/known-keys.js";
import { configOf, problemsOf, WORKER } from "./support.js";

describe("unknown keys", () => {
  it("name the nearest known key of their own mapping", () => {
    expect(
      problemsOf(`${WORKER}scedhuler: {}
scheduler: { queue_tmeout_secs: 1, colour: red, queuesize: 2 }
envoy: { tls: { certificate_file: c, private_key_file: k, client_ca: x } }
`),
    ).to.deep.equal([
      "weir.yaml:3:1 scedhuler: is not a known key; did you mean scheduler?",
      "weir.yaml:4:14 scheduler.queue_tmeout_secs: is not a known key; did you mean queue_timeout_secs?",
      "weir.yaml:4:36 scheduler.colour: is not a known key",
      "weir.yaml:4:49 scheduler.queuesize: is not a known key; did you mean queue_size?",
      "weir.yaml:5:59 envoy.tls.client_ca: is not a known key",
    ]);
    expect(
      problemsOf('workers: [{ url: "http://h:1", cluster: a, models: [m], label: {} }]\n'),
    ).to.deep.equal(["weir.yaml:1:57 workers[0].label: is not a known key; did you mean labels?"]);
  });

  it("below a name of the file are compared with the keys of that mapping", () => {
    expect(
      problemsOf(`${WORKER}scheduler:
  tenant_policies: { anonymous: { max_class: bulk, maxclass: bulk } }
  admission_partitions: { default: { max_concurrent_request: 1, max_concurrent_requests: 1, queue_size: 0 } }
`),
    ).to.deep.equal([
      "weir.yaml:4:52 scheduler.tenant_policies.anonymous.maxclass: is not a known key; did you mean max_class?",
      "weir.yaml:5:38 scheduler.admission_partitions.default.max_concurrent_request: is not a known key; " +
        "did you mean max_concurrent_requests?",
    ]);
  });

  it("of parts that are not in this version say so", () => {
    const later: readonly (readonly [string, string])[] = [
      ["adaptive_admission: {}", "adaptive_admission"],
      ["selection: {}", "selection"],
      ["seeding: {}", "seeding"],
      ["credits: {}", "credits"],
      ["scheduler: { adaptive_capacity: auto }", "scheduler.adaptive_capacity"],
      ["models: { m: { ownership: events } }", "models.m.ownership"],
    ];
    for (const [text, path] of later) {
      const key = path.slice(path.lastIndexOf(".") + 1);
      const problems = problemsOf(`${WORKER}${text}\n`);
      expect(problems, text).to.have.length(1);
      expect(problems[0]).to.match(/^weir\.yaml:3:/);
      expect(problems[0]).to.contain(` ${path}: ${key} is not available in this version`);
    }
  });

  it("values of parts that are not in this version say so, and the only value is taken", () => {
    const values: readonly (readonly [string, string, string, string])[] = [
      ["trust", "routing_key", "true", "false"],
      ["settlement", "stream_usage", "inject", "observe"],
      ["settlement", "source", "access_log", "response_body"],
    ];
    for (const [section, key, bad, good] of values) {
      configOf(`${WORKER}${section}: { ${key}: ${good} }\n`);
      expect(problemsOf(`${WORKER}${section}: { ${key}: ${bad} }\n`)[0]).to.match(
        new RegExp(`${key}: ${bad} is not available in this version; it must be ${good}$`),
      );
    }
    expect(problemsOf(`${WORKER}models: { m: { policy: cache_aware } }\n`)).to.deep.equal([
      "weir.yaml:3:16 models.m.policy: cache_aware is not available in this version; " +
        "it must be power_of_two",
    ]);
    expect(problemsOf(`${WORKER}models: { m: { policy: 5 } }\n`)).to.deep.equal([
      "weir.yaml:3:16 models.m.policy: must be power_of_two, got 5",
    ]);
  });

  it("with an old name give the new one, wherever they stand", () => {
    const renamed: readonly (readonly [string, string, string])[] = [
      ["trust_tenant_header: true", "trust_tenant_header", "trust.tenant_id"],
      [
        "trust: { prefer_trusted_tenant_header: true }",
        "trust.prefer_trusted_tenant_header",
        "trust.prefer_tenant_id",
      ],
      [
        "fair_share: { trust_output_token_estimate_header: true }",
        "fair_share.trust_output_token_estimate_header",
        "trust.output_token_estimate",
      ],
      [
        "fair_share: { trust_request_model_header: true }",
        "fair_share.trust_request_model_header",
        "trust.request_model",
      ],
    ];
    for (const [text, path, now] of renamed) {
      expect(problemsOf(`${WORKER}${text}\n`)[0]).to.match(
        new RegExp(`^weir\\.yaml:3:\\d+ ${path}: is not a key here; the key is ${now}$`),
      );
    }
  });

  it("find a near key for a slip of the hand and none for another word", () => {
    const known = ["queue_size", "queue_timeout_secs", "enabled", "id"];
    expect(nearestKey("queue_sise", known)).to.equal("queue_size");
    expect(nearestKey("QUEUE_SIZE", known)).to.equal("queue_size");
    expect(nearestKey("enbaled", known)).to.equal("enabled");
    expect(nearestKey("x", known)).to.equal(undefined);
    expect(nearestKey("temperature", known)).to.equal(undefined);
    expect(nearestKey("q".repeat(100_000), known)).to.equal(undefined);
    expect(nearestKey("", known)).to.equal(undefined);
  });
});
