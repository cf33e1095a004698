import { expect } from "chai";
import { configOf, problemsOf, warningsOf, WORKER } from "./support.js";

describe("rules across values", () => {
  it("V-4 prefer_tenant_id without tenant_id is refused and names both keys", () => {
    for (const trust of [
      "{ prefer_tenant_id: true }",
      "{ prefer_tenant_id: true, tenant_id: false }",
    ]) {
      const problems = problemsOf(`${WORKER}trust: ${trust}\n`);
      expect(problems).to.have.length(1);
      expect(problems[0]).to.match(/^weir\.yaml:3:10 trust\.prefer_tenant_id: /);
      expect(problems[0]).to.contain("trust.prefer_tenant_id is on and trust.tenant_id is off");
    }
    expect(
      configOf(`${WORKER}trust: { prefer_tenant_id: true, tenant_id: true }\n`).trust
        .prefer_tenant_id,
    ).to.equal(true);
  });

  describe("partitions", () => {
    const scheduler = (fields: string): string => `${WORKER}scheduler: { ${fields} }\n`;
    const two = (slots: number, waiters: number): string =>
      "default_admission_partition: a, admission_partitions: { " +
      `a: { max_concurrent_requests: ${String(slots)}, queue_size: ${String(waiters)} }, ` +
      "b: { max_concurrent_requests: 4, queue_size: 40 } }";

    it("need the default partition among their names", () => {
      const part = "{ max_concurrent_requests: 1, queue_size: 0 }";
      expect(
        problemsOf(scheduler(`admission_partitions: { a: ${part}, b: ${part} }`)),
      ).to.deep.equal([
        "weir.yaml:3:1 scheduler.default_admission_partition: must be one of the names in " +
          'scheduler.admission_partitions (a, b), got "default"',
      ]);
      configOf(scheduler(`admission_partitions: { default: ${part} }`));
    });

    it("have slots that add up to at most the global maximum", () => {
      configOf(scheduler(`max_concurrent_requests: 10, ${two(6, 60)}`));
      expect(problemsOf(scheduler(`max_concurrent_requests: 10, ${two(7, 60)}`))).to.deep.equal([
        "weir.yaml:3:75 scheduler.admission_partitions: max_concurrent_requests of all partitions must " +
          "add up to at most scheduler.max_concurrent_requests = 10, got 11 (a 7, b 4)",
      ]);
    });

    it("are not compared with a global maximum that the workers decide", () => {
      configOf(scheduler(`max_concurrent_requests: -1, ${two(60000, 60)}`));
      configOf(scheduler(two(60000, 60)));
    });

    it("have waiters that add up to at most the queue size", () => {
      configOf(scheduler(two(1, 60)));
      expect(problemsOf(scheduler(two(1, 61)))).to.deep.equal([
        "weir.yaml:3:46 scheduler.admission_partitions: queue_size of all partitions must add up to " +
          "at most scheduler.queue_size = 100, got 101 (a 61, b 40)",
      ]);
    });

    it("need slots and a queue size, and a name without blanks", () => {
      expect(
        problemsOf(scheduler('admission_partitions: { " x": { queue_size: 1 }, default: {} }')),
      ).to.deep.equal([
        'weir.yaml:3:38 scheduler.admission_partitions." x": must be a name of 1 to 256 characters ' +
          "without blanks around it",
        "weir.yaml:3:63 scheduler.admission_partitions.default.queue_size: is missing; " +
          "it must be a whole number from 0 to 1000000",
        "weir.yaml:3:63 scheduler.admission_partitions.default.max_concurrent_requests: is missing; " +
          "it must be a whole number from 1 to 65535, or set capacity_from_healthy_replicas: true",
      ]);
    });
  });

  describe("workers", () => {
    it("are unique by url in any spelling, by cluster and by id", () => {
      expect(
        problemsOf(`workers:
  - { url: "http://h:1", cluster: a, models: [m] }
  - { url: "http://H:01/", cluster: b, models: [m], id: a }
  - { url: "http://h:2", cluster: a, models: [m] }
  - { url: "http://h:3", cluster: c, models: [m], id: x }
  - { url: "http://h:4", cluster: x, models: [m] }
`),
      ).to.deep.equal([
        'weir.yaml:3:7 workers[1].url: must be unique, but "http://h:1" is also the url of workers[0]',
        'weir.yaml:3:53 workers[1].id: must be unique, but "a" is also the id of workers[0]',
        'weir.yaml:4:26 workers[2].cluster: must be unique, but "a" is also the cluster of workers[0]',
        'weir.yaml:6:26 workers[4].cluster: must be unique, but "x" is also the id of workers[3]',
      ]);
    });

    it("serve canonical models, each named once", () => {
      expect(
        problemsOf(`workers:
  - { url: "http://h:1", cluster: a, models: [m, latest, m] }
models: { m: { aliases: [latest] } }
`),
      ).to.deep.equal([
        'weir.yaml:2:50 workers[0].models[1]: must be a canonical name, but "latest" is an alias of m',
        'weir.yaml:2:58 workers[0].models[2]: names "m" twice',
      ]);
    });
  });

  it("an alias belongs to one model and is no canonical name", () => {
    expect(
      problemsOf(`${WORKER}models:
  m: { aliases: [x, n] }
  n: { aliases: [x, x2, x2] }
`),
    ).to.deep.equal([
      'weir.yaml:4:21 models.m.aliases[1]: must not be the canonical name of a model, got "n"',
      'weir.yaml:5:18 models.n.aliases[0]: must be unique, but "x" is also an alias of m',
      'weir.yaml:5:25 models.n.aliases[2]: must be unique, but "x2" is also an alias of n',
    ]);
  });

  it("a model called like a member of every object is a model like any other", () => {
    const config = configOf(`workers: [{ url: "http://h:1", cluster: a, models: [constructor] }]
models: { constructor: { aliases: [toString, valueOf] } }
`);
    expect([...config.models.keys()]).to.deep.equal(["constructor"]);
  });

  it("a health check ends before the next one begins", () => {
    configOf(`${WORKER}health: { interval_secs: 2, timeout_secs: 1.99 }\n`);
    expect(problemsOf(`${WORKER}health: { interval_secs: 2, timeout_secs: 2 }\n`)).to.deep.equal([
      "weir.yaml:3:29 health.timeout_secs: must be below health.interval_secs = 2, got 2",
    ]);
    // Also when only the interval is given and the default timeout no longer fits.
    expect(problemsOf(`${WORKER}health: { interval_secs: 1 }\n`)).to.deep.equal([
      "weir.yaml:3:1 health.timeout_secs: must be below health.interval_secs = 1, got 2",
    ]);
  });

  describe("two listeners on one address", () => {
    it("are refused, also when one of them listens everywhere or says localhost", () => {
      const clash = (text: string): string[] => problemsOf(`${WORKER}${text}\n`);
      expect(clash("admin: { listen: 127.0.0.1:9002 }")).to.deep.equal([
        "weir.yaml:3:10 admin.listen: is the address of listen.ext_proc as well",
      ]);
      expect(clash("admin: { listen: localhost:9901 }")).to.deep.equal([
        "weir.yaml:1:1 envoy.admin_port: is the address of admin.listen as well",
      ]);
      expect(clash("envoy: { address: 0.0.0.0, port: 9190 }")).to.deep.equal([
        "weir.yaml:3:28 envoy.port: is the address of admin.listen as well",
      ]);
      expect(clash('envoy: { address: "::", port: 9901 }')).to.deep.equal([
        "weir.yaml:3:1 envoy.admin_port: is the address of envoy.port as well",
      ]);
    });

    it("are no conflict on different addresses, or when Envoy runs elsewhere", () => {
      configOf(`${WORKER}admin: { listen: 127.0.0.2:9002 }\n`);
      configOf(`${WORKER}envoy: { port: 9190, ext_proc_target: "weir:9002" }\n`);
    });
  });
});

describe("warnings", () => {
  it("say that every client may send a trusted header while no peer is named", () => {
    expect(warningsOf(`${WORKER}trust: { tenant_id: true, request_model: true }\n`)).to.deep.equal([
      "trust.tenant_id, trust.request_model: on while trust.peers is empty, so every client that " +
        "reaches Envoy may send these headers",
    ]);
    expect(warningsOf(`${WORKER}trust: { tenant_id: true, peers: [10.0.0.1] }\n`)).to.deep.equal(
      [],
    );
  });

  it("name models nobody serves and partition labels nobody knows", () => {
    expect(warningsOf(`${WORKER}models: { m: {}, ghost: {} }\n`)).to.deep.equal([
      "models.ghost: no worker serves this model; requests for it get 404",
    ]);
    const labelled = `workers: [{ url: "http://h:1", cluster: a, models: [m], labels: { admission_partition: p } }]\n`;
    expect(warningsOf(labelled)).to.deep.equal([
      'workers[0].labels.admission_partition "p": scheduler.admission_partitions is empty, ' +
        "so the label has no effect",
    ]);
    const part = "{ max_concurrent_requests: 1, queue_size: 0 }";
    expect(
      warningsOf(`${labelled}scheduler: { admission_partitions: { default: ${part} } }\n`),
    ).to.deep.equal([
      'workers[0].labels.admission_partition "p": it is not in scheduler.admission_partitions, ' +
        "so the worker counts for default",
    ]);
    expect(
      warningsOf(
        `${labelled}scheduler: { default_admission_partition: p, admission_partitions: { p: ${part} } }\n`,
      ),
    ).to.deep.equal([]);
  });
});
