import { expect } from "chai";
import { Registry } from "prom-client";
import { CreditMetrics } from "../../../extproc/edge/telemetry/credit-metrics.js";
import { POOL, RegistryBench } from "../../support/credits.js";

describe("metrics of capacity credits", () => {
  const linesOf = async (registry: Registry): Promise<readonly string[]> =>
    (await registry.metrics()).split("\n").filter((line) => line.startsWith("weir_"));

  it("count operations by partition and outcome, and unknown tokens under `unknown`", async () => {
    const registry = new Registry();
    const metrics = new CreditMetrics(registry);
    metrics.operation(POOL, "issued");
    metrics.operation(POOL, "issued");
    metrics.operation(POOL, "no_capacity");
    metrics.operation(POOL, "invalid_binding");
    metrics.operation(undefined, "unknown");
    expect(await linesOf(registry)).to.deep.equal([
      'weir_capacity_credit_operations_total{partition="pool",outcome="issued"} 2',
      'weir_capacity_credit_operations_total{partition="pool",outcome="no_capacity"} 1',
      'weir_capacity_credit_operations_total{partition="pool",outcome="invalid_binding"} 1',
      'weir_capacity_credit_operations_total{partition="unknown",outcome="unknown"} 1',
    ]);
  });

  it("show how many credits hold a slot, partitions without any too", async () => {
    const registry = new Registry();
    const bench = new RegistryBench();
    new CreditMetrics(registry).observe(bench.registry, () => [{ name: POOL }]);
    const active = async (): Promise<string | undefined> =>
      (await linesOf(registry)).find((line) => line.startsWith("weir_capacity_credit_active"));
    expect(await active()).to.equal('weir_capacity_credit_active{partition="pool"} 0');
    const token = bench.token();
    bench.token({ requestId: "req-2" });
    expect(await active()).to.equal('weir_capacity_credit_active{partition="pool"} 2');
    bench.redeem(token);
    expect(await active()).to.equal('weir_capacity_credit_active{partition="pool"} 1');
  });
});
