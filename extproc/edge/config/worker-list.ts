// How messages name several workers: by their place in the file, the first few of them, and how many
// more there are. A fleet of a thousand must not fill the screen.

/** `workers[0], workers[3] and 2 more`; at most `most` are named. */
export function listWorkers(indexes: readonly number[], most: number): string {
  const named = indexes.slice(0, most).map((index) => `workers[${String(index)}]`);
  const more = indexes.length - most;
  return named.join(", ") + (more > 0 ? ` and ${String(more)} more` : "");
}
