// Draws the replayed incident as SVG: one column per run, one row per engine with what it ran and what
// waited in it, the engine that held the prompt first, and below them how many requests were answered and
// refused so far. A seed stands as a bar at the top of its engine's row, as long as it was there.

import { COLOURS, svgOf, type Panel } from "../sim/command/picture.js";
import { seedVisits } from "./incident-seeds.js";
import type { IncidentRun, Load, Sample } from "./incident.js";

const WIDTH = 400;
const HOT_HEIGHT = 130;
const PEER_HEIGHT = 44;
const TOTALS_HEIGHT = 120;
/** Between two points that are drawn: about two pixels. */
const APART_MS = 120;
/** Room above the highest value, in which seeds are drawn. */
const HEADROOM = 1.25;

const [BLUE, ORANGE, GREEN, PINK] = COLOURS;

/** Largest values, so that both columns have one scale. */
interface Scales {
  readonly hot: number;
  readonly peer: number;
  readonly total: number;
  readonly seconds: number;
}

function scalesOf(runs: readonly IncidentRun[]): Scales {
  const most = (values: readonly number[]): number =>
    values.reduce((one, other) => Math.max(one, other), 1);
  const loadsOf = ({ samples, hot }: IncidentRun, isHot: boolean): number[] =>
    samples.flatMap(({ loads }) =>
      loads
        .filter((_, worker) => (worker === hot) === isHot)
        .map(({ running, waiting }) => running + waiting),
    );
  const samples = runs.flatMap((run) => run.samples);
  return {
    hot: most(runs.flatMap((run) => loadsOf(run, true))),
    peer: most(runs.flatMap((run) => loadsOf(run, false))),
    total: most(samples.map(({ answered, refused }) => Math.max(answered, refused))),
    seconds: most(samples.map(({ atMs }) => atMs)) / 1_000,
  };
}

/** The samples that differ from the one drawn before, no closer than the eye can tell, and the last one. */
function changes(
  samples: readonly Sample[],
  value: (sample: Sample) => unknown,
): readonly Sample[] {
  let drawn: { readonly atMs: number; readonly text: string } | undefined;
  return samples.filter((sample, index) => {
    const text = JSON.stringify(value(sample));
    const close = drawn !== undefined && sample.atMs - drawn.atMs < APART_MS;
    const isWanted = text !== drawn?.text && !close;
    if (isWanted) drawn = { atMs: sample.atMs, text };
    return isWanted || index === samples.length - 1;
  });
}

interface Row {
  readonly title: string;
  readonly height: number;
  readonly most: number;
  readonly seconds: number;
  readonly heading?: string | undefined;
  readonly isBottom?: boolean;
  readonly hasLegend: boolean;
}

const xOf = ({ seconds, isBottom = false }: Row, field = "seconds"): object => ({
  field,
  type: "quantitative",
  title: isBottom ? "time since the burst (seconds)" : null,
  axis: isBottom ? { tickCount: 7 } : { tickCount: 7, labels: false, ticks: false },
  scale: { domain: [0, seconds], nice: false },
});

const yOf = ({ title, most }: Row, stack?: "zero"): object => ({
  field: "value",
  type: "quantitative",
  title,
  ...(stack === undefined ? {} : { stack }),
  axis: { tickCount: 3, titleAngle: 0, titleAlign: "right", titleAnchor: "middle" },
  scale: { domain: [0, most], nice: false },
});

function colourOf(names: Readonly<Record<string, string>>, hasLegend: boolean): object {
  return {
    field: "line",
    type: "nominal",
    scale: { domain: Object.keys(names), range: Object.values(names) },
    legend: hasLegend ? { title: null, symbolType: "square" } : null,
  };
}

const titleOf = ({ heading }: Row): object =>
  heading === undefined ? {} : { title: { text: heading, fontSize: 13 } };

function enginePanel(run: IncidentRun, worker: number, row: Row): Panel {
  const loadAt = ({ loads }: Sample): Load => loads[worker] ?? { running: 0, waiting: 0 };
  const values = changes(run.samples, loadAt).flatMap((sample) => {
    const { running, waiting } = loadAt(sample);
    const seconds = sample.atMs / 1_000;
    return [
      { seconds, line: "running", order: 0, value: running },
      { seconds, line: "waiting", order: 1, value: waiting },
    ];
  });
  const seeds = seedVisits(run)
    .filter((visit) => visit.worker === worker)
    .map(({ fromMs, untilMs }) => ({
      seconds: fromMs / 1_000,
      until: (untilMs ?? Infinity) / 1_000,
      line: "a seed",
    }))
    .map((seed) => ({ ...seed, until: Math.min(seed.until, row.seconds) }));
  const colours = { running: BLUE, waiting: ORANGE, "a seed": GREEN };
  return {
    width: WIDTH,
    height: row.height,
    ...titleOf(row),
    layer: [
      {
        data: { values },
        mark: { type: "area", interpolate: "step-after" },
        encoding: {
          x: xOf(row),
          y: yOf(row, "zero"),
          order: { field: "order", type: "ordinal" },
          color: colourOf(colours, row.hasLegend),
        },
      },
      {
        data: { values: seeds },
        mark: { type: "rect", height: 5, y: 0, y2: 6 },
        encoding: {
          x: xOf(row),
          x2: { field: "until" },
          color: colourOf(colours, row.hasLegend),
        },
      },
    ],
  };
}

function totalsPanel({ samples }: IncidentRun, row: Row): Panel {
  const values = changes(samples, ({ answered, refused }) => [answered, refused]).flatMap(
    ({ atMs, answered, refused }) => [
      { seconds: atMs / 1_000, line: "answered", value: answered },
      { seconds: atMs / 1_000, line: "refused", value: refused },
    ],
  );
  return {
    width: WIDTH,
    height: row.height,
    data: { values },
    mark: { type: "line", strokeWidth: 2 },
    encoding: {
      x: xOf(row),
      y: yOf(row),
      color: colourOf({ answered: GREEN, refused: PINK }, row.hasLegend),
    },
  };
}

/** The engine that held the prompt, then its peers in their order. */
const orderOf = ({ hot, served }: IncidentRun): number[] => [
  hot,
  ...served.map((_, worker) => worker).filter((worker) => worker !== hot),
];

/** The SVG text of runs under the same load, side by side. */
export function incidentSvg(runs: readonly IncidentRun[]): Promise<string> {
  const scales = scalesOf(runs);
  const panels: Panel[] = [];
  const last = runs.length - 1;
  const { seconds } = scales;
  const places = runs[0] === undefined ? 0 : orderOf(runs[0]).length;
  for (let place = 0; place < places; place += 1) {
    for (const [column, run] of runs.entries()) {
      const isHot = place === 0;
      panels.push(
        enginePanel(run, orderOf(run)[place] ?? 0, {
          title: isHot ? "owner" : `peer ${String(place)}`,
          height: isHot ? HOT_HEIGHT : PEER_HEIGHT,
          most: HEADROOM * (isHot ? scales.hot : scales.peer),
          seconds,
          heading: isHot ? `seeding ${run.seeding ? "on" : "off"}` : undefined,
          hasLegend: isHot && column === last,
        }),
      );
    }
  }
  for (const [column, run] of runs.entries()) {
    panels.push(
      totalsPanel(run, {
        title: "requests",
        height: TOTALS_HEIGHT,
        most: 1.05 * scales.total,
        seconds,
        isBottom: true,
        hasLegend: column === last,
      }),
    );
  }
  return svgOf({
    title: "One worker holds the prompt that everybody asks about",
    subtitle:
      "what eight engines run and what waits in them, by their own word, under the same load",
    layout: { concat: panels, columns: runs.length },
  });
}
