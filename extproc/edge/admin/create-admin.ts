// Builds the admin port of a process: its pages, the API of capacity credits, and the document about
// both. What goes wrong is logged; a key that cannot be read is logged once per period, because every
// call of an allocator tries it again.

import type { Log, RateLimitedLog } from "../telemetry/log.js";
import { AdminServer, type AdminPages } from "./admin-server.js";
import { createCreditApi, type CreditListeners } from "./create-credit-api.js";
import { openApiDocument } from "./openapi.js";
import { statePages, type PageSources } from "./state-pages.js";

export interface AdminOptions
  extends Pick<AdminPages, "metrics">, Pick<CreditListeners, "onOperation" | "onFault"> {
  readonly log: Log;
  readonly complaints: RateLimitedLog;
}

export function createAdmin(
  sources: PageSources,
  { metrics, onOperation, onFault, log, complaints }: AdminOptions,
): AdminServer {
  const credits = createCreditApi(sources, {
    onOperation,
    onFault,
    onKeyProblem: (problem) => {
      complaints.once("service key", () => {
        log.error({ problem }, "no allocator gets in");
      });
    },
  });
  return new AdminServer({
    ready: sources.ready,
    metrics,
    states: statePages(sources),
    credits,
    openApi: openApiDocument(sources.config.trust.tenant_header_name),
    onError: (error) => {
      log.error({ err: error }, "admin server");
    },
  });
}
