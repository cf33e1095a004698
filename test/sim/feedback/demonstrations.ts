// The closed loop of engine feedback as `npm run simulate` shows it: four engines with a known knee, polled
// every ten seconds with lost polls and noise, once with and once without published ceilings.

import type { Demonstration, Demonstrations } from "../command/demonstration.js";
import { chartSvg } from "./chart.js";
import { reportLines, reportOf } from "./report.js";
import { scenariosFor } from "./scenarios.js";

/** Running requests per replica, at the end where it changes. */
const KNEE = 32;
/** What changes does so within twenty minutes. */
const MINUTES_MIN = 30;

interface Sketch {
  /** As `scenariosFor` calls it. */
  readonly title: string;
  readonly shows: string;
}

const SKETCHES: Readonly<Record<string, Sketch>> = {
  "feedback-step": {
    title: "a step from half",
    shows:
      "demand that doubles at once finds the knee within minutes, and the engines' queues stay short",
  },
  "feedback-ramp": {
    title: "a slow ramp",
    shows: "demand that grows by less than a poll can tell still raises the limit with it",
  },
  "feedback-halving": {
    title: "a knee that halves",
    shows: "engines that bear half as much get half as much, step by step, without a collapse",
  },
  "feedback-doubling": {
    title: "a knee that doubles",
    shows:
      "engines that bear twice as much are found out, because the limit lies a margin above the knee",
  },
  "feedback-backlog": {
    title: "a backlog from the start",
    shows: "a knee that does not move is held, and looked for from below now and then",
  },
};

function demonstrationOf({ title, shows }: Sketch): Demonstration {
  return {
    title: `engine feedback, ${title}`,
    shows,
    minutesMin: MINUTES_MIN,
    run: (seed, lengthMs) => {
      const reports = [true, false].map((ceilings) => {
        const scenario = scenariosFor(KNEE, ceilings, lengthMs).find((one) => one.title === title);
        if (scenario === undefined) throw new Error(`no scenario is called "${title}"`);
        return reportOf(scenario, seed);
      });
      const subtitle = `${shows}; seed ${String(seed)}`;
      return {
        parts: reports.map(reportLines),
        svg: () => chartSvg(`engine feedback: ${title}`, subtitle, reports),
      };
    },
  };
}

export const FEEDBACK_DEMONSTRATIONS: Demonstrations = Object.fromEntries(
  Object.entries(SKETCHES).map(([name, sketch]) => [name, demonstrationOf(sketch)]),
);
