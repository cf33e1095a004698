// Short ways to load a configuration in tests: what a person would see, line by line.

import { expect } from "chai";
import type { WeirConfig } from "../../../extproc/core/model/config.js";
import { loadConfig } from "../../../extproc/edge/config/load.js";
import type { LoadedConfig } from "../../../extproc/edge/config/load.js";
import { formatProblem } from "../../../extproc/edge/config/problem.js";

/** One sound worker, so that a test can speak of something else. It takes the lines 1 and 2. */
export const WORKER = `workers:
  - { url: "http://127.0.0.1:8101", cluster: a, models: [m] }
`;

interface Outside {
  readonly env?: Record<string, string>;
  readonly flags?: readonly string[];
}

export function load(text: string, { env = {}, flags = [] }: Outside = {}): LoadedConfig {
  return loadConfig({ text, file: "weir.yaml", env, flags });
}

/** The problems as they are printed; fails when there are none. */
export function problemsOf(text: string, outside?: Outside): string[] {
  const loaded = load(text, outside);
  expect(loaded.ok, "the configuration was accepted").to.equal(false);
  return loaded.ok ? [] : loaded.problems.map(formatProblem);
}

/** The configuration; fails with its problems when it is refused. */
export function configOf(text: string, outside?: Outside): WeirConfig {
  return soundOf(text, outside).config;
}

export function warningsOf(text: string, outside?: Outside): readonly string[] {
  return soundOf(text, outside).warnings;
}

function soundOf(text: string, outside?: Outside): Extract<LoadedConfig, { ok: true }> {
  const loaded = load(text, outside);
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join("\n"));
  return loaded;
}
