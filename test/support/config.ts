// Configurations for tests, through the real loader, so that defaults are the shipped ones.

import { stringify } from "yaml";
import type { WeirConfig } from "../../extproc/core/model/config.js";
import { loadConfig } from "../../extproc/edge/config/load.js";
import { formatProblem } from "../../extproc/edge/config/problem.js";

export type ConfigSketch = Readonly<Record<string, unknown>>;

/** Two workers of the model `demo`; whatever `over` names replaces a whole section. */
export function configYaml(over: ConfigSketch = {}): string {
  return stringify({
    workers: [
      { url: "http://127.0.0.1:1", cluster: "worker_1", models: ["demo"] },
      { url: "http://127.0.0.1:2", cluster: "worker_2", models: ["demo"] },
    ],
    models: { demo: { aliases: ["demo-latest"] } },
    scheduler: { max_concurrent_requests: 4, queue_size: 10, queue_timeout_secs: 30 },
    ...over,
  });
}

export function testConfig(over: ConfigSketch = {}): WeirConfig {
  const loaded = loadConfig({ text: configYaml(over), file: "test.yaml", env: {}, flags: [] });
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join("\n"));
  return loaded.config;
}
