import { expect } from "chai";
import { warningsOf, WORKER } from "./support.js";

const text = (adaptive: string, scheduler = ""): string =>
  `${WORKER}scheduler: { ${scheduler} }\nadaptive_admission: { ${adaptive} }\n`;
const LIMITER = "enabled: false, max_concurrent_requests: 8";

describe("warnings about admission by engine feedback", () => {
  it("name each knob that nothing reads while the mode is off", () => {
    const knobs: readonly (readonly [string, string])[] = [
      ["estimator_half_life_secs", "60"],
      ["min_load_coverage", "1"],
      ["feedback_probe_requests_per_healthy_replica", "0"],
      ["feedback_max_waiting_requests_per_healthy_replica", "3"],
      ["feedback_max_token_usage", "0.8"],
      ["feedback_throughput_improvement_ratio", "0"],
      ["feedback_reference_rule", "true"],
    ];
    for (const [key, value] of knobs) {
      expect(warningsOf(text(`${key}: ${value}`)), key).to.deep.equal([
        `adaptive_admission.${key}: without effect while adaptive_admission.mode is off`,
      ]);
      for (const mode of ["shadow", "enforce"]) {
        expect(warningsOf(text(`mode: ${mode}, ${key}: ${value}`)), key).to.deep.equal([]);
      }
    }
    expect(warningsOf(text("min_load_coverage: 1, feedback_max_token_usage: 1"))).to.deep.equal([
      "adaptive_admission.min_load_coverage, adaptive_admission.feedback_max_token_usage: " +
        "without effect while adaptive_admission.mode is off",
    ]);
  });

  it("are silent about a knob that is written as it is anyway, and about the interval", () => {
    const same =
      "min_load_coverage: 0.8, feedback_reference_rule: false, strategy: engine_feedback";
    expect(warningsOf(text(`mode: off, ${same}, load_monitor_interval_secs: 5`))).to.deep.equal([]);
  });

  it("say that the limiter can only refuse in mode enforce", () => {
    expect(warningsOf(text("mode: enforce", LIMITER))).to.deep.equal([
      "adaptive_admission.mode: enforce while scheduler.enabled is false, so the slots of the limiter " +
        "do not follow the engines, and a request above what they bear is refused instead of waiting",
    ]);
    expect(warningsOf(text("mode: shadow", LIMITER))).to.deep.equal([]);
    expect(warningsOf(text("mode: off", LIMITER))).to.deep.equal([]);
  });

  it("are silent about workers whose kind of engine is found out by asking", () => {
    expect(warningsOf(text("mode: enforce"))).to.deep.equal([]);
  });
});
