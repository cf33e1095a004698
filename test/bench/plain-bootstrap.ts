// The bootstrap of the comparison: the same Envoy without Weir. Only the ext_proc filter goes, and the
// route names its cluster itself.

import { parse, stringify } from "yaml";

interface Filter {
  readonly name: string;
}

interface Route {
  readonly route?: Record<string, unknown>;
  typed_per_filter_config?: unknown;
}

interface Bootstrap {
  readonly static_resources: {
    readonly listeners: readonly {
      readonly filter_chains: readonly {
        readonly filters: readonly {
          readonly typed_config: {
            http_filters: Filter[];
            readonly route_config: {
              readonly virtual_hosts: readonly { readonly routes: Route[] }[];
            };
          };
        }[];
      }[];
    }[];
  };
}

const EXT_PROC = "envoy.filters.http.ext_proc";

/** Takes the ext_proc filter out of a bootstrap and routes everything to the cluster worker_1. */
export function plainBootstrap(yaml: string): string {
  const bootstrap = parse(yaml) as Bootstrap;
  for (const listener of bootstrap.static_resources.listeners) {
    for (const { filters } of listener.filter_chains) {
      for (const { typed_config: manager } of filters) {
        manager.http_filters = manager.http_filters.filter(({ name }) => name !== EXT_PROC);
        for (const { routes } of manager.route_config.virtual_hosts) routes.forEach(routePlainly);
      }
    }
  }
  return stringify(bootstrap);
}

function routePlainly(entry: Route): void {
  delete entry.typed_per_filter_config;
  if (entry.route === undefined) return;
  delete entry.route["cluster_header"];
  entry.route["cluster"] = "worker_1";
}
