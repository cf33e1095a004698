// Bounds the values of a metric label that come from requests: configured names are pinned, the rest
// is `other`. A flood of made-up names can neither grow the registry nor push a configured name out.

import type { WeirConfig } from "../../core/model/config.js";

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

/** Labels of models: all that the configuration names. */
export function modelLabels({ models, workers }: WeirConfig): LabelCap {
  const names = [...models.keys(), ...workers.flatMap((worker) => worker.models)];
  return new LabelCap(names, Number.POSITIVE_INFINITY);
}

/** Labels of tenants: the first `limits.tenant_metric_top_n` of those the configuration names. */
export function tenantLabels({ scheduler, fair_share, limits }: WeirConfig): LabelCap {
  const names = [fair_share, ...fair_share.model_profiles.values()]
    .flatMap(({ tenant_weights }) => [...tenant_weights.keys()])
    .concat(...scheduler.tenant_policies.keys());
  return new LabelCap(names, limits.tenant_metric_top_n);
}
