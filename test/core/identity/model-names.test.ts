import { expect } from "chai";
import { ModelNames } from "../../../extproc/core/identity/model-names.js";
import type { WorkerConfig } from "../../../extproc/core/model/config.js";
import { clusterName, modelId } from "../../../extproc/core/model/ids.js";

function worker(...models: string[]): WorkerConfig {
  return {
    id: "w1",
    url: "http://127.0.0.1:8101",
    cluster: clusterName("w1"),
    engine: undefined,
    models: models.map(modelId),
    labels: { max_running_requests: undefined, admission_partition: undefined },
    load_monitor_interval_secs: 10,
    telemetry_url: "http://127.0.0.1:8101",
    api_key: undefined,
    kv_events: undefined,
  };
}

function names(models: Record<string, readonly string[]>, ...served: string[]): ModelNames {
  const entries = Object.entries(models).map(
    ([model, aliases]) =>
      [
        modelId(model),
        { aliases, policy: "power_of_two" as const, ownership: "committed" as const },
      ] as const,
  );
  return new ModelNames({ models: new Map(entries), workers: [worker(...served)] });
}

describe("identity/model-names", () => {
  it("resolves an alias and leaves a canonical name as it is", () => {
    const known = names({ "deepseek-v4-flash": ["deepseek-flash", "flash"] });
    expect(known.canonical("deepseek-flash")).to.equal("deepseek-v4-flash");
    expect(known.canonical("flash")).to.equal("deepseek-v4-flash");
    expect(known.canonical("deepseek-v4-flash")).to.equal("deepseek-v4-flash");
  });

  it("knows models that only a worker names", () => {
    expect(names({}, "demo", "org/other").canonical("org/other")).to.equal("org/other");
  });

  it("knows nothing else: no prefix, no other case, no padding", () => {
    const known = names({ demo: ["demo-latest"] }, "demo");
    for (const name of ["", "Demo", "demo ", " demo", "dem", "demo-", "DEMO-LATEST"]) {
      expect(known.canonical(name), JSON.stringify(name)).to.equal(undefined);
    }
  });

  it("is not fooled by names that every object has", () => {
    const known = names({ demo: [] });
    for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"]) {
      expect(known.canonical(name)).to.equal(undefined);
    }
    expect(names({ demo: ["constructor"] }).canonical("constructor")).to.equal("demo");
  });

  it("prefers a canonical name over an alias of the same spelling, and the first alias", () => {
    const known = names({ a: ["b", "x"], b: ["x"] }, "served", "y");
    expect(known.canonical("b")).to.equal("b");
    expect(known.canonical("x")).to.equal("a");
    expect(names({ a: ["y"] }, "y").canonical("y")).to.equal("y");
  });
});
