// What can `npm run simulate` show? A demonstration has a name in the list of scenarios, runs on virtual
// time from a seed, and leaves lines for people and a picture. Each simulation brings its own.

export interface Shown {
  /** Tables of one part of it each. */
  readonly parts: readonly (readonly string[])[];
  /** Draws it; the text of an SVG. */
  readonly svg: () => Promise<string>;
}

export interface Demonstration {
  readonly title: string;
  /** One sentence: what to look for. */
  readonly shows: string;
  /** Virtual minutes it needs to show anything. */
  readonly minutesMin: number;
  readonly run: (seed: number, lengthMs: number) => Shown;
}

export type Demonstrations = Readonly<Record<string, Demonstration>>;
