// The section `seeding` and what it needs from the others. A title that begins with a letter and a number
// is a row of the acceptance table.

import { readFileSync } from "node:fs";
import { expect } from "chai";
import { configOf, load, problemsOf, warningsOf, WORKER } from "./support.js";

/**
 * Two workers of a model in a partition of its name, and everything a seed needs. Lines 1 to 3 are the
 * workers, then one line for each section; `seeding` stands in line 8.
 */
interface Sketch {
  readonly models?: string;
  readonly scheduler?: string;
  readonly adaptive?: string;
  readonly selection?: string;
  readonly seeding?: string;
  readonly more?: string;
}

const PARTITION = "max_concurrent_requests: 8, queue_size: 8";
const SCHEDULER = `admission_partitions: { k3: { ${PARTITION} }, rest: { ${PARTITION} } }, default_admission_partition: rest`;
const ON = "partitions: [k3], seed_cap: 1, proof_source: scheduler";

const text = (sketch: Sketch = {}): string => `workers:
  - { url: "http://h:1", cluster: a, engine: sglang, models: [k3] }
  - { url: "http://h:2", cluster: b, engine: sglang, models: [k3] }
models: { ${sketch.models ?? "k3: { policy: cache_aware }"} }
scheduler: { ${sketch.scheduler ?? SCHEDULER} }
adaptive_admission: { ${sketch.adaptive ?? "mode: enforce"} }
selection: { ${sketch.selection ?? "max_cached_owners_per_prefix: 2, cache_owner_spill_cooldown_secs: 5"} }
seeding: { ${sketch.seeding ?? ON} }
${sketch.more ?? ""}`;

const CREDITS = `trust: { tenant_id: true, prefer_tenant_id: true, request_model: true, output_token_estimate: true, peers: [10.0.0.1] }
credits: { generation: g1, service_key_env: K }
`;

describe("guarded seeding in the configuration", () => {
  it("V-2 is off, with defaults that would apply", () => {
    const config = configOf(WORKER);
    expect(config.seeding).to.deep.equal({
      partitions: [],
      seed_cap: 0,
      proof_source: "credits",
      seed_response_max_bytes: 4_194_304,
    });
    expect(config.credits.generation).to.equal(undefined);
    expect(config.credits.required).to.equal(false);
    expect(config.scheduler.adaptive_capacity).to.equal(false);
    expect(warningsOf(WORKER)).to.deep.equal([]);
  });

  it("is read back as it was written, frozen", () => {
    const { seeding } = configOf(text({ seeding: `${ON}, seed_response_max_bytes: 2048` }));
    expect(seeding).to.deep.equal({
      partitions: ["k3"],
      seed_cap: 1,
      proof_source: "scheduler",
      seed_response_max_bytes: 2048,
    });
    expect(Object.isFrozen(seeding.partitions)).to.equal(true);
    expect(warningsOf(text())).to.deep.equal([]);
  });

  it("V-1 takes a list of partitions with cap 0 in every mode, and nothing comes of it", () => {
    for (const mode of ["off", "shadow", "enforce"]) {
      const listed = `${WORKER}adaptive_admission: { mode: ${mode} }\nseeding: { partitions: [k3], seed_cap: 0 }\n`;
      expect(configOf(listed).seeding).to.include({ seed_cap: 0 });
      expect(configOf(listed).seeding.partitions).to.deep.equal(["k3"]);
    }
  });

  it("V-1 takes cap 1 in mode enforce only", () => {
    for (const mode of ["off", "shadow", "Shadow"]) {
      expect(problemsOf(text({ adaptive: `mode: ${mode}` }))).to.deep.equal([
        `weir.yaml:6:23 adaptive_admission.mode: must be enforce while seeding.seed_cap is 1, got "${mode}"`,
      ]);
    }
    for (const adaptive of ["mode: enforce", 'mode: " ENFORCE", strategy: engine_feedback']) {
      expect(configOf(text({ adaptive })).seeding.seed_cap).to.equal(1);
    }
    expect(problemsOf(text({ adaptive: "mode: enforce, strategy: predicted_work" }))).to.deep.equal(
      [
        "weir.yaml:6:38 adaptive_admission.strategy: predicted_work is not built; it must be engine_feedback",
      ],
    );
  });

  it("V-1 takes no cap above 1, in any mode", () => {
    for (const mode of ["off", "enforce"]) {
      for (const cap of ["2", "-1", "0.5", "true"]) {
        const bad = text({
          adaptive: `mode: ${mode}`,
          seeding: `partitions: [k3], seed_cap: ${cap}`,
        });
        expect(problemsOf(bad)).to.deep.equal([
          `weir.yaml:8:30 seeding.seed_cap: must be a whole number from 0 to 1, got ${cap}`,
        ]);
      }
    }
  });

  it("V-1 takes no adaptive capacity with cap 1, and auto is off then", () => {
    const adaptive = (value: string): string =>
      text({ scheduler: `${SCHEDULER}, adaptive_capacity: ${value}` });
    const [problem, ...others] = problemsOf(adaptive("true"));
    expect(others).to.deep.equal([]);
    expect(problem).to.match(/^weir\.yaml:5:\d+ scheduler\.adaptive_capacity: /);
    expect(problem).to.contain("must be auto or false while seeding.seed_cap is 1, because");
    expect(problem).to.match(/, got true$/);
    for (const value of ["auto", "false"]) {
      expect(configOf(adaptive(value)).scheduler.adaptive_capacity, value).to.equal(false);
    }
    const off = text({ seeding: "seed_cap: 0" });
    expect(configOf(off).scheduler.adaptive_capacity).to.equal(true);
  });

  it("V-1 takes no name that is empty, padded or over 128 bytes, whatever the cap", () => {
    const allowed = "must be a name of 1 to 128 bytes without blanks around it, got ";
    for (const name of ["", " k3", "k3 ", "x".repeat(129), `${"é".repeat(64)}x`]) {
      for (const cap of ["0", "1"]) {
        const listed = `partitions: ["${name}"], seed_cap: ${cap}, proof_source: scheduler`;
        const problems = problemsOf(text({ seeding: listed }));
        expect(problems, name).to.have.length(1);
        expect(problems[0]).to.contain(`weir.yaml:8:25 seeding.partitions[0]: ${allowed}`);
      }
    }
    for (const name of ["x", "x".repeat(128), "é".repeat(64)]) {
      const scheduler = `admission_partitions: { "${name}": { ${PARTITION} } }, default_admission_partition: "${name}"`;
      const seeding = `partitions: ["${name}"], seed_cap: 1, proof_source: scheduler`;
      expect(configOf(text({ scheduler, seeding })).seeding.partitions).to.deep.equal([name]);
    }
  });

  it("V-1 takes no name twice, compared exactly, whatever the cap", () => {
    for (const cap of ["0", "1"]) {
      const twice = text({
        seeding: `partitions: [k3, rest, k3], seed_cap: ${cap}, proof_source: scheduler`,
      });
      expect(problemsOf(twice)).to.deep.equal([
        'weir.yaml:8:35 seeding.partitions[2]: must be unique, but "k3" is also seeding.partitions[0]',
      ]);
    }
    const cases = text({ seeding: "partitions: [k3, K3]" });
    expect(configOf(cases).seeding.partitions).to.deep.equal(["k3", "K3"]);
  });

  it("V-1 takes no empty list with cap 1", () => {
    for (const list of ["partitions: [], ", ""]) {
      const problems = problemsOf(text({ seeding: `${list}seed_cap: 1, proof_source: scheduler` }));
      expect(problems).to.have.length(1);
      expect(problems[0]).to.match(/^weir\.yaml:8:\d+ seeding\.partitions: /);
      expect(problems[0]).to.contain(
        "must hold at least one name while seeding.seed_cap is 1, got none",
      );
    }
  });

  it("takes a thousand partitions and no more", () => {
    const names = (count: number): string =>
      Array.from({ length: count }, (_, index) => `p${String(index)}`).join(", ");
    configOf(text({ seeding: `partitions: [${names(1000)}]` }));
    expect(problemsOf(text({ seeding: `partitions: [${names(1001)}]` }))[0]).to.contain(
      "weir.yaml:8:12 seeding.partitions: must be a list of 0 to 1000 elements",
    );
  });

  it("names a partition that does not exist, and those that do", () => {
    const none = `${WORKER}models: { m: { policy: cache_aware } }
adaptive_admission: { mode: enforce }
seeding: { partitions: [m], seed_cap: 1, proof_source: scheduler }
`;
    expect(problemsOf(none)).to.deep.equal([
      "weir.yaml:5:25 seeding.partitions[0]: must be global, the only partition when " +
        'scheduler.admission_partitions is empty, while seeding.seed_cap is 1, got "m"',
    ]);
    expect(configOf(none.replace("[m], s", "[global], s")).seeding.seed_cap).to.equal(1);
    for (const name of ["K3", "global"]) {
      expect(
        problemsOf(
          text({ seeding: `partitions: [rest, ${name}], seed_cap: 1, proof_source: scheduler` }),
        ),
      ).to.deep.equal([
        "weir.yaml:8:31 seeding.partitions[1]: must be one of the names in " +
          `scheduler.admission_partitions (k3, rest) while seeding.seed_cap is 1, got "${name}"`,
      ]);
    }
  });

  it("is an error where a model of a partition is not chosen by what workers hold", () => {
    for (const [models, policy, place] of [
      ["k3: { policy: least_load }", "least_load", "4:17"],
      ["k3: { aliases: [k] }", "power_of_two", "4:11"],
      ["", "power_of_two", "4:1"],
    ] as const) {
      expect(problemsOf(text({ models })), models).to.deep.equal([
        `weir.yaml:${place} models.k3.policy: must be cache_aware while seeding.seed_cap is 1 and workers of ` +
          `the model are in the partition "k3" of seeding.partitions, got "${policy}"`,
      ]);
    }
    // The same models in a partition that does not seed, or with the cap at 0, are nobody's business.
    configOf(
      text({ models: "", seeding: "partitions: [rest], seed_cap: 1, proof_source: scheduler" }),
    );
    configOf(text({ models: "", seeding: "partitions: [k3]" }));
  });

  it("finds the models of a partition by label and by default, like the scheduler", () => {
    const labelled = text({
      models: "k3: { policy: round_robin }",
      seeding: "partitions: [rest], seed_cap: 1, proof_source: scheduler",
    }).replace(
      "cluster: b, engine: sglang, models: [k3]",
      "cluster: b, engine: sglang, models: [k3], labels: { admission_partition: rest }",
    );
    expect(problemsOf(labelled)).to.have.length(1);
    expect(problemsOf(labelled)[0]).to.contain('in the partition "rest" of seeding.partitions');
    const fallback = text({
      models: "k3: { policy: cache_aware }, other: { policy: least_load }",
      seeding: "partitions: [k3, rest], seed_cap: 1, proof_source: scheduler",
    }).replace(
      "cluster: b, engine: sglang, models: [k3]",
      "cluster: b, engine: sglang, models: [other]",
    );
    expect(problemsOf(fallback)).to.have.length(1);
    expect(problemsOf(fallback)[0]).to.contain("models.other.policy: must be cache_aware");
  });

  it("needs somebody who hands out proofs", () => {
    const seeding = "partitions: [k3], seed_cap: 1";
    for (const source of ["", ", proof_source: credits"]) {
      const [problem, ...others] = problemsOf(text({ seeding: seeding + source }));
      expect(others).to.deep.equal([]);
      expect(problem).to.match(/^weir\.yaml:8:\d+ seeding\.proof_source: /);
      expect(problem).to.contain(
        "credits needs credits.generation, which is not set; set it, or take scheduler",
      );
      configOf(text({ seeding: seeding + source, more: CREDITS }));
    }
    const limiter = "enabled: false, max_concurrent_requests: 8";
    const needs = (scheduler: string, more: string): string[] =>
      problemsOf(text({ scheduler, more, seeding: ON.replace("k3", "global") }));
    const start = "weir.yaml:8:47 seeding.proof_source: scheduler needs ";
    const end = "; set what is missing, or take credits";
    expect(needs(limiter, "")).to.deep.equal([
      `${start}scheduler.enabled: true (it is false)${end}`,
    ]);
    expect(needs("", "fair_share: { enabled: false }")).to.deep.equal([
      `${start}fair_share.enabled: true (it is false)${end}`,
    ]);
    expect(needs(limiter, "fair_share: { enabled: false }")).to.deep.equal([
      `${start}scheduler.enabled: true (it is false) and fair_share.enabled: true (it is false)${end}`,
    ]);
    expect(problemsOf(text({ seeding: `${seeding}, proof_source: queue` }))).to.deep.equal([
      'weir.yaml:8:43 seeding.proof_source: must be one of credits, scheduler, got "queue"',
    ]);
  });

  it("bounds the answer of a seed", () => {
    const seeding = (bytes: string): string =>
      text({ seeding: `${ON}, seed_response_max_bytes: ${bytes}` });
    for (const bytes of ["1024", "67108864"]) configOf(seeding(bytes));
    for (const bytes of ["1023", "67108865", "1024.5"]) {
      expect(problemsOf(seeding(bytes))).to.deep.equal([
        "weir.yaml:8:68 seeding.seed_response_max_bytes: must be a whole number from 1024 to 67108864, " +
          `got ${bytes}`,
      ]);
    }
  });

  it("names everything that is wrong at once, each at its place", () => {
    const wrong = text({
      models: "k3: { policy: least_load }",
      scheduler: `adaptive_capacity: true, ${SCHEDULER}`,
      adaptive: "mode: shadow",
      seeding: 'partitions: [k3, k3, none, " x"], seed_cap: 1, proof_source: credits',
    });
    expect(problemsOf(wrong).map((line) => line.split(": ")[0])).to.deep.equal([
      "weir.yaml:4:17 models.k3.policy",
      "weir.yaml:5:14 scheduler.adaptive_capacity",
      "weir.yaml:5:14 scheduler.adaptive_capacity",
      "weir.yaml:6:23 adaptive_admission.mode",
      "weir.yaml:8:29 seeding.partitions[1]",
      "weir.yaml:8:33 seeding.partitions[2]",
      "weir.yaml:8:39 seeding.partitions[3]",
      "weir.yaml:8:59 seeding.proof_source",
    ]);
  });

  it("does not ask again for what was refused by itself", () => {
    expect(problemsOf(text({ adaptive: "mode: on" }))).to.have.length(1);
    expect(problemsOf(text({ models: "k3: { policy: best }" }))).to.have.length(1);
    expect(problemsOf(text({ models: "k3: 5" }))).to.have.length(1);
    expect(problemsOf(text({ seeding: ON.replace("[k3]", "k3") }))).to.have.length(1);
    const label = text({ models: "" }).replaceAll(
      "models: [k3] }",
      "models: [k3], labels: { admission_partition: ' ' } }",
    );
    expect(problemsOf(label)).to.have.length(2);
    const models = "k3: { policy: cache_aware, aliases: [k] }";
    const alias = text({ models, seeding: ON.replace("[k3]", "[k3, rest]") });
    expect(
      problemsOf(
        alias.replace("cluster: b, engine: sglang, models: [k3]", "cluster: b, models: [k]"),
      ),
    ).to.have.length(1);
    const partition = text({ scheduler: SCHEDULER.replace("queue_size: 8", "queue_size: -1") });
    expect(problemsOf(partition)).to.have.length(1);
  });

  it("is set by the environment and by flags as well", () => {
    const env = {
      WEIR_SEEDING__PARTITIONS: "[rest]",
      WEIR_SEEDING__SEED_CAP: "0",
      WEIR_SEEDING__SEED_RESPONSE_MAX_BYTES: "4096",
    };
    const flags = ["--seeding.partitions", "[k3, rest]", "--seeding.proof_source=credits"];
    expect(configOf(text(), { env, flags }).seeding).to.deep.equal({
      partitions: ["k3", "rest"],
      seed_cap: 0,
      proof_source: "credits",
      seed_response_max_bytes: 4096,
    });
    expect(problemsOf(text(), { env: { WEIR_SEEDING__SEED_CAP: "2" } })).to.deep.equal([
      "environment WEIR_SEEDING__SEED_CAP seeding.seed_cap: must be a whole number from 0 to 1, got 2",
    ]);
    expect(problemsOf(text(), { flags: ["--seeding.partitions=[x]"] })).to.deep.equal([
      "flag --seeding.partitions seeding.partitions[0]: must be one of the names in " +
        'scheduler.admission_partitions (k3, rest) while seeding.seed_cap is 1, got "x"',
    ]);
  });

  it("knows no other keys", () => {
    expect(problemsOf(text({ seeding: `${ON}, seed_caps: 1` }))).to.deep.equal([
      "weir.yaml:8:68 seeding.seed_caps: is not a known key; did you mean seed_cap?",
    ]);
  });

  it("is switched on by the example of docs/seeding.md, without a warning", () => {
    const page = readFileSync("docs/seeding.md", "utf8");
    const example = /```yaml\n([^]*?)```/.exec(page)?.[1] ?? "";
    expect(configOf(example).seeding.seed_cap).to.equal(1);
    expect(configOf(example).scheduler.adaptive_capacity).to.equal(false);
    expect(warningsOf(example)).to.deep.equal([]);
  });

  it("P9 stops the start when the scheduler cannot be built, although the fallback is on", () => {
    const broken = (seeding: string): string =>
      text({
        seeding,
        scheduler: `${SCHEDULER}, fallback_to_limiter: true, tenant_policies: { acme: { max_class: bulk } }`,
      });
    expect(load(broken("seed_cap: 0")).ok).to.equal(false);
    expect(problemsOf(broken(ON))).to.have.length(1);
    expect(problemsOf(broken(ON))[0]).to.contain(
      "scheduler.tenant_policies.acme: must be a tenant key",
    );
    const shadow = (seeding: string): string => broken(seeding).replace("enforce", "shadow");
    expect(load(shadow("seed_cap: 0")).ok).to.equal(true);
  });
});
