import { expect } from "chai";
import type { WeirConfig } from "../../../extproc/core/model/config.js";
import {
  longestQueueTimeoutSecs,
  overrideBudgetSecs,
  streamIdleTimeoutSecs,
} from "../../../extproc/core/model/hold-budget.js";

const withTimeout = (queue_timeout_secs: number): Pick<WeirConfig, "scheduler"> => ({
  scheduler: { queue_timeout_secs } as WeirConfig["scheduler"],
});

describe("the hold budget", () => {
  it("is the queue timeout plus 5 s, and Envoy's idle timeout 300 s more", () => {
    const config = withTimeout(60);
    expect(longestQueueTimeoutSecs(config)).to.equal(60);
    expect(overrideBudgetSecs(config)).to.equal(65);
    expect(streamIdleTimeoutSecs(config)).to.equal(365);
  });

  it("leaves Weir time to refuse before Envoy gives up, for the shortest and the longest queue", () => {
    for (const secs of [1, 3600]) {
      expect(overrideBudgetSecs(withTimeout(secs)) - secs).to.be.at.least(1);
      expect(streamIdleTimeoutSecs(withTimeout(secs))).to.be.above(
        overrideBudgetSecs(withTimeout(secs)),
      );
    }
  });
});
