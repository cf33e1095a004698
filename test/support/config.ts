// Configurations for tests, through the real loader, so that defaults are the shipped ones. Only the
// classes are not: a sketch of slots and a queue means one simple queue, because most tests speak of
// something else than classes.

import { stringify } from "yaml";
import type { WeirConfig } from "../../extproc/core/model/config.js";
import { PRIORITY_CLASSES } from "../../extproc/core/model/priority.js";
import { loadConfig } from "../../extproc/edge/config/load.js";
import { formatProblem } from "../../extproc/edge/config/problem.js";

export type ConfigSketch = Readonly<Record<string, unknown>>;

/** Patience of a sketch that names none: that of the shipped class `default`. */
const TIMEOUT_SECS = 60;

/**
 * Four classes that differ in their rank only: nothing reserved, nobody preempts, and nobody starves
 * within an hour.
 */
export function plainClasses(timeoutSecs: number): Record<string, object> {
  return Object.fromEntries(
    PRIORITY_CLASSES.map((name) => [
      name,
      {
        reserved_floor: 0,
        reserved_per_slot: 0,
        queue_size: 100,
        queue_timeout_secs: timeoutSecs,
        starvation_threshold_secs: 3600,
        can_preempt: false,
      },
    ]),
  );
}

/**
 * Two workers of the model `demo`; whatever `over` names replaces a whole section. In `scheduler`,
 * `queue_timeout_secs` is the patience of all four classes, and every tenant may use all of them. A
 * sketch that names `classes` (`{}` = the shipped ones) or switches the scheduler off stands as it is.
 */
export function configYaml(over: ConfigSketch = {}): string {
  const scheduler = over["scheduler"] ?? {
    max_concurrent_requests: 4,
    queue_size: 10,
    queue_timeout_secs: 30,
  };
  return stringify({
    workers: [
      { url: "http://127.0.0.1:1", cluster: "worker_1", models: ["demo"] },
      { url: "http://127.0.0.1:2", cluster: "worker_2", models: ["demo"] },
    ],
    models: { demo: { aliases: ["demo-latest"] } },
    ...over,
    scheduler: withPlainClasses(scheduler as ConfigSketch),
  });
}

function withPlainClasses(scheduler: ConfigSketch): ConfigSketch {
  if (scheduler["enabled"] === false || scheduler["classes"] !== undefined) return scheduler;
  const { queue_timeout_secs: timeoutSecs = TIMEOUT_SECS, ...rest } = scheduler;
  return {
    default_max_class: "system",
    ...rest,
    classes: plainClasses(timeoutSecs as number),
  };
}

export function testConfig(over: ConfigSketch = {}): WeirConfig {
  const loaded = loadConfig({ text: configYaml(over), file: "test.yaml", env: {}, flags: [] });
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join("\n"));
  return loaded.config;
}
