import { expect } from "chai";
import { configOf, problemsOf, WORKER } from "./support.js";

describe("environment and flags", () => {
  const file = `${WORKER}scheduler: { queue_size: 1 }\n`;

  it("let a flag beat the environment, the environment the file, and the file the default", () => {
    const env = { WEIR_SCHEDULER__QUEUE_SIZE: "2" };
    const flags = ["--scheduler.queue_size", "3"];
    expect(configOf(WORKER).scheduler.queue_size).to.equal(100);
    expect(configOf(file).scheduler.queue_size).to.equal(1);
    expect(configOf(file, { env }).scheduler.queue_size).to.equal(2);
    expect(configOf(file, { flags }).scheduler.queue_size).to.equal(3);
    expect(configOf(file, { env, flags }).scheduler.queue_size).to.equal(3);
  });

  it("leave the neighbours of a key as the file has them", () => {
    const config = configOf(`${WORKER}scheduler: { queue_size: 1, max_concurrent_requests: 7 }\n`, {
      flags: ["--scheduler.queue_size=9"],
    });
    expect(config.scheduler.max_concurrent_requests).to.equal(7);
  });

  it("take values as YAML: numbers, lists and mappings", () => {
    const config = configOf(WORKER, {
      env: {
        WEIR_TRUST__PEERS: "[10.0.0.1, 'fd00::/8']",
        WEIR_TRUST__TENANT_ID: "true",
        WEIR_ENVOY__TLS__CERTIFICATE_FILE: "c.pem",
        WEIR_ENVOY__TLS__PRIVATE_KEY_FILE: "k.pem",
      },
      flags: ["--models", "{ m: { aliases: [x] } }", "--health.interval_secs=2.5"],
    });
    expect(config.trust.peers).to.deep.equal(["10.0.0.1", "fd00::/8"]);
    expect(config.trust.tenant_id).to.equal(true);
    expect(config.envoy.tls?.private_key_file).to.equal("k.pem");
    expect(config.models.size).to.equal(1);
    expect(config.health.interval_secs).to.equal(2.5);
  });

  it("take text that is not YAML as it stands", () => {
    const config = configOf(WORKER, { env: { WEIR_LISTEN__EXT_PROC: "[::1]:9002" } });
    expect(config.listen.ext_proc).to.deep.equal({ kind: "tcp", host: "::1", port: 9002 });
  });

  it("can give a whole section, so that no file is needed", () => {
    const env = { WEIR_WORKERS: '[{ url: "http://h:1", cluster: c, models: [m] }]' };
    expect(configOf("", { env }).workers[0]?.url).to.equal("http://h:1");
  });

  it("of two variables that differ in the case of letters only, the second one is refused", () => {
    const env = { WEIR_MODELS__M__POLICY: "cache_aware", WEIR_MODELS__m__POLICY: "least_load" };
    expect(problemsOf(WORKER, { env })).to.deep.equal([
      "environment WEIR_MODELS__m__POLICY sets the same key as WEIR_MODELS__M__POLICY; keep one of them",
    ]);
  });

  it("leave variables alone that are not settings", () => {
    const env = {
      WEIR_PORT_BASE: "20000",
      WEIR_PORT: "tcp://1",
      weir_x__y: "1",
      HOME: "/",
      PATH: "",
    };
    expect(configOf(WORKER, { env }).envoy.port).to.equal(10000);
  });

  it("refuse a variable with a double underscore that names no key", () => {
    const env = { WEIR_SCHEDULER__QUEUE_SISE: "5", WEIR_SHEDULER__QUEUE_SIZE: "5", WEIR___X: "1" };
    expect(problemsOf(WORKER, { env })).to.deep.equal([
      "environment WEIR_SCHEDULER__QUEUE_SISE scheduler.queue_sise: is not a known key; did you mean queue_size?",
      "environment WEIR_SHEDULER__QUEUE_SIZE sheduler: is not a known key; did you mean scheduler?",
      "environment WEIR___X must have the form WEIR_SECTION__KEY",
    ]);
  });

  it("refuse flags without a value, given twice, in another form, or through a value", () => {
    const flags = [
      "--health.path",
      "--limits.body_limit_bytes=2048",
      "--limits.body_limit_bytes",
      "4096",
      "--__proto__.x=1",
      "-q",
      "--workers.cluster=x",
    ];
    expect(problemsOf(WORKER, { flags })).to.deep.equal([
      "flag --__proto__.x is not a setting; settings have the form --section.key value",
      "flag --health.path needs a value: --section.key value or --section.key=value",
      "flag --limits.body_limit_bytes is given twice; keep one of them",
      "flag --workers.cluster workers.cluster: cannot be set: a part of its path is not a mapping in the file",
      "flag -q is not a setting; settings have the form --section.key value",
    ]);
  });

  it("take a negative number as the value of a flag", () => {
    const flags = ["--scheduler.max_concurrent_requests", "-1"];
    expect(configOf(WORKER, { flags }).scheduler.max_concurrent_requests).to.equal(undefined);
  });

  it("refuse an empty variable instead of taking the default in silence", () => {
    expect(problemsOf(WORKER, { env: { WEIR_HEALTH__PATH: "" } })).to.deep.equal([
      "environment WEIR_HEALTH__PATH health.path: must be a path that begins with /, got nothing",
    ]);
  });

  it("point at the override when its value breaks a rule with a value of the file", () => {
    const flags = ["--trust.prefer_tenant_id=true"];
    const [line] = problemsOf(`${WORKER}trust: { tenant_id: false }\n`, { flags });
    expect(line).to.match(/^flag --trust\.prefer_tenant_id trust\.prefer_tenant_id: /);
  });
});
