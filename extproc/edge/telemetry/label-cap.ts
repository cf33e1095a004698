// Bounds the values of a metric label that come from requests: configured names are pinned, the rest
// is `other`. A flood of made-up names can neither grow the registry nor push a configured name out.

/** The label value of everything that is not pinned. */
export const OTHER = "other";

export class LabelCap {
  readonly #pinned: ReadonlySet<string>;

  /** @param limit how many of the names are pinned, in code-unit order */
  constructor(names: Iterable<string>, limit: number) {
    this.#pinned = new Set([...new Set(names)].sort().slice(0, limit));
  }

  /** The pinned names. */
  get names(): Iterable<string> {
    return this.#pinned;
  }

  value(name: string | undefined): string {
    return name !== undefined && this.#pinned.has(name) ? name : OTHER;
  }
}
