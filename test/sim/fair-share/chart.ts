// Draws the course of a simulation as SVG: for each pool the tokens each contestant was served, and the
// same per weight, where fair sharing lets the lines of those that wait run side by side.

import { COLOURS, svgOf, type Panel } from "../command/picture.js";
import type { PoolReport } from "./report.js";

/** Lines that coincide stay visible: earlier ones are drawn wider beneath later ones. */
const WIDEST_LINE = 5;
const NARROWEST_LINE = 1.5;
const SIZE = { width: 380, height: 260 };

interface Point {
  readonly seconds: number;
  readonly tokens: number;
  readonly perWeight: number;
  readonly tenant: string;
}

function pointsOf({ tally }: PoolReport): Point[] {
  return tally.samples.flatMap(({ atMs, servedTokens }) =>
    tally.contestants.map(({ name, weight }, index) => {
      const tokens = servedTokens[index] ?? 0;
      return {
        seconds: atMs / 1_000,
        tokens,
        perWeight: tokens / weight,
        tenant: labelOf(name, weight),
      };
    }),
  );
}

const labelOf = (name: string, weight: number): string => `${name} (${String(weight)})`;

/** One layer per contestant, so that each line can have a width of its own. */
function panel(report: PoolReport, field: "tokens" | "perWeight", title: string): Panel {
  const { contestants } = report.tally;
  const labels = contestants.map(({ name, weight }) => labelOf(name, weight));
  const step = (WIDEST_LINE - NARROWEST_LINE) / Math.max(1, labels.length - 1);
  return {
    ...SIZE,
    data: { values: pointsOf(report) },
    title: { text: title, fontSize: 12, fontWeight: "normal", color: "#444" },
    layer: labels.map((label, index) => ({
      transform: [{ filter: { field: "tenant", equal: label } }],
      mark: {
        type: "line",
        interpolate: "monotone",
        strokeWidth: WIDEST_LINE - index * step,
        strokeJoin: "round",
      },
      encoding: {
        x: {
          field: "seconds",
          type: "quantitative",
          title: "time (seconds)",
          axis: { format: ",d", tickCount: 6 },
          scale: { nice: false },
        },
        y: {
          field,
          type: "quantitative",
          title: field === "tokens" ? "output tokens" : "output tokens per weight",
          axis: { format: "~s", tickCount: 6 },
        },
        color: {
          field: "tenant",
          type: "nominal",
          scale: { domain: labels, range: COLOURS.slice(0, labels.length) },
          legend: { title: "tenant (weight)", symbolType: "stroke", symbolStrokeWidth: 3 },
        },
      },
    })),
  };
}

/** The SVG text of a scenario. */
export function chartSvg(
  title: string,
  subtitle: string,
  reports: readonly PoolReport[],
): Promise<string> {
  return svgOf({
    title,
    subtitle,
    layout: {
      vconcat: reports.map((report) => ({
        title: { text: report.plan.title, fontSize: 13 },
        hconcat: [
          panel(report, "tokens", "service"),
          panel(report, "perWeight", "service per weight (S/w)"),
        ],
        // Each pool has a legend of its own.
        resolve: { scale: { color: "shared" } },
      })),
    },
  });
}
