// The figures a run is judged by: how evenly service was spread, how long requests waited.

/**
 * Jain's index of fairness, (sum x)^2 / (n * sum x^2): 1 when all are equal, 1/n when one has all.
 * (R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness, 1984.) 1 for no value, and for zeros.
 */
export function jainIndex(values: readonly number[]): number {
  let sum = 0;
  let squares = 0;
  for (const value of values) {
    sum += value;
    squares += value * value;
  }
  return squares === 0 ? 1 : (sum * sum) / (values.length * squares);
}

/** The value that `part` (0..1) of the values do not exceed, by nearest rank; undefined without values. */
export function quantile(sorted: readonly number[], part: number): number | undefined {
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)];
}

/** What `weight` tenants are due of `tokens`, each by its weight. */
export function partsOf(tokens: number, weights: readonly number[]): number[] {
  let all = 0;
  for (const weight of weights) all += weight;
  return weights.map((weight) => (tokens * weight) / all);
}
