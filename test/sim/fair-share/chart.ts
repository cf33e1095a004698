// Draws the course of a simulation as SVG: for each pool the tokens each contestant was served, and the
// same per weight, where fair sharing lets the lines of those that wait run side by side.

import { parse, View } from "vega";
import { compile, type TopLevelSpec } from "vega-lite";
import type { PoolReport } from "./report.js";

/** Told apart also by people who do not see all colours (the palette of Okabe and Ito). */
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
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

type Panel = Extract<TopLevelSpec, { hconcat: unknown }>["hconcat"][number];

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

function specOf(title: string, subtitle: string, reports: readonly PoolReport[]): TopLevelSpec {
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    background: "white",
    padding: 16,
    title: {
      text: title,
      subtitle,
      fontSize: 17,
      subtitleFontSize: 12,
      subtitleColor: "#555",
      offset: 14,
    },
    vconcat: reports.map((report) => ({
      title: { text: report.plan.title, fontSize: 13 },
      hconcat: [
        panel(report, "tokens", "service"),
        panel(report, "perWeight", "service per weight (S/w)"),
      ],
      // Each pool has a legend of its own.
      resolve: { scale: { color: "shared" } },
    })),
    resolve: { scale: { color: "independent" } },
    config: {
      font: "Helvetica, Arial, sans-serif",
      title: { anchor: "start" },
      view: { stroke: "#ddd" },
      axis: { gridColor: "#eee", domainColor: "#999", tickColor: "#999", labelColor: "#444" },
      legend: { labelFontSize: 11, titleFontSize: 11 },
    },
  };
}

/** The SVG text of a scenario. */
export async function chartSvg(
  title: string,
  subtitle: string,
  reports: readonly PoolReport[],
): Promise<string> {
  const { spec } = compile(specOf(title, subtitle, reports));
  const view = new View(parse(spec), { renderer: "none" });
  try {
    return await view.toSVG();
  } finally {
    view.finalize();
  }
}
