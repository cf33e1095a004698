import { expect } from "chai";
import type { LoadedConfig } from "../../../extproc/edge/config/load.js";
import { formatProblem } from "../../../extproc/edge/config/problem.js";
import { configOf, load, problemsOf, warningsOf, WORKER } from "./support.js";

const NOTE =
  "; the scheduler cannot be built, so the plain limiter runs in its place " +
  "(scheduler.fallback_to_limiter)";

const section = (fallback: boolean, more: string): string => `${WORKER}scheduler:
  fallback_to_limiter: ${String(fallback)}
  max_concurrent_requests: 8
${more}`;

const ZERO_TIMEOUT =
  "  classes: { bulk: { reserved_floor: 0, queue_size: 1, queue_timeout_secs: 0, " +
  "starvation_threshold_secs: 1, can_preempt: false } }\n";
const ZERO_TIMEOUT_LINE =
  "weir.yaml:6:56 scheduler.classes.bulk.queue_timeout_secs: must be a whole number from 1 to 3600, got 0";

describe("a scheduler that cannot be built", () => {
  it("P9 stops the start by default", () => {
    expect(problemsOf(section(false, ZERO_TIMEOUT))).to.deep.equal([ZERO_TIMEOUT_LINE]);
    expect(problemsOf(`${WORKER}scheduler:\n${ZERO_TIMEOUT}`)).to.have.length(1);
  });

  it("P9 runs as the limiter when the file asks for that, with one warning per problem", () => {
    const text = section(
      true,
      `${ZERO_TIMEOUT}  queue_timeout_secs: 20
  tenant_policies: { acme: { max_class: bulk } }
  default_admission_partition: nowhere
  admission_partitions: { kimi: { queue_size: 1 } }
`,
    );
    const { scheduler, envoy } = configOf(text);
    expect(scheduler.enabled).to.equal(false);
    expect(scheduler.max_concurrent_requests).to.equal(8);
    expect(scheduler.queue_timeout_secs).to.equal(20);
    expect(envoy.max_message_timeout_ms).to.equal(25_000);
    expect(scheduler.tenant_policies.size + scheduler.admission_partitions.size).to.equal(0);
    expect(warningsOf(text)).to.deep.equal([
      ZERO_TIMEOUT_LINE + NOTE,
      "weir.yaml:8:22 scheduler.tenant_policies.acme: must be a tenant key: auth:<id>, header:<id>, " +
        `ip:<address> in its shortest spelling, or anonymous${NOTE}`,
      "weir.yaml:9:3 scheduler.default_admission_partition: must be one of the names in " +
        `scheduler.admission_partitions (kimi), got "nowhere"${NOTE}`,
      "weir.yaml:10:27 scheduler.admission_partitions.kimi.max_concurrent_requests: is missing; it " +
        `must be a whole number from 1 to 65535, or set capacity_from_healthy_replicas: true${NOTE}`,
    ]);
  });

  it("P9 stops the start when anything else is wrong too, and shows all of it", () => {
    const beside: readonly (readonly [string, string])[] = [
      ["  queue_size: -1\n", "scheduler.queue_size"],
      ["  colour: red\n", "scheduler.colour"],
      ["limits: { body_limit_bytes: 1 }\n", "limits.body_limit_bytes"],
      ["health: { interval_secs: 1 }\n", "health.timeout_secs"],
    ];
    for (const [more, path] of beside) {
      const problems = problemsOf(section(true, ZERO_TIMEOUT + more));
      expect(problems, path).to.have.length(2);
      expect(problems.join("\n")).to.contain(` ${path}: `);
      expect(problems).to.include(ZERO_TIMEOUT_LINE);
    }
    const flags = ["stray"];
    expect(problemsOf(section(true, ZERO_TIMEOUT), { flags })).to.have.length(2);
  });

  it("stops the start when the limiter could not be built either", () => {
    // The scheduler's longest wait is unknown, the limiter's of 60 s needs 65 s.
    const text = `${section(true, ZERO_TIMEOUT)}envoy: { max_message_timeout: 64s }\n`;
    expect(problemsOf(text)).to.deep.equal([
      ZERO_TIMEOUT_LINE,
      "weir.yaml:7:10 envoy.max_message_timeout: must be at least 65s, the longest queue timeout " +
        '60 s (scheduler.queue_timeout_secs) + 5 s, got "64s"',
    ]);
  });

  it("is not asked about while nothing is wrong, or while the scheduler is off anyway", () => {
    const sound = configOf(section(true, ""));
    expect(sound.scheduler.enabled).to.equal(true);
    expect(warningsOf(section(true, ""))).to.deep.equal([]);
    expect(problemsOf(section(true, `${ZERO_TIMEOUT}  enabled: false\n`))).to.have.length(1);
  });

  it("stops the start when the slots were to follow the engines, which those of the limiter do not", () => {
    const more = `${ZERO_TIMEOUT}  admission_partitions: { default: { max_concurrent_requests: 1, queue_size: 1 } }\n`;
    const refusedPart = `${ZERO_TIMEOUT}  admission_partitions: []\n`;
    const capacity = (value: string): string => `  adaptive_capacity: ${value}\n`;
    const mode = (value: string): string => `adaptive_admission: { mode: ${value} }\n`;
    const stopped = [
      more + capacity("true") + mode("enforce"),
      more + mode("enforce"),
      refusedPart + mode("enforce"),
    ];
    for (const text of stopped) {
      expect(problemsOf(section(true, text)), text).to.include(ZERO_TIMEOUT_LINE);
    }
    // Where they would not follow anyway, nothing is lost by the limiter.
    const goesOn = [
      more + capacity("false") + mode("enforce"),
      more + mode("shadow"),
      ZERO_TIMEOUT + mode("enforce"),
    ];
    for (const text of goesOn) {
      const { scheduler } = configOf(section(true, text));
      expect([scheduler.enabled, scheduler.adaptive_capacity], text).to.deep.equal([false, false]);
    }
  });

  it("can be asked for by a flag", () => {
    const flags = ["--scheduler.fallback_to_limiter=true"];
    const loaded: LoadedConfig = load(`${WORKER}scheduler:\n${ZERO_TIMEOUT}`, { flags });
    expect(loaded.ok, loaded.ok ? "" : loaded.problems.map(formatProblem).join("\n")).to.equal(
      true,
    );
  });
});
