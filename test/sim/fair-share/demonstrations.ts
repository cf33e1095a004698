// The scenarios of fair sharing as `npm run simulate` shows them.

import type { Demonstration, Demonstrations } from "../command/demonstration.js";
import { chartSvg } from "./chart.js";
import { reportLines, simulatePool } from "./report.js";
import { SCENARIOS, type Scenario } from "./scenarios.js";

/** In a minute everybody has had some requests. */
const MINUTES_MIN = 1;

function demonstrationOf({ title, shows, pools }: Scenario): Demonstration {
  return {
    title,
    shows,
    minutesMin: MINUTES_MIN,
    run: (seed, lengthMs) => {
      const reports = pools(lengthMs).map((plan) => simulatePool(plan, seed, lengthMs));
      return {
        parts: reports.map(reportLines),
        svg: () => chartSvg(title, `${shows}; seed ${String(seed)}`, reports),
      };
    },
  };
}

export const FAIR_SHARE_DEMONSTRATIONS: Demonstrations = Object.fromEntries(
  Object.entries(SCENARIOS).map(([name, scenario]) => [name, demonstrationOf(scenario)]),
);
