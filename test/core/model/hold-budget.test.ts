import { expect } from "chai";
import type { ClassConfig, WeirConfig } from "../../../extproc/core/model/config.js";
import {
  holdBudgetSecs,
  longestQueueTimeoutSecs,
  overrideBudgetSecs,
  queueTimeoutSecs,
  streamIdleTimeoutSecs,
} from "../../../extproc/core/model/hold-budget.js";
import { perClass, RANKS } from "../../../extproc/core/model/priority.js";

interface Timeouts {
  readonly enabled: boolean;
  readonly limiterSecs: number;
  /** Bulk first. */
  readonly classSecs: readonly number[];
}

function scheduling({ enabled, limiterSecs, classSecs }: Timeouts): Pick<WeirConfig, "scheduler"> {
  const classes = perClass((rank) => ({ queue_timeout_secs: classSecs[rank] }) as ClassConfig);
  const scheduler = { enabled, queue_timeout_secs: limiterSecs, classes };
  return { scheduler: scheduler as unknown as WeirConfig["scheduler"] };
}

describe("the hold budget", () => {
  const CLASS_SECS = [300, 60, 30, 45];

  it("of a class is its queue timeout plus 5 s; the longest of all classes rules Envoy", () => {
    const config = scheduling({ enabled: true, limiterSecs: 900, classSecs: CLASS_SECS });
    expect(RANKS.map((rank) => queueTimeoutSecs(config, rank))).to.deep.equal([300, 60, 30, 45]);
    expect(RANKS.map((rank) => holdBudgetSecs(config, rank))).to.deep.equal([305, 65, 35, 50]);
    expect(longestQueueTimeoutSecs(config)).to.equal(300);
    expect(overrideBudgetSecs(config)).to.equal(305);
    expect(streamIdleTimeoutSecs(config)).to.equal(605);
  });

  it("takes the longest timeout from whichever class has it", () => {
    for (const longest of RANKS) {
      const classSecs = RANKS.map((rank) => (rank === longest ? 20 : 10));
      const config = scheduling({ enabled: true, limiterSecs: 1, classSecs });
      expect(longestQueueTimeoutSecs(config), String(longest)).to.equal(20);
    }
  });

  it("of the limiter follows its one timeout, whatever the classes say", () => {
    const config = scheduling({ enabled: false, limiterSecs: 7, classSecs: CLASS_SECS });
    expect(RANKS.map((rank) => holdBudgetSecs(config, rank))).to.deep.equal([12, 12, 12, 12]);
    expect(overrideBudgetSecs(config)).to.equal(12);
    expect(streamIdleTimeoutSecs(config)).to.equal(312);
  });

  it("leaves Weir time to refuse before Envoy gives up, for the shortest and the longest queue", () => {
    for (const secs of [1, 3600]) {
      const classSecs = RANKS.map(() => secs);
      const config = scheduling({ enabled: true, limiterSecs: secs, classSecs });
      expect(overrideBudgetSecs(config) - secs).to.be.at.least(1);
      expect(streamIdleTimeoutSecs(config)).to.be.above(overrideBudgetSecs(config));
    }
  });
});
