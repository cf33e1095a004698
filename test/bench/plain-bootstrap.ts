// The bootstrap of the comparison: the same Envoy without Weir. Only the ext_proc filter goes, the
// workers become one cluster whose endpoints take turns, and the route names that cluster itself.

import { parse, stringify } from "yaml";
import { EXT_PROC_CLUSTER } from "../../extproc/core/model/config.js";

interface Filter {
  readonly name: string;
}

interface Route {
  readonly route?: Record<string, unknown>;
  typed_per_filter_config?: unknown;
}

interface Cluster {
  readonly name: string;
  readonly load_assignment: { readonly endpoints: readonly { readonly lb_endpoints: unknown[] }[] };
}

interface Bootstrap {
  readonly static_resources: {
    readonly clusters: readonly Cluster[];
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

/** Takes the ext_proc filter out of a bootstrap and routes everything to all workers in turn. */
export function plainBootstrap(yaml: string): string {
  const bootstrap = parse(yaml) as Bootstrap;
  const pool = poolWorkers(bootstrap.static_resources.clusters);
  for (const listener of bootstrap.static_resources.listeners) {
    for (const { filters } of listener.filter_chains) {
      for (const { typed_config: manager } of filters) {
        manager.http_filters = manager.http_filters.filter(({ name }) => name !== EXT_PROC);
        for (const { routes } of manager.route_config.virtual_hosts)
          routes.forEach((entry) => {
            routePlainly(entry, pool);
          });
      }
    }
  }
  return stringify(bootstrap);
}

/** Gives the first worker's cluster the endpoints of all workers; its name. */
function poolWorkers(clusters: readonly Cluster[]): string {
  const [pool, ...others] = clusters.filter(({ name }) => name !== EXT_PROC_CLUSTER);
  const endpoints = pool?.load_assignment.endpoints[0]?.lb_endpoints;
  if (pool === undefined || endpoints === undefined) throw new Error("the bootstrap has no worker");
  for (const { load_assignment } of others) {
    endpoints.push(...load_assignment.endpoints.flatMap(({ lb_endpoints }) => lb_endpoints));
  }
  return pool.name;
}

function routePlainly(entry: Route, cluster: string): void {
  delete entry.typed_per_filter_config;
  if (entry.route === undefined) return;
  delete entry.route["cluster_header"];
  entry.route["cluster"] = cluster;
}
