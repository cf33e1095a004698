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

  it("values of parts that are not in this version say so, and the only value is taken", () => {
    const values: readonly (readonly [string, string, string, string])[] = [
      ["settlement", "stream_usage", "inject", "observe"],
      ["settlement", "source", "access_log", "response_body"],
    ];
    for (const [section, key, bad, good] of values) {
      configOf(`${WORKER}${section}: { ${key}: ${good} }\n`);
      expect(problemsOf(`${WORKER}${section}: { ${key}: ${bad} }\n`)[0]).to.match(
        new RegExp(`${key}: ${bad} is not available in this version; it must be ${good}$`),
      );
    }
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
      [
        "scheduler: { priority_scheduler_adaptive_capacity: true }",
        "scheduler.priority_scheduler_adaptive_capacity",
        "scheduler.adaptive_capacity",
      ],
      [
        "load_monitor_interval_secs: 5",
        "load_monitor_interval_secs",
        "adaptive_admission.load_monitor_interval_secs",
      ],
      ["eviction_interval_secs: 30", "eviction_interval_secs", "selection.eviction_interval_secs"],
      [
        "models: { m: { cache_threshold: 0.5 } }",
        "models.m.cache_threshold",
        "selection.cache_threshold",
      ],
      ["cache_aware_engine_load: true", "cache_aware_engine_load", "selection.engine_load"],
      ["engine_metrics: true", "engine_metrics", "adaptive_admission.engine_metrics"],
      ["priority_scheduler_enabled: true", "priority_scheduler_enabled", "scheduler.enabled"],
      ["capacity_credit_generation: g", "capacity_credit_generation", "credits.generation"],
      ["capacity_credit_ttl_ms: 1", "capacity_credit_ttl_ms", "credits.ttl_ms"],
      [
        "capacity_credit_terminal_retention_secs: 1",
        "capacity_credit_terminal_retention_secs",
        "credits.terminal_retention_secs",
      ],
      ["capacity_credit_required: true", "capacity_credit_required", "credits.required"],
      ["model_policy: {}", "model_policy", "models.<name>.policy"],
    ];
    for (const [text, path, now] of renamed) {
      expect(problemsOf(`${WORKER}${text}\n`)[0]).to.match(
        new RegExp(`^weir\\.yaml:3:\\d+ ${path}: is not a key here; the key is ${now}$`),
      );
    }
  });

  describe("__proto__ was swallowed and called valid:", () => {
    const TENANT =
      "must be a tenant key: auth:<id>, header:<id>, ip:<address> in its shortest spelling, or anonymous";
    const NAME = "must be a name other than __proto__";
    const UNKNOWN = "is not a known key";
    const CLASS = "is not allowed here; it must be one of bulk, default, interactive, system";
    const FILTER = "envoy: { http_filters_before: [{ name: f,";
    const mappings: readonly (readonly [text: string, path: string, message: string])[] = [
      // Free names.
      ["fair_share: { tenant_weights: { __proto__: 3 } }", "fair_share.tenant_weights", TENANT],
      [
        "trust: { request_model: true }\nfair_share: { model_profiles: { __proto__: { other_weight: 2 } } }",
        "fair_share.model_profiles",
        NAME,
      ],
      [
        "trust: { request_model: true }\nfair_share: { model_profiles: { m: { tenant_weights: { __proto__: 2 } } } }",
        "fair_share.model_profiles.m.tenant_weights",
        TENANT,
      ],
      [
        "scheduler: { tenant_policies: { __proto__: { max_class: bulk } } }",
        "scheduler.tenant_policies",
        TENANT,
      ],
      [
        "scheduler: { admission_partitions: { __proto__: { max_concurrent_requests: 1, queue_size: 1 } } }",
        "scheduler.admission_partitions",
        NAME,
      ],
      ["models: { __proto__: { aliases: [n] } }", "models", NAME],
      ["models: { __proto__: }", "models", NAME],
      ["models: &all { m: {}, __proto__: *all }", "models", NAME],
      // A few words.
      ["scheduler: { classes: { __proto__: {} } }", "scheduler.classes", CLASS],
      // Fixed keys, and what is handed to Envoy as it stands.
      ["limits: { __proto__: 1 }", "limits", UNKNOWN],
      [
        "envoy: { tls: { certificate_file: c, private_key_file: k, __proto__: {} } }",
        "envoy.tls",
        UNKNOWN,
      ],
      ["models: { m: { __proto__: 1 } }", "models.m", UNKNOWN],
      [
        "scheduler: { tenant_policies: { anonymous: { max_class: bulk, __proto__: 1 } } }",
        "scheduler.tenant_policies.anonymous",
        UNKNOWN,
      ],
      [`${FILTER} __proto__: 1 }] }`, "envoy.http_filters_before[0]", UNKNOWN],
      [
        `${FILTER} typed_config: { "@type": t, __proto__: 1 } }] }`,
        "envoy.http_filters_before[0].typed_config",
        UNKNOWN,
      ],
    ];
    for (const [text, path, message] of mappings) {
      it(`in ${path}: ${text.slice(text.lastIndexOf("\n") + 1)}`, () => {
        const problems = problemsOf(`${WORKER}${text}\n`);
        const column = String(text.slice(text.lastIndexOf("\n") + 1).indexOf("__proto__") + 1);
        const line = text.includes("\n") ? "4" : "3";
        expect(problems).to.deep.equal([
          `weir.yaml:${line}:${column} ${path}.__proto__: ${message}`,
        ]);
      });
    }

    it("in a worker's labels, in the environment and in a flag", () => {
      expect(
        problemsOf(
          'workers: [{ url: "http://h:1", cluster: a, models: [m], labels: { __proto__: 1 } }]\n',
        ),
      ).to.deep.equal([`weir.yaml:1:67 workers[0].labels.__proto__: ${UNKNOWN}`]);
      const env = { WEIR_FAIR_SHARE__TENANT_WEIGHTS: "{ __proto__: 3 }" };
      expect(problemsOf(WORKER, { env })).to.deep.equal([
        `environment WEIR_FAIR_SHARE__TENANT_WEIGHTS fair_share.tenant_weights.__proto__: ${TENANT}`,
      ]);
      expect(problemsOf(WORKER, { flags: ["--models", "{ __proto__: {} }"] })).to.deep.equal([
        `flag --models models.__proto__: ${NAME}`,
      ]);
    });

    it("hid no other problem beside it", () => {
      expect(
        problemsOf(`${WORKER}fair_share: { tenant_weights: { __proto__: 3, anonymous: x } }\n`),
      ).to.have.length(2);
    });
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
