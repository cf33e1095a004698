// Which pages of state there are, each by its path. All read the core as it is at that moment.

import type { WeirConfig } from "../../core/model/config.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { Core } from "../../core/request/assembly.js";
import { admissionPage } from "./admission-page.js";
import type { AdminPages } from "./admin-server.js";
import { fairSharePage } from "./fair-share-page.js";
import { seedingPage } from "./seeding-page.js";
import { selectionPage } from "./selection-page.js";
import { statePage } from "./state-page.js";

export interface PageSources {
  readonly config: WeirConfig;
  readonly core: Core;
  readonly ready: () => boolean;
  readonly now: () => MonotonicMs;
}

export function statePages({ config, core, ready, now }: PageSources): AdminPages["states"] {
  const { desk, workers, selector, seeder, ledger, feedback, telemetry, slots } = core;
  const { credits, seeding } = config;
  const admission = {
    mode: config.adaptive_admission.mode,
    adaptiveCapacity: config.scheduler.adaptive_capacity,
    feedback,
    telemetry,
    slots,
  };
  const fairShare = (query: URLSearchParams): object =>
    fairSharePage(ledger, desk.partitions(now()), query.get("tenant") ?? undefined);
  return new Map([
    ["/state", () => statePage({ desk, workers, credits }, ready(), now())],
    ["/state/fair-share", fairShare],
    ["/state/admission", () => admissionPage(admission, now())],
    ["/state/selection", () => selectionPage(config, selector, workers)],
    ["/state/seeding", () => seedingPage(seeding, seeder.explain(now()))],
  ]);
}
