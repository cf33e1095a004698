import { expect } from "chai";
import type { SelectionConfig } from "../../../extproc/core/model/selection-config.js";
import { createRng } from "../../../extproc/core/model/rng.js";
import { findImbalance } from "../../../extproc/core/selection/imbalance.js";
import { Loads } from "../../../extproc/core/selection/loads.js";
import { Bench } from "./support.js";

interface Fleet {
  readonly usages?: readonly (number | undefined)[];
  readonly requests?: readonly number[];
  readonly reserved?: readonly number[];
  readonly ageSeconds?: number;
}

function imbalance(fleet: Fleet, over: Partial<SelectionConfig> = {}): string | undefined {
  const { usages = [], requests = [], reserved = [] } = fleet;
  const workers = Math.max(usages.length, requests.length, reserved.length);
  const bench = new Bench({ workers, selection: over });
  bench.report(...usages);
  for (const [index, count] of requests.entries()) bench.load(index, count);
  for (const [index, tokens] of reserved.entries()) {
    if (tokens > 0) bench.selector.bookings.reserve(bench.worker(index), tokens);
  }
  bench.passSeconds(fleet.ageSeconds ?? 0);
  const loads = new Loads(bench.selector.bookings, createRng(1));
  const rules = { selection: bench.selection, loads, telemetry: bench.telemetry };
  return findImbalance(rules, [...bench.registry.all()], bench.now);
}

const KV = { balance_token_usage_threshold: 0.3, overload_token_usage_threshold: 0.95 };

describe("imbalance", () => {
  it("C-9 sees a KV spread over 0.3 and an overload over 0.95, a count of 20 to 0, and nothing at 1.0", () => {
    expect(imbalance({ usages: [0.9, 0.9, 0.9] }, KV)).to.equal(undefined);
    expect(imbalance({ usages: [0.9, 0.15, 0.15] }, KV)).to.equal("kv_spread");
    expect(imbalance({ usages: [0.97, 0.8] }, KV)).to.equal("kv_overload");
    const counts = { ...KV, balance_abs_threshold: 5, balance_rel_threshold: 2 };
    expect(imbalance({ usages: [0.3, 0.3], requests: [20, 0] }, counts)).to.equal("requests");
    const off = { balance_token_usage_threshold: 1, overload_token_usage_threshold: 1 };
    expect(imbalance({ usages: [0.95, 0.05] }, off)).to.equal(undefined);
  });

  it("wants every threshold to be exceeded, not reached", () => {
    expect(imbalance({ usages: [0.95, 0.65] }, KV)).to.equal(undefined);
    expect(imbalance({ usages: [0.951, 0.7] }, KV)).to.equal("kv_overload");
    const counts = { balance_abs_threshold: 5, balance_rel_threshold: 2 };
    expect(imbalance({ requests: [10, 5] }, counts), "5 apart").to.equal(undefined);
    expect(imbalance({ requests: [12, 6] }, counts), "6 apart, twice").to.equal(undefined);
    expect(imbalance({ requests: [13, 6] }, counts)).to.equal("requests");
  });

  it("compares reserved tokens with their threshold, before requests", () => {
    const over = { balance_reserved_threshold: 100, balance_abs_threshold: 1 };
    expect(imbalance({ reserved: [100, 0] }, over)).to.equal(undefined);
    expect(imbalance({ reserved: [101, 0], requests: [9, 0] }, over)).to.equal("reserved");
    expect(imbalance({ reserved: [301, 200] }, over), "101 apart, 1.505 times").to.equal(
      "reserved",
    );
    expect(imbalance({ reserved: [303, 202] }, over), "101 apart, 1.5 times").to.equal(undefined);
  });

  it("counts KV figures where a young sample is there", () => {
    expect(imbalance({ usages: [0.97, undefined] }, KV)).to.equal("kv_overload");
    expect(imbalance({ usages: [0.9, undefined] }, KV)).to.equal(undefined);
    expect(imbalance({ usages: [0.97, 0.1], ageSeconds: 31 }, KV)).to.equal(undefined);
  });
});
