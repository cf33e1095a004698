// Draws the course of a closed loop as SVG: what was learned and what the engines did with it, per
// replica, and below it the throughput beside an oracle's and that of static limits twice too high.

import { COLOURS, svgOf, type Panel } from "../command/picture.js";
import type { Point } from "./loop.js";
import { dressOf, type FeedbackReport } from "./report.js";

const WIDTH = 430;
const COUNTS_HEIGHT = 280;
const TOKENS_HEIGHT = 150;
/** Polls of which a point of throughput is the mean: an answer's end is no event worth a line. */
const SMOOTHED_POLLS = 3;

const [BLUE, ORANGE, GREEN, PINK, SKY, RED] = COLOURS;
const GREY = "#777777";

interface Line {
  readonly name: string;
  readonly colour: string;
  /** On and off in pixels; none = solid. */
  readonly dash?: readonly number[];
  readonly width: number;
  readonly values: readonly { readonly minutes: number; readonly value: number }[];
}

function line(
  name: string,
  colour: string,
  points: readonly Point[],
  value: (point: Point) => number | undefined,
  look: { readonly width?: number; readonly dash?: readonly number[] } = {},
): Line {
  const values = points.flatMap((point) => {
    const drawn = value(point);
    return drawn === undefined ? [] : [{ minutes: point.atMs / 60_000, value: drawn }];
  });
  return { name, colour, values, width: 1.5, ...look };
}

/** Drawn in this order, so that thin lines lie on wide ones. */
function countLines({ learned, fixed, replicas }: FeedbackReport): Line[] {
  const { points } = learned;
  const each = (count: number): number => count / replicas;
  const known = (count: number): number | undefined => (count > 0 ? count : undefined);
  return [
    line("waiting, static limits", PINK, fixed.points, ({ waiting }) => each(waiting)),
    line("running", SKY, points, ({ running }) => each(running), { width: 2.5 }),
    line("waiting", RED, points, ({ waiting }) => each(waiting), { width: 2 }),
    line("limit", BLUE, points, ({ limit }) => known(each(limit))),
    line("learned knee", ORANGE, points, ({ knee }) => known(knee), { width: 2 }),
    line("knee of the engines", GREY, points, ({ trueKnee }) => trueKnee, { dash: [5, 4] }),
  ];
}

function throughputLines({ learned, oracle, fixed, scenario }: FeedbackReport): Line[] {
  const rate = (points: readonly Point[]): Point[] =>
    points.map((point, index) => {
      const window = points.slice(Math.max(0, index + 1 - SMOOTHED_POLLS), index + 1);
      const tokens = window.reduce((sum, one) => sum + one.tokens, 0) / window.length;
      return { ...point, tokens: tokens / (scenario.pollMs / 1_000) };
    });
  const tokens = ({ tokens: perSecond }: Point): number => perSecond;
  return [
    line("static limits", PINK, rate(fixed.points), tokens),
    line("oracle", GREY, rate(oracle.points), tokens, { dash: [5, 4] }),
    line("learned limits", GREEN, rate(learned.points), tokens, { width: 2 }),
  ];
}

interface Axis {
  readonly title: string;
  readonly height: number;
  /** Largest value: the panels of a row have one scale. */
  readonly most: number;
}

interface Place {
  /** Above the first panel of a column. */
  readonly heading: string | undefined;
  readonly isBottom: boolean;
  readonly hasLegend: boolean;
}

/** One layer per line, so that each has its own width and dashes. */
function panel(lines: readonly Line[], { title, height, most }: Axis, place: Place): Panel {
  const scale = {
    domain: lines.map(({ name }) => name),
    range: lines.map(({ colour }) => colour),
  };
  return {
    width: WIDTH,
    height,
    ...(place.heading === undefined ? {} : { title: { text: place.heading, fontSize: 13 } }),
    layer: lines.map(({ name, dash, width, values }) => ({
      data: { values: values.map((value) => ({ ...value, line: name })) },
      mark: {
        type: "line",
        strokeWidth: width,
        ...(dash === undefined ? {} : { strokeDash: [...dash] }),
      },
      encoding: {
        x: {
          field: "minutes",
          type: "quantitative",
          title: place.isBottom ? "time (minutes)" : null,
          axis: { tickCount: 6 },
          scale: { nice: false },
        },
        y: {
          field: "value",
          type: "quantitative",
          title,
          axis: { format: "~s", tickCount: 6 },
          scale: { domain: [0, most] },
        },
        color: {
          field: "line",
          type: "nominal",
          scale,
          legend: place.hasLegend
            ? { title: null, symbolType: "stroke", symbolStrokeWidth: 3 }
            : null,
        },
      },
    })),
  };
}

/** The panels of one row of the grid. */
function row(
  reports: readonly FeedbackReport[],
  linesOf: (report: FeedbackReport) => Line[],
  axis: Omit<Axis, "most">,
  isBottom: boolean,
): Panel[] {
  const drawn = reports.map(linesOf);
  const values = drawn.flatMap((lines) => lines.flatMap((one) => one.values));
  const most = 1.05 * values.reduce((largest, { value }) => Math.max(largest, value), 0);
  return drawn.map((lines, column) => {
    const published = reports[column]?.scenario.ceilingsPublished ?? false;
    const heading = isBottom ? undefined : dressOf(published);
    const hasLegend = column === drawn.length - 1;
    return panel(lines, { ...axis, most }, { heading, isBottom, hasLegend });
  });
}

/** The SVG text of a scenario: one column per report. */
export function chartSvg(
  title: string,
  subtitle: string,
  reports: readonly FeedbackReport[],
): Promise<string> {
  const counts = { title: "requests per replica", height: COUNTS_HEIGHT };
  const tokens = { title: "tokens per second", height: TOKENS_HEIGHT };
  return svgOf({
    title,
    subtitle,
    layout: {
      concat: [
        ...row(reports, countLines, counts, false),
        ...row(reports, throughputLines, tokens, true),
      ],
      columns: reports.length,
    },
  });
}
