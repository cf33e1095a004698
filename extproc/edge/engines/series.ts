// Small questions about the samples of one metric. NaN passes through sums and means, so that one
// impossible sample makes the whole value impossible and never a plausible smaller one.

import type { Sample, SamplesByName } from "./exposition.js";
import type { TokenCounters } from "./parsed.js";

const NONE: readonly Sample[] = [];

/** All samples of a name, in the order of the text. */
export function samplesOf(samples: SamplesByName, name: string): readonly Sample[] {
  return samples.get(name) ?? NONE;
}

/** Samples whose label has that value; an absent label and an empty one are the same. */
export function withLabel(
  samples: readonly Sample[],
  label: string,
  value: string,
): readonly Sample[] {
  return samples.filter(({ labels }) => (labels.get(label) ?? "") === value);
}

/** The samples of a name by the value of a label, in one pass over them. */
export class ByLabel {
  readonly #samples: SamplesByName;
  readonly #label: string;
  readonly #groups = new Map<string, ReadonlyMap<string, readonly Sample[]>>();

  constructor(samples: SamplesByName, label: string) {
    this.#samples = samples;
    this.#label = label;
  }

  /** The samples of a name whose label has that value. */
  of(name: string, value: string): readonly Sample[] {
    let groups = this.#groups.get(name);
    if (groups === undefined) {
      groups = groupBy(samplesOf(this.#samples, name), this.#label);
      this.#groups.set(name, groups);
    }
    return groups.get(value) ?? NONE;
  }
}

function groupBy(
  samples: readonly Sample[],
  label: string,
): ReadonlyMap<string, readonly Sample[]> {
  const groups = new Map<string, Sample[]>();
  for (const sample of samples) {
    const value = sample.labels.get(label) ?? "";
    const group = groups.get(value);
    if (group === undefined) groups.set(value, [sample]);
    else group.push(sample);
  }
  return groups;
}

/** Undefined when there is no sample. */
export function sumOf(samples: readonly Sample[]): number | undefined {
  if (samples.length === 0) return undefined;
  return samples.reduce((sum, { value }) => sum + value, 0);
}

/** Undefined when there is no sample. */
export function meanOf(samples: readonly Sample[]): number | undefined {
  const sum = sumOf(samples);
  return sum === undefined ? undefined : sum / samples.length;
}

/** The values of a label over the samples, in numeric order where they are numbers. */
export function valuesOf(samples: readonly Sample[], label: string): readonly string[] {
  const values = new Set(samples.map(({ labels }) => labels.get(label) ?? ""));
  return [...values].sort((a, b) => Number(a) - Number(b) || (a < b ? -1 : 1));
}

/** Product of two factors; undefined when one is unknown. */
export function product(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? undefined : a * b;
}

/** A counter's series, each under a key that names all its labels. */
export function countersOf(samples: readonly Sample[]): TokenCounters {
  return new Map(samples.map(({ labels, value }) => [JSON.stringify([...labels].sort()), value]));
}
