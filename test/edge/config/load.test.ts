import { expect } from "chai";
import { configOf, problemsOf, warningsOf, WORKER } from "./support.js";

describe("loading a configuration", () => {
  it("fills in every default of a file that names one worker", () => {
    const config = configOf(WORKER);
    expect(config.listen).to.deep.equal({
      ext_proc: { kind: "tcp", host: "127.0.0.1", port: 9002 },
      transport: "h2c",
    });
    expect(config.envoy).to.deep.equal({
      address: "127.0.0.1",
      port: 10000,
      admin_address: "127.0.0.1",
      admin_port: 9901,
      ext_proc_target: undefined,
      trusted_hops: 0,
      message_timeout_ms: 2000,
      max_message_timeout_ms: 305000,
      stream_idle_timeout_ms: 605000,
      request_timeout_ms: 60000,
      http_filters_before: [],
      identity_metadata: [],
      tls: undefined,
    });
    expect(config.admin).to.deep.equal({
      listen: { kind: "tcp", host: "127.0.0.1", port: 9190 },
      log_level: "info",
    });
    expect(config.workers).to.deep.equal([
      {
        id: "a",
        url: "http://127.0.0.1:8101",
        cluster: "a",
        engine: undefined,
        models: ["m"],
        labels: { max_running_requests: undefined, admission_partition: undefined },
        load_monitor_interval_secs: 10,
        telemetry_url: "http://127.0.0.1:8101",
        api_key: undefined,
        kv_events: undefined,
      },
    ]);
    expect([...config.models]).to.deep.equal([]);
    expect(config.trust).to.deep.equal({
      tenant_id: false,
      prefer_tenant_id: false,
      request_model: false,
      output_token_estimate: false,
      admission_partition: false,
      target_worker_url: false,
      excluded_worker_urls: false,
      routing_key: false,
      tenant_header_name: "x-weir-tenant-id",
      peers: [],
    });
    expect(config.headers).to.deep.equal({ aliases: false });
    const { classes, tenant_policies, admission_partitions, ...scheduler } = config.scheduler;
    expect(scheduler).to.deep.equal({
      enabled: true,
      max_concurrent_requests: undefined,
      queue_size: 100,
      queue_timeout_secs: 60,
      queue_timeout_status: 429,
      default_max_class: 1,
      reserved_share_max: 0.5,
      starvation_max_share: 0.25,
      rate_limit_tokens_per_second: undefined,
      default_admission_partition: "default",
      adaptive_capacity: false,
    });
    expect(classes).to.have.length(4);
    expect([...tenant_policies, ...admission_partitions]).to.deep.equal([]);
    expect(config.fair_share).to.deep.equal({
      enabled: true,
      default_weight: 1,
      default_output_tokens: 256,
      tenant_weights: new Map(),
      model_profiles: new Map(),
      max_queued_requests_per_tenant: 64,
      max_tracked_tenants: 100_000,
    });
    expect(config.adaptive_admission).to.deep.equal({
      mode: "off",
      estimator_half_life_secs: 900,
      min_load_coverage: 0.8,
      feedback_probe_requests_per_healthy_replica: 2,
      feedback_max_waiting_requests_per_healthy_replica: 2,
      feedback_max_token_usage: 0.9,
      feedback_throughput_improvement_ratio: 0.02,
      feedback_reference_rule: false,
      engine_metrics: false,
    });
    expect(config.selection).to.deep.equal({
      cache_threshold: 0.3,
      balance_abs_threshold: 64,
      balance_reserved_threshold: 32_768,
      balance_rel_threshold: 1.5,
      balance_token_usage_threshold: 1,
      overload_token_usage_threshold: 1,
      engine_load: false,
      fallback_output_token_estimate: 4096,
      max_cached_owners_per_prefix: 0,
      cache_owner_spill_cooldown_secs: 0,
      max_tree_size: 67_108_864,
      eviction_interval_secs: 60,
      committed_ttl_s: 600,
      block_chars: 256,
      block_size: 16,
      max_prefix_blocks: 256,
    });
    expect(config.settlement).to.deep.equal({ decode_max_bytes: 67108864 });
    expect(config.health).to.deep.equal({
      path: "/health",
      interval_secs: 5,
      timeout_secs: 2,
      failure_threshold: 2,
      success_threshold: 1,
    });
    expect(config.breaker).to.deep.equal({
      consecutive_failures: 5,
      failure_ratio: 0.5,
      window_requests: 20,
      window_secs: 30,
      open_secs: 10,
    });
    expect(config.limits).to.deep.equal({
      body_limit_bytes: 33554432,
      drain_timeout_secs: 30,
      shutdown_grace_period_secs: 600,
      tenant_metric_top_n: 32,
    });
    expect(warningsOf(WORKER)).to.deep.equal([]);
  });

  it("keeps what the file says and brings texts into one spelling", () => {
    const config = configOf(`
listen: { ext_proc: "unix:/run/weir/x.sock" }
envoy:
  ext_proc_target: "[::1]:9002"
  message_timeout: 250ms
  request_timeout: 1.5m
  identity_metadata:
    - { namespace: n, path: claims.sub }
    - { namespace: n, path: [a.b, c] }
  http_filters_before: [{ name: f, typed_config: { x: [1, null] } }]
  tls: { certificate_file: c.pem, private_key_file: k.pem }
workers:
  - { url: "HTTP://Worker-1:08000/", cluster: c1, id: one, engine: sglang, telemetry_url: "http://Worker-1:8002", models: [m], labels: { max_running_requests: 65535, admission_partition: p } }
models: { m: { aliases: [x, y] } }
trust: { tenant_id: true, tenant_header_name: X-Team, peers: ["10.0.0.0/8"] }
scheduler:
  max_concurrent_requests: 4
  queue_size: 3
  admission_partitions: { p: { max_concurrent_requests: 4, queue_size: 3 } }
  default_admission_partition: p
  enabled: true
settlement: { stream_usage: observe, source: response_body }
`);
    expect(config.listen.ext_proc).to.deep.equal({ kind: "unix", path: "/run/weir/x.sock" });
    expect(config.envoy.ext_proc_target).to.deep.equal({ kind: "tcp", host: "::1", port: 9002 });
    expect(config.envoy.message_timeout_ms).to.equal(250);
    expect(config.envoy.request_timeout_ms).to.equal(90000);
    expect(config.envoy.identity_metadata).to.deep.equal([
      { namespace: "n", path: ["claims", "sub"] },
      { namespace: "n", path: ["a.b", "c"] },
    ]);
    expect(config.envoy.http_filters_before).to.deep.equal([
      { name: "f", typed_config: { x: [1, null] } },
    ]);
    expect(config.envoy.tls).to.deep.equal({
      certificate_file: "c.pem",
      private_key_file: "k.pem",
      client_ca_file: undefined,
    });
    expect(config.workers[0]).to.deep.equal({
      id: "one",
      url: "http://worker-1:8000",
      cluster: "c1",
      engine: "sglang",
      models: ["m"],
      labels: { max_running_requests: 65535, admission_partition: "p" },
      load_monitor_interval_secs: 10,
      telemetry_url: "http://worker-1:8002",
      api_key: undefined,
      kv_events: undefined,
    });
    expect([...config.models]).to.deep.equal([
      ["m", { aliases: ["x", "y"], policy: "power_of_two", ownership: "committed" }],
    ]);
    expect(config.trust.tenant_header_name).to.equal("x-team");
    expect(config.scheduler.max_concurrent_requests).to.equal(4);
    expect([...config.scheduler.admission_partitions]).to.deep.equal([
      [
        "p",
        {
          max_concurrent_requests: 4,
          max_concurrent_requests_per_healthy_replica: undefined,
          queue_size: 3,
        },
      ],
    ]);
  });

  it("freezes the value to its leaves", () => {
    const config = configOf(`${WORKER}envoy: { http_filters_before: [{ name: f, a: { b: 1 } }] }`);
    const filter = config.envoy.http_filters_before[0] as { a: object };
    for (const part of [
      config,
      config.trust,
      config.workers,
      config.workers[0]?.labels,
      config.scheduler.classes,
      config.scheduler.classes[0],
      filter.a,
    ]) {
      expect(Object.isFrozen(part)).to.equal(true);
    }
  });

  it("shows every problem at once, sorted by where it stands", () => {
    const text = `trust: { prefer_tenant_id: true, peers: [10.0.0.0/33] }
workers:
  - url: https://a:1
    cluster: "b c"
    models: []
scheduler:
  queue_size: -1
  queue_sise: 5
health: { timeout_secs: 5 }
`;
    const outside = {
      env: { WEIR_BREAKER__OPEN_SECS: "never" },
      flags: ["--admin.log_level=loud"],
    };
    expect(problemsOf(text, outside)).to.deep.equal([
      "weir.yaml:1:10 trust.prefer_tenant_id: trust.prefer_tenant_id is on and trust.tenant_id is off; " +
        "turn trust.tenant_id on, or trust.prefer_tenant_id off",
      'weir.yaml:1:42 trust.peers[0]: must be an IP address, a CIDR or a spiffe:// id, got "10.0.0.0/33"',
      'weir.yaml:3:5 workers[0].url: must be http://host:port without path, query or user, got "https://a:1"',
      'weir.yaml:4:5 workers[0].cluster: must be 1 to 64 of A-Z a-z 0-9 _ . -, got "b c"',
      "weir.yaml:5:5 workers[0].models: must be a list of 1 to 1000 elements, got []",
      "weir.yaml:7:3 scheduler.queue_size: must be a whole number from 0 to 1000000, got -1",
      "weir.yaml:8:3 scheduler.queue_sise: is not a known key; did you mean queue_size?",
      "weir.yaml:9:11 health.timeout_secs: must be below health.interval_secs = 5, got 5",
      'environment WEIR_BREAKER__OPEN_SECS breaker.open_secs: must be a number from 0.1 to 3600, got "never"',
      "flag --admin.log_level admin.log_level: must be one of trace, debug, info, warn, error, " +
        'got "loud"',
    ]);
  });

  it("reports one bad value once and not again in the rules that would use it", () => {
    expect(
      problemsOf(`${WORKER}scheduler:
  queue_size: -5
  default_admission_partition: p
  admission_partitions: { p: { max_concurrent_requests: 1, queue_size: 50 } }
`),
    ).to.deep.equal([
      "weir.yaml:4:3 scheduler.queue_size: must be a whole number from 0 to 1000000, got -5",
    ]);
  });

  it("names the place of a missing key by what should hold it", () => {
    expect(problemsOf("admin: {}\n")).to.deep.equal([
      "weir.yaml:1:1 workers: is missing; it must be a list of 1 to 1000 elements",
    ]);
    expect(problemsOf("\nworkers:\n  - cluster: a\n    models: [m]\n")).to.deep.equal([
      "weir.yaml:3:5 workers[0].url: is missing; it must be http://host:port without path, query or user",
    ]);
  });

  it("refuses an empty file for its missing workers, and a list for not being a mapping", () => {
    const missing = "weir.yaml:1:1 workers: is missing; it must be a list of 1 to 1000 elements";
    for (const text of ["", "\n# only a comment\n", "---\n"]) {
      expect(problemsOf(text)).to.have.length(1);
      expect(problemsOf(text)[0]).to.match(/workers: is missing/);
    }
    expect(problemsOf("")).to.deep.equal([missing]);
    expect(problemsOf("- a\n")).to.deep.equal([
      'weir.yaml:1:1 must be a mapping of keys, got ["a"]',
    ]);
  });
});

describe("a file that is not sound YAML", () => {
  it("gives line and column of a syntax error", () => {
    expect(problemsOf(`${WORKER}limits: { a: 1\nadmin: {}\n`)[0]).to.match(
      /^weir\.yaml:4:1 not readable as YAML: /,
    );
  });

  it("refuses a key that stands twice, at the second one", () => {
    expect(problemsOf(`${WORKER}scheduler:\n  queue_size: 1\n  queue_size: 2\n`)).to.deep.equal([
      "weir.yaml:5:3 this key stands twice in one mapping; keep one of them",
    ]);
  });

  it("refuses two spellings of one key: a number beside its text, and an alias of a key", () => {
    for (const [models, column] of [
      ['{ 1: {}, "1": {} }', 18],
      ['{ true: {}, "true": {} }', 21],
      ["{ &m m: {}, *m : {} }", 21],
    ] as const) {
      expect(problemsOf(`${WORKER}models: ${models}\n`), models).to.deep.equal([
        `weir.yaml:3:${String(column)} this key stands twice in one mapping; keep one of them`,
      ]);
    }
    expect(problemsOf(`${WORKER}models: { null: {}, "null": {} }\n`)[0]).to.contain(
      "a name of 1 to",
    );
    const models = '{ 1: {}, 2: {}, "null": {}, x1: {} }';
    expect([...configOf(`${WORKER}models: ${models}\n`).models.keys()]).to.have.length(4);
  });

  it("refuses a second document and an unknown tag", () => {
    expect(problemsOf(`${WORKER}---\na: 1\n`)).to.deep.equal([
      "weir.yaml:3:1 the file holds more than one YAML document; keep one",
    ]);
    expect(problemsOf(`${WORKER}admin: !secret {}\n`)[0]).to.match(/^weir\.yaml:3:8 /);
  });

  it("shows problems of environment and flags beside a syntax error", () => {
    const lines = problemsOf("a: [", { flags: ["stray"] });
    expect(lines[lines.length - 1]).to.equal(
      "flag stray is not a setting; settings have the form --section.key value",
    );
    expect(lines[0]).to.match(/^weir\.yaml:1:/);
  });

  it("takes aliases up to the limit and refuses a file that multiplies them", () => {
    expect(configOf(`limits: &l {}\nhealth: *l\n${WORKER}`).health.interval_secs).to.equal(5);
    const bomb = ["a: &a [x, x, x, x, x, x, x, x, x]"];
    for (let level = 1; level < 9; level += 1) {
      const before = String.fromCharCode(96 + level);
      const name = String.fromCharCode(97 + level);
      bomb.push(`${name}: &${name} [${Array(9).fill(`*${before}`).join(", ")}]`);
    }
    expect(problemsOf(bomb.join("\n"))[0]).to.match(/^weir\.yaml:1:1 not readable as YAML: /);
  });

  it("takes nesting up to the limit and answers absurd nesting with a message, not a crash", () => {
    const nested = (lists: number): string =>
      `envoy: { http_filters_before: [{ name: f, deep: ${"[".repeat(lists)}${"]".repeat(lists)} }] }`;
    // The document, four collections around the lists, and the lists themselves.
    expect(configOf(WORKER + nested(90)).envoy.http_filters_before).to.have.length(1);
    const tooDeep =
      "weir.yaml:1:1 nesting is too deep: at most 100 mappings and lists inside of each other";
    for (const text of [nested(100), "[".repeat(50_000), "- ".repeat(50_000)]) {
      expect(problemsOf(text)).to.deep.equal([tooDeep]);
    }
    const flags = [`--models=${"[".repeat(5000)}`];
    expect(problemsOf(WORKER, { flags })[0]).to.match(/^flag --models models: must be a mapping/);
  });

  it("shows the first twenty of many faults", () => {
    expect(problemsOf("a: [\n".repeat(50))).to.have.length(20);
  });

  it("answers an unknown alias and an over-long file with a message", () => {
    expect(problemsOf("a: *nobody")[0]).to.match(/not readable as YAML: .*nobody/);
    const comment = (bytes: number): string => `${WORKER}#${"x".repeat(bytes - WORKER.length - 1)}`;
    expect(configOf(comment(1_048_576)).workers).to.have.length(1);
    expect(problemsOf(comment(1_048_577))).to.deep.equal([
      "weir.yaml:1:1 the file is too large: at most 1048576 bytes are read, got 1048577",
    ]);
  });

  it("treats __proto__ as the unknown key it is", () => {
    expect(problemsOf(`${WORKER}__proto__: { workers: [] }\n`)).to.deep.equal([
      "weir.yaml:3:1 __proto__: is not a known key",
    ]);
  });
});
