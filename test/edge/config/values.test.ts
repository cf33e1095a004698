// Every key with a bound: the values at its limits are taken, the ones past them are refused with
// the sentence that says what is allowed. The bounds are written out here, not read from the schema.

import { expect } from "chai";
import { configOf, problemsOf, WORKER } from "./support.js";

interface Bound {
  readonly key: string;
  /** YAML of values that are taken. */
  readonly good: readonly string[];
  /** YAML of values that are refused. */
  readonly bad: readonly string[];
  readonly allowed: string;
}

const whole = (key: string, min: number, max: number): Bound => ({
  key,
  good: [String(min), String(max)],
  bad: [String(min - 1), String(max + 1), "1.5", ".nan", ".inf", "true", '"5"', "[]", "null"],
  allowed: `must be a whole number from ${String(min)} to ${String(max)}`,
});

const decimal = (key: string, min: string, max: string, below: string, above: string): Bound => ({
  key,
  good: [min, max],
  bad: [below, above, ".nan", "-.inf", "true", '"1"', "null"],
  allowed: `must be a number from ${min} to ${max}`,
});

const onOff = (key: string): Bound => ({
  key,
  good: ["true", "false"],
  bad: ['"true"', "yes", "1", "null"],
  allowed: "must be true or false",
});

const LISTENER = "must be host:port (IPv6 in brackets, port 1 to 65535) or unix:/absolute/path";
const TCP = "must be host:port (IPv6 in brackets, port 1 to 65535)";
const TENANT_HEADER =
  "must be a header name of letters, digits and dashes that HTTP, Envoy or Weir do not use for something else";

const BOUNDS: readonly Bound[] = [
  {
    key: "listen.ext_proc",
    good: ["127.0.0.1:1", "localhost:65535", '"[::1]:9002"', `unix:/${"x".repeat(106)}`],
    bad: ["127.0.0.1:0", "a:65536", "9002", "unix:relative", `unix:/${"x".repeat(107)}`, "null"],
    allowed: LISTENER,
  },
  {
    key: "listen.transport",
    good: ["auto", "h2c", "http2", "grpc_js"],
    bad: ["grpc-js", "H2C", "true", "null"],
    allowed: "must be one of auto, h2c, http2, grpc_js",
  },
  {
    key: "admin.listen",
    good: ["0.0.0.0:9190"],
    bad: ["unix:/run/a.sock", "127.1:9190", "9190"],
    allowed: TCP,
  },
  {
    key: "envoy.address",
    good: ["0.0.0.0", '"::"'],
    bad: ["localhost", "1.2.3", "fe80::1%eth0"],
    allowed: "must be an IP address",
  },
  whole("envoy.port", 1, 65535),
  whole("envoy.admin_port", 1, 65535),
  whole("envoy.trusted_hops", 0, 10),
  {
    key: "envoy.message_timeout",
    good: ["200ms", "0.2s", "60s", "1m"],
    bad: ["199ms", "60001ms", "2", "2 s", "-2s", "1h"],
    allowed: "must be a duration such as 2s or 500ms, from 200ms to 60s",
  },
  {
    key: "envoy.request_timeout",
    good: ["1s", "60m"],
    bad: ["999ms", "3601s"],
    allowed: "must be a duration such as 2s or 500ms, from 1s to 60m",
  },
  {
    key: "trust.tenant_header_name",
    good: ["x-team", "X-Comet-User", "x-smg-tenant-id", "a".repeat(64)],
    bad: [
      ...["host", "Authorization", "content-length", "accept-language", "x-forwarded-for"],
      ...["x-weir-cluster", "x-weir-peer", "x-smg-request-model", "x-request-id", "te"],
      ...["a b", "x_team", '":path"', '""', "a".repeat(65)],
    ],
    allowed: TENANT_HEADER,
  },
  ...["tenant_id", "request_model", "output_token_estimate", "admission_partition"].map((name) =>
    onOff(`trust.${name}`),
  ),
  onOff("trust.target_worker_url"),
  onOff("trust.excluded_worker_urls"),
  onOff("trust.routing_key"),
  onOff("headers.aliases"),
  {
    key: "scheduler.max_concurrent_requests",
    good: ["-1", "1", "65535"],
    bad: ["0", "-2", "65536", "1.5", "null"],
    allowed: "must be -1 (what the workers report) or a whole number from 1 to 65535",
  },
  whole("scheduler.queue_size", 0, 1_000_000),
  whole("scheduler.queue_timeout_secs", 1, 3600),
  onOff("scheduler.enabled"),
  onOff("scheduler.fallback_to_limiter"),
  whole("scheduler.rate_limit_tokens_per_second", 0, 1_000_000),
  decimal("scheduler.reserved_share_max", "0", "1", "-0.01", "1.01"),
  decimal("scheduler.starvation_max_share", "0", "1", "-0.01", "1.01"),
  {
    key: "scheduler.default_max_class",
    good: ["bulk", "default", "interactive", "system"],
    bad: ["System", "urgent", "1", "null", '""'],
    allowed: "must be one of bulk, default, interactive, system",
  },
  {
    key: "scheduler.queue_timeout_status",
    good: ["408", "429", "503"],
    bad: ["500", '"429"', "null"],
    allowed: "must be one of 408, 429, 503",
  },
  onOff("fair_share.enabled"),
  decimal("fair_share.default_weight", "0.001", "10000", "0.0009", "10001"),
  whole("fair_share.default_output_tokens", 1, 4_294_967_295),
  whole("fair_share.max_queued_requests_per_tenant", 1, 4_294_967_295),
  whole("fair_share.max_tracked_tenants", 1000, 1_000_000),
  {
    key: "scheduler.adaptive_capacity",
    good: ["auto", "false"],
    bad: ["on", "Auto", '"true"', "1", "null"],
    allowed: "must be one of auto, true, false",
  },
  {
    key: "adaptive_admission.mode",
    good: ["off", "shadow", "enforce", "Enforce", '" OFF "', "SHADOW"],
    bad: ["on", "false", "true", '""', '"en force"', "null", "1"],
    allowed: "must be one of off, shadow, enforce",
  },
  {
    key: "adaptive_admission.strategy",
    good: ["engine_feedback", '" Engine_Feedback "'],
    bad: ["feedback", '""', "null", "true"],
    allowed: "must be engine_feedback",
  },
  {
    key: "adaptive_admission.estimator_half_life_secs",
    good: ["0.001", "5e-324", "900", "1.7976931348623157e+308"],
    bad: ["0", "-0", "-1", ".inf", "-.inf", ".nan", "true", '"900"', "null"],
    allowed: "must be a finite number above 0",
  },
  ...["min_load_coverage", "feedback_max_token_usage"].map((name) => ({
    key: `adaptive_admission.${name}`,
    good: ["5e-324", "0.8", "1"],
    bad: ["0", "-0.1", "1.0000000000000002", ".inf", ".nan", '"1"', "null"],
    allowed: "must be a number above 0 and up to 1",
  })),
  whole("adaptive_admission.feedback_probe_requests_per_healthy_replica", 0, 4_294_967_295),
  whole("adaptive_admission.feedback_max_waiting_requests_per_healthy_replica", 0, 4_294_967_295),
  decimal(
    "adaptive_admission.feedback_throughput_improvement_ratio",
    "0",
    "1",
    "-0.0001",
    "1.0001",
  ),
  onOff("adaptive_admission.feedback_reference_rule"),
  onOff("adaptive_admission.engine_metrics"),
  whole("adaptive_admission.load_monitor_interval_secs", 1, 30),
  decimal("selection.cache_threshold", "0", "1", "-0.01", "1.01"),
  whole("selection.balance_abs_threshold", 0, 4_294_967_295),
  whole("selection.balance_reserved_threshold", 1, 4_294_967_295),
  {
    key: "selection.balance_rel_threshold",
    good: ["1", "1.5", "1.7976931348623157e+308"],
    bad: ["0.99", "0", "-1", ".inf", ".nan", '"2"', "null"],
    allowed: "must be a finite number of 1 or more",
  },
  ...["balance_token_usage_threshold", "overload_token_usage_threshold"].map((name) => ({
    key: `selection.${name}`,
    good: ["5e-324", "0.8", "1"],
    bad: ["0", "-0.1", "1.0000000000000002", "80", ".inf", ".nan", '"1"', "null"],
    allowed: "must be a number above 0 and up to 1",
  })),
  onOff("selection.engine_load"),
  whole("selection.fallback_output_token_estimate", 1, 4_294_967_295),
  whole("selection.max_cached_owners_per_prefix", 0, 1000),
  whole("selection.cache_owner_spill_cooldown_secs", 0, 86_400),
  whole("selection.max_tree_size", 1, 4_294_967_296),
  whole("selection.eviction_interval_secs", 1, 3600),
  whole("selection.committed_ttl_s", 1, 86_400),
  whole("selection.block_chars", 1, 1_024),
  whole("selection.block_size", 1, 4096),
  whole("selection.max_prefix_blocks", 1, 1_024),
  whole("settlement.decode_max_bytes", 65_536, 1_073_741_824),
  {
    key: "health.path",
    good: ["/", `/${"x".repeat(255)}`],
    bad: ["health", '"/a b"', `/${"x".repeat(256)}`, "/é"],
    allowed: "must be a path that begins with /",
  },
  decimal("health.timeout_secs", "0.05", "60", "0.04", "60.1"),
  whole("health.failure_threshold", 1, 100),
  whole("health.success_threshold", 1, 100),
  whole("breaker.consecutive_failures", 1, 1000),
  decimal("breaker.failure_ratio", "0.01", "1", "0", "1.01"),
  whole("breaker.window_requests", 1, 10_000),
  decimal("breaker.window_secs", "0.1", "3600", "0.09", "3600.1"),
  decimal("breaker.open_secs", "0.1", "3600", "0", "3601"),
  whole("limits.body_limit_bytes", 1024, 1_073_741_824),
  whole("limits.drain_timeout_secs", 0, 3600),
  whole("limits.shutdown_grace_period_secs", 0, 86_400),
  whole("limits.tenant_metric_top_n", 0, 1000),
];

/** What a key needs beside it, so that only its own bound is tested. */
const BESIDE: Readonly<Record<string, string>> = {
  // The longest check must still be below the interval.
  "health.timeout_secs": "interval_secs: 100, ",
  // Belongs to the limiter.
  "scheduler.queue_timeout_secs": "enabled: false, ",
  // A cooldown is for prefixes that may spread.
  "selection.cache_owner_spill_cooldown_secs": "max_cached_owners_per_prefix: 1, ",
};

describe("values of a configuration", () => {
  for (const { key, good, bad, allowed } of BOUNDS) {
    const [section = "", name = ""] = key.split(".");
    const text = (value: string): string => {
      return `${WORKER}${section}: { ${BESIDE[key] ?? ""}${name}: ${value} }\n`;
    };

    it(`${key}: takes its limits and refuses what is past them`, () => {
      for (const value of good) configOf(text(value));
      for (const value of bad) {
        const problems = problemsOf(text(value));
        expect(problems, value).to.have.length(1);
        expect(problems[0]).to.match(/^weir\.yaml:3:\d+ /);
        expect(problems[0]).to.contain(` ${key}: ${allowed}, got `);
      }
    });
  }

  it("health.interval_secs: takes its limits and refuses what is past them", () => {
    const text = (value: string): string =>
      `${WORKER}health: { timeout_secs: 0.05, interval_secs: ${value} }\n`;
    for (const value of ["0.1", "3600"]) configOf(text(value));
    for (const value of ["0.09", "3600.5"]) {
      expect(problemsOf(text(value))).to.deep.equal([
        `weir.yaml:3:31 health.interval_secs: must be a number from 0.1 to 3600, got ${value}`,
      ]);
    }
  });

  it("trust.peers: takes addresses, CIDRs and SPIFFE ids and nothing else", () => {
    const text = (peer: string): string => `${WORKER}trust: { peers: [${JSON.stringify(peer)}] }\n`;
    const good = ["10.0.0.1", "10.0.0.0/0", "10.0.0.0/32", "::1", "fd00::/128", "spiffe://a/b/c"];
    for (const peer of good) expect(configOf(text(peer)).trust.peers).to.deep.equal([peer]);
    const bad = [
      "gateway",
      "10.0.0.0/33",
      "10.0.0/8",
      "fd00::/129",
      "::ffff:10.0.0.0/95",
      "1.2.3.4/",
    ];
    for (const peer of [...bad, "spiffe://a", "spiffe://a/", "spiffe://a/*", "https://a/b", ""]) {
      expect(problemsOf(text(peer))).to.deep.equal([
        "weir.yaml:3:18 trust.peers[0]: must be an IP address, a CIDR or a spiffe:// id, " +
          `got ${JSON.stringify(peer)}`,
      ]);
    }
  });

  it("workers: takes a thousand and no more, and at least one", () => {
    const workers = (count: number): string =>
      `workers:\n${Array.from(
        { length: count },
        (_, i) => `  - { url: "http://h:${String(i + 1)}", cluster: c${String(i)}, models: [m] }\n`,
      ).join("")}`;
    expect(configOf(workers(1000)).workers).to.have.length(1000);
    for (const text of [workers(1001), "workers: []\n"]) {
      expect(problemsOf(text)[0]).to.match(
        /^weir\.yaml:1:1 workers: must be a list of 1 to 1000 elements, got \[/,
      );
    }
  });

  const worker = (fields: string): string => `workers: [{ ${fields} }]\n`;

  it("workers[].telemetry_url: is http, a host, a port and nothing else, and the url when absent", () => {
    const text = (more: string): string =>
      worker(`url: "http://h:1", cluster: a, models: [m]${more}`);
    const urls = (more: string): string[] =>
      configOf(text(more)).workers.map(({ telemetry_url }) => telemetry_url);
    expect(urls("")).to.deep.equal(["http://h:1"]);
    expect(urls(', telemetry_url: "http://H:8002/"')).to.deep.equal(["http://h:8002"]);
    expect(problemsOf(text(', telemetry_url: "http://h:1/metrics"'))).to.deep.equal([
      "weir.yaml:1:57 workers[0].telemetry_url: must be http://host:port without path, query or user, " +
        'got "http://h:1/metrics"',
    ]);
  });

  it("workers[].url: is http, a host, a port and nothing else", () => {
    const text = (url: string): string => worker(`url: "${url}", cluster: a, models: [m]`);
    for (const url of ["http://h:1", "http://1.2.3.4:65535/", "http://[::1]:80"])
      configOf(text(url));
    const bad = ["https://h:1", "http://h", "http://h:0", "http://h:65536", "http://u@h:1", "h:1"];
    for (const url of [
      ...bad,
      "http://h:1/v1",
      "http://h:1?x",
      "http://1.2.3:1",
      "http://-h:1",
      "",
    ]) {
      expect(problemsOf(text(url)), url).to.deep.equal([
        "weir.yaml:1:13 workers[0].url: must be http://host:port without path, query or user, " +
          `got "${url}"`,
      ]);
    }
  });

  it("workers[].cluster: is 1 to 64 plain characters and not Weir's own", () => {
    const text = (cluster: string): string =>
      worker(`url: "http://h:1", cluster: "${cluster}", models: [m]`);
    configOf(text("a".repeat(64)));
    configOf(text("A-z_0.9"));
    for (const cluster of ["", "a".repeat(65), "a b", "a/b", "é"]) {
      expect(problemsOf(text(cluster))[0]).to.contain(
        `workers[0].cluster: must be 1 to 64 of A-Z a-z 0-9 _ . -, got "${cluster}"`,
      );
    }
    expect(problemsOf(text("ext_proc"))).to.deep.equal([
      "weir.yaml:1:32 workers[0].cluster: must not be ext_proc, the cluster of Weir itself",
    ]);
  });

  it("names: have 1 to 256 characters, no blanks around and no controls", () => {
    const text = (name: string): string => `${WORKER}models: { ${JSON.stringify(name)}: {} }\n`;
    for (const name of ["x".repeat(256), "meta/Llama 3.1-8B", "模型"]) configOf(text(name));
    for (const name of ["", " x", "x ", "a\u0007b", "x".repeat(257)]) {
      expect(problemsOf(text(name))[0]).to.contain(
        "must be a name of 1 to 256 characters without blanks around it",
      );
    }
  });

  it("engine, labels and log level: name what is allowed", () => {
    const engine = worker('url: "http://h:1", cluster: a, models: [m], engine: llama');
    expect(problemsOf(engine)).to.deep.equal([
      'weir.yaml:1:57 workers[0].engine: must be one of vllm, sglang, trtllm, triton, got "llama"',
    ]);
    const labels = (value: string): string =>
      worker(
        `url: "http://h:1", cluster: a, models: [m], labels: { max_running_requests: ${value} }`,
      );
    for (const value of ["1", "65535"]) configOf(labels(value));
    for (const value of ["0", "65536"]) {
      expect(problemsOf(labels(value))).to.deep.equal([
        "weir.yaml:1:67 workers[0].labels.max_running_requests: " +
          `must be a whole number from 1 to 65535, got ${value}`,
      ]);
    }
  });

  it("a section without any key under it is refused, not taken as empty", () => {
    expect(problemsOf(`${WORKER}scheduler:\n`)).to.deep.equal([
      "weir.yaml:3:1 scheduler: must be a mapping of keys, got nothing",
    ]);
  });

  it("identity paths, filters and TLS files: name what is allowed", () => {
    const envoy = (fields: string): string[] => problemsOf(`${WORKER}envoy: { ${fields} }\n`);
    for (const path of ['""', '"a..b"', "[]", '[a, ""]', "5"]) {
      expect(envoy(`identity_metadata: [{ namespace: n, path: ${path} }]`)[0]).to.match(
        /identity_metadata\[0\]\.path.*: must be keys with dots between them, or a list of keys, got /,
      );
    }
    expect(envoy("http_filters_before: [{ typed_config: {} }]")[0]).to.match(
      /^weir\.yaml:3:32 envoy\.http_filters_before\[0\]\.name: is missing; it must be the name/,
    );
    expect(envoy("http_filters_before: [{ name: envoy.filters.http.router }]")[0]).to.match(
      /must be the name of a filter other than envoy\.filters\.http\.ext_proc and envoy\.filters\.http\.router, got/,
    );
    expect(envoy("http_filters_before: [jwt]")[0]).to.match(
      /must be an HTTP filter: name and typed_config, got "jwt"/,
    );
    expect(envoy('tls: { certificate_file: "", client_ca_file: ca.pem }')).to.deep.equal([
      "weir.yaml:3:10 envoy.tls.private_key_file: is missing; it must be the path of a file Envoy can read",
      'weir.yaml:3:17 envoy.tls.certificate_file: must be the path of a file Envoy can read, got ""',
    ]);
  });

  it("shows a long value cut short", () => {
    const [line = ""] = problemsOf(`${WORKER}health: { path: ${"x".repeat(5000)} }\n`);
    expect(line.length).to.be.below(250);
    expect(line).to.match(/got "x+…$/);
  });
});
