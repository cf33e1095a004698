// The section `adaptive_admission` from the file to the core, and the meaning of
// `scheduler.adaptive_capacity`. A title that begins with a letter and a number is a row of the
// acceptance table.

import { readFileSync } from "node:fs";
import { expect } from "chai";
import { configOf, problemsOf, warningsOf, WORKER } from "./support.js";

const section = (fields: string): string => `${WORKER}adaptive_admission: { ${fields} }\n`;

const PARTITION =
  "admission_partitions: { default: { max_concurrent_requests: 4, queue_size: 4 } }";

/** A file with the scheduler in line 3 and the mode in line 4. */
const capacityText = (scheduler: string, mode: string): string =>
  `${WORKER}scheduler: { ${scheduler} }\nadaptive_admission: { mode: ${mode} }\n`;

describe("adaptive_admission", () => {
  it("V-2 is off by default, and so are slots that follow the engines", () => {
    const { adaptive_admission, scheduler } = configOf(WORKER);
    expect(adaptive_admission.mode).to.equal("off");
    expect(scheduler.adaptive_capacity).to.equal(false);
    expect(adaptive_admission).to.have.all.keys(
      "mode",
      "estimator_half_life_secs",
      "min_load_coverage",
      "feedback_probe_requests_per_healthy_replica",
      "feedback_max_waiting_requests_per_healthy_replica",
      "feedback_max_token_usage",
      "feedback_throughput_improvement_ratio",
      "feedback_reference_rule",
      "engine_metrics",
    );
  });

  it("keeps what the file says", () => {
    const text = section(
      "mode: enforce, strategy: engine_feedback, estimator_half_life_secs: 60, min_load_coverage: 1, " +
        "feedback_probe_requests_per_healthy_replica: 0, " +
        "feedback_max_waiting_requests_per_healthy_replica: 5, feedback_max_token_usage: 0.5, " +
        "feedback_throughput_improvement_ratio: 0.1, feedback_reference_rule: true, " +
        "engine_metrics: true",
    );
    const { adaptive_admission } = configOf(text);
    expect(Object.isFrozen(adaptive_admission)).to.equal(true);
    expect(adaptive_admission).to.deep.equal({
      mode: "enforce",
      estimator_half_life_secs: 60,
      min_load_coverage: 1,
      feedback_probe_requests_per_healthy_replica: 0,
      feedback_max_waiting_requests_per_healthy_replica: 5,
      feedback_max_token_usage: 0.5,
      feedback_throughput_improvement_ratio: 0.1,
      feedback_reference_rule: true,
      engine_metrics: true,
    });
  });

  it("reads the mode in any case and with blanks around it, from all three places", () => {
    for (const [written, mode] of [
      [" Enforce\t", "enforce"],
      ["SHADOW", "shadow"],
      ["Off", "off"],
    ] as const) {
      const quoted = JSON.stringify(written);
      expect(configOf(section(`mode: ${quoted}`)).adaptive_admission.mode).to.equal(mode);
      const env = { WEIR_ADAPTIVE_ADMISSION__MODE: written };
      expect(configOf(WORKER, { env }).adaptive_admission.mode).to.equal(mode);
      const flags = ["--adaptive_admission.mode", written];
      expect(configOf(WORKER, { flags }).adaptive_admission.mode).to.equal(mode);
    }
  });

  it("shows every broken value at once", () => {
    const text = `${WORKER}adaptive_admission:
  mode: on
  strategy: least_work
  estimator_half_life_secs: 0
  min_load_coverage: 0
  feedback_probe_requests_per_healthy_replica: -1
  feedback_max_waiting_requests_per_healthy_replica: 0.5
  feedback_max_token_usage: .nan
  feedback_throughput_improvement_ratio: .inf
  feedback_reference_rule: maybe
  load_monitor_interval_secs: 0
`;
    const at = (line: number, key: string, sentence: string): string =>
      `weir.yaml:${String(line)}:3 adaptive_admission.${key}: ${sentence}`;
    const count = "must be a whole number from 0 to 4294967295";
    const ratio = "must be a number above 0 and up to 1";
    expect(problemsOf(text)).to.deep.equal([
      at(4, "mode", 'must be one of off, shadow, enforce, got "on"'),
      at(5, "strategy", 'must be engine_feedback, got "least_work"'),
      at(6, "estimator_half_life_secs", "must be a finite number above 0, got 0"),
      at(7, "min_load_coverage", `${ratio}, got 0`),
      at(8, "feedback_probe_requests_per_healthy_replica", `${count}, got -1`),
      at(9, "feedback_max_waiting_requests_per_healthy_replica", `${count}, got 0.5`),
      at(10, "feedback_max_token_usage", `${ratio}, got NaN`),
      at(11, "feedback_throughput_improvement_ratio", "must be a number from 0 to 1, got Infinity"),
      at(12, "feedback_reference_rule", 'must be true or false, got "maybe"'),
      at(13, "load_monitor_interval_secs", "must be a whole number from 1 to 30, got 0"),
    ]);
  });

  it("says that predicted_work and its knobs are not built", () => {
    for (const word of ["predicted_work", '" Predicted_Work "']) {
      expect(problemsOf(section(`strategy: ${word}`))).to.deep.equal([
        "weir.yaml:3:23 adaptive_admission.strategy: predicted_work is not built; it must be engine_feedback",
      ]);
    }
    for (const key of [
      "work_horizon_secs",
      "prior_observations",
      "max_segments",
      "cold_start_output_tokens",
    ]) {
      expect(problemsOf(section(`${key}: 30`))).to.deep.equal([
        `weir.yaml:3:23 adaptive_admission.${key}: belongs to the strategy predicted_work, which is not built`,
      ]);
    }
  });

  it("names the keys of guarded seeding, whatever their value", () => {
    for (const [key, value, name] of [
      ["distribution_headroom_partitions", "[k3]", "seeding.partitions"],
      ["distribution_headroom_partitions", "[]", "seeding.partitions"],
      ["distribution_headroom_partition_seed_cap", "0", "seeding.seed_cap"],
      ["distribution_headroom_partition_seed_cap", "2", "seeding.seed_cap"],
    ] as const) {
      expect(problemsOf(section(`mode: enforce, ${key}: ${value}`)), value).to.deep.equal([
        `weir.yaml:3:38 adaptive_admission.${key}: is not a key here; the key is ${name}`,
      ]);
    }
  });

  it("names the nearest known key of its own", () => {
    expect(problemsOf(section("min_load_covrage: 1"))).to.deep.equal([
      "weir.yaml:3:23 adaptive_admission.min_load_covrage: is not a known key; did you mean min_load_coverage?",
    ]);
  });
});

describe("workers[].load_monitor_interval_secs", () => {
  const workers = (value: string): string => `workers:
  - { url: "http://h:1", cluster: a, models: [m], load_monitor_interval_secs: ${value} }
  - { url: "http://h:2", cluster: b, models: [m] }
adaptive_admission: { load_monitor_interval_secs: 7 }
`;

  it("takes the place of the interval of all workers for its own", () => {
    for (const [value, secs] of [
      ["1", 1],
      ["30", 30],
    ] as const) {
      const intervals = configOf(workers(value)).workers.map(
        (worker) => worker.load_monitor_interval_secs,
      );
      expect(intervals).to.deep.equal([secs, 7]);
    }
  });

  it("is refused below a second and above an hour", () => {
    for (const value of ["0", "31", "1.5"]) {
      expect(problemsOf(workers(value))).to.deep.equal([
        "weir.yaml:2:51 workers[0].load_monitor_interval_secs: " +
          `must be a whole number from 1 to 30, got ${value}`,
      ]);
    }
  });
});

describe("scheduler.adaptive_capacity", () => {
  const resolved = (scheduler: string, mode: string): boolean =>
    configOf(capacityText(scheduler, mode)).scheduler.adaptive_capacity;

  it("auto is on in mode enforce with partitions and the scheduler, and off without any of them", () => {
    for (const auto of ["", "adaptive_capacity: auto, "]) {
      expect(resolved(`${auto}${PARTITION}`, "enforce")).to.equal(true);
      expect(resolved(`${auto}${PARTITION}`, '" ENFORCE"')).to.equal(true);
      expect(resolved(`${auto}${PARTITION}`, "shadow")).to.equal(false);
      expect(resolved(`${auto}${PARTITION}`, "off")).to.equal(false);
      expect(resolved(`${auto}admission_partitions: {}`, "enforce")).to.equal(false);
      expect(resolved(`${auto}enabled: false, ${PARTITION}`, "enforce")).to.equal(false);
    }
  });

  it("true and false are what they say where true is possible", () => {
    expect(resolved(`adaptive_capacity: true, ${PARTITION}`, "enforce")).to.equal(true);
    expect(resolved(`adaptive_capacity: false, ${PARTITION}`, "enforce")).to.equal(false);
    expect(resolved("adaptive_capacity: false", "off")).to.equal(false);
  });

  const NEEDS_MODE = (mode: string): string => `adaptive_admission.mode: enforce (it is ${mode})`;
  const NEEDS_SCHEDULER = "scheduler.enabled: true (it is false)";
  const NEEDS_PARTITIONS = "at least one name in scheduler.admission_partitions (it is empty)";
  const refused = (column: number, ...needs: string[]): string[] => [
    `weir.yaml:3:${String(column)} scheduler.adaptive_capacity: true needs ${needs.join(" and ")}; ` +
      "set what is missing, or take auto or false",
  ];

  it("true without mode enforce, scheduler or partitions is refused and names each key that is missing", () => {
    const on = "adaptive_capacity: true";
    expect(problemsOf(capacityText(`${on}, ${PARTITION}`, "off"))).to.deep.equal(
      refused(14, NEEDS_MODE("off")),
    );
    expect(problemsOf(capacityText(`${on}, ${PARTITION}`, "Shadow"))).to.deep.equal(
      refused(14, NEEDS_MODE("shadow")),
    );
    expect(
      problemsOf(capacityText(`${on}, enabled: false, ${PARTITION}`, "enforce")),
    ).to.deep.equal(refused(14, NEEDS_SCHEDULER));
    expect(problemsOf(capacityText(on, "enforce"))).to.deep.equal(refused(14, NEEDS_PARTITIONS));
    expect(problemsOf(`${WORKER}scheduler: { enabled: false, ${on} }\n`)).to.deep.equal(
      refused(30, NEEDS_MODE("off"), NEEDS_SCHEDULER, NEEDS_PARTITIONS),
    );
  });

  it("true beside a refused mode or refused partitions says nothing twice", () => {
    const on = "adaptive_capacity: true";
    expect(problemsOf(capacityText(`${on}, ${PARTITION}`, "on"))).to.deep.equal([
      'weir.yaml:4:23 adaptive_admission.mode: must be one of off, shadow, enforce, got "on"',
    ]);
    expect(problemsOf(capacityText(`${on}, admission_partitions: []`, "enforce"))).to.deep.equal([
      "weir.yaml:3:39 scheduler.admission_partitions: must be a mapping of names, got []",
    ]);
  });
});

describe("the example of adaptive_admission in docs/configuration.md", () => {
  it("is a sound configuration in which the slots follow the engines, without a warning", () => {
    const page = readFileSync(new URL("../../../docs/configuration.md", import.meta.url), "utf8");
    const text = page.slice(page.indexOf("\n## adaptive_admission\n"));
    const example = /```yaml\n([\s\S]*?)```/.exec(text)?.[1] ?? "";
    const { adaptive_admission, scheduler, workers } = configOf(example);
    expect(adaptive_admission.mode).to.equal("enforce");
    expect(scheduler.adaptive_capacity).to.equal(true);
    expect(workers.map((worker) => worker.load_monitor_interval_secs)).to.deep.equal([5, 2]);
    expect(workers[0]?.api_key).to.deep.equal({ kind: "env", name: "VLLM_API_KEY" });
    expect(warningsOf(example)).to.deep.equal([]);
  });
});
