// Connects the capacity-credit API with a core, or answers for it while credits are off.

import { CREDIT_PRIORITY } from "../../core/identity/priority.js";
import type { PartitionName } from "../../core/model/ids.js";
import { readApiKey } from "../runtime/api-key.js";
import type { AdminPages } from "./admin-server.js";
import { CreditApi, creditsDisabled, type CreditApiOptions } from "./credit-api.js";
import { CreditBinder } from "./credit-binder.js";
import { ServiceKey } from "./service-key.js";
import type { PageSources } from "./state-pages.js";

export interface CreditListeners extends Pick<CreditApiOptions, "onOperation" | "onFault"> {
  /** The service key cannot be read; the text names its place only. */
  readonly onKeyProblem: (problem: string) => void;
}

export function createCreditApi(
  { config, core, now }: Pick<PageSources, "config" | "core" | "now">,
  { onOperation, onFault, onKeyProblem }: CreditListeners,
): AdminPages["credits"] {
  const { credits: registry, desk } = core;
  const { service_key: source } = config.credits;
  if (registry === undefined || source === undefined) return creditsDisabled;
  const retryAfterS = (partition: PartitionName): number => {
    const view = desk.partitions(now()).find(({ name }) => name === partition);
    return view?.retry_after_secs[CREDIT_PRIORITY.effective] ?? 1;
  };
  const serviceKey = new ServiceKey({
    read: () => readApiKey(source),
    onProblem: onKeyProblem,
    now,
  });
  const api = new CreditApi({
    registry,
    binder: new CreditBinder(config),
    serviceKey,
    draining: () => desk.draining,
    retryAfterS,
    onOperation,
    onFault,
    now,
  });
  return (request, path) => api.answer(request, path);
}
