// Draws a Vega-Lite specification as SVG, with the look that all pictures of the simulations share.

import { parse, View } from "vega";
import { compile, type TopLevelSpec } from "vega-lite";

/** Told apart also by people who do not see all colours (the palette of Okabe and Ito). */
export const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"] as const;

/** One of several that stand side by side or one below the other. */
export type Panel = Extract<TopLevelSpec, { hconcat: unknown }>["hconcat"][number];

export interface Picture {
  readonly title: string;
  readonly subtitle: string;
  /** Panels one below the other, or in a grid; each has a legend of its own. */
  readonly layout:
    { readonly vconcat: Panel[] } | { readonly concat: Panel[]; readonly columns: number };
}

/** The SVG text of a picture. */
export async function svgOf({ title, subtitle, layout }: Picture): Promise<string> {
  const picture: TopLevelSpec = {
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
    ...layout,
    resolve: { scale: { color: "independent" } },
    config: {
      font: "Helvetica, Arial, sans-serif",
      title: { anchor: "start" },
      view: { stroke: "#ddd" },
      axis: { gridColor: "#eee", domainColor: "#999", tickColor: "#999", labelColor: "#444" },
      legend: { labelFontSize: 11, titleFontSize: 11, labelLimit: 240 },
    },
  };
  const { spec } = compile(picture);
  const view = new View(parse(spec), { renderer: "none" });
  try {
    return await view.toSVG();
  } finally {
    view.finalize();
  }
}
