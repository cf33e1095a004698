// Writes the Envoy bootstrap that belongs to a weir.yaml. One source for both sides: the timeouts
// Envoy grants are computed from the queue timeouts Weir keeps, the headers Envoy strips are those
// Weir does not believe, and each worker has the cluster Weir names. The output is for Envoy 1.40
// and carries comments where an operator would ask why.

import { Document, isCollection, isMap, isNode, isScalar } from "yaml";
import type { WeirConfig } from "../../core/model/config.js";
import { clusters } from "./bootstrap-clusters.js";
import { ingressListener } from "./bootstrap-listener.js";
import type { BootstrapMap } from "./bootstrap-value.js";

/** Ends each finished ext_proc stream cleanly instead of resetting it. */
const GRACEFUL_CLOSE = "envoy.reloadable_features.ext_proc_graceful_grpc_close";

/**
 * How long Envoy keeps its gRPC client for Weir without a new stream: a year, which stands for ever.
 * By default it is dropped after 50 s, and a stream that outlives it and is then closed gracefully
 * ends the process.
 */
const CLIENT_IDLE_MAX = "31536000s";

/** Comments by the name of a key; each stands before the first key of that name. */
const COMMENTS: Readonly<Record<string, string>> = {
  [GRACEFUL_CLOSE]:
    "Without it every finished ext_proc stream is reset, and Node closes the connection after\n" +
    "about a thousand resets.",
  grpc_async_client_manager_config:
    "With the default of 50 s a request that lasts longer on a quiet Envoy crashes it, because its\n" +
    "ext_proc stream outlives the client it was opened with.",
  use_remote_address:
    "The client's address is the connection's, or the entry of X-Forwarded-For that the trusted\n" +
    "hops vouch for. Otherwise a forged header would choose the tenant.",
  normalize_path:
    "A path that is not in its plain form is refused by Weir. Normalizing would serve it as another.",
  stream_idle_timeout:
    "Runs while a request is held: longest queue timeout + 5 s, and 300 s for a quiet engine.",
  early_header_mutation_extensions:
    "Runs before the route is chosen; a filter would be too late. Control headers nobody may send\n" +
    "are removed, and so are those that ask Envoy for retries; the direct peer's address is\n" +
    "written over whatever came.",
  local_reply_config:
    "Envoy's own errors in the shape of all others. Only answers with Envoy's details match, so\n" +
    "Weir's refusals pass unchanged.",
  request_body_buffer_limit: "limits.body_limit_bytes + 1 MiB, so that Weir answers the 413.",
  cluster_header:
    "The header only Weir sets. Absent or unknown gives 503, never a default worker. No retries:\n" +
    "a cluster is one worker, and a retry would meet the same one.",
  failure_mode_allow:
    "Safe because of the early strip and because the route has no default: without Weir's header a\n" +
    "request gets 503, while a running answer outlives a crash of Weir.",
  send_body_without_waiting_for_header_response:
    "An answer's body follows its headers at once. Waiting for Weir's reply to the headers would\n" +
    "keep the slot for one more round trip.",
  max_message_timeout: "Longest queue timeout + 5 s: the most Weir may ask for while it holds.",
};

/**
 * The bootstrap for Envoy 1.40 as YAML. `source` is the name of the configuration file for the head
 * comment.
 */
export function bootstrapYaml(config: WeirConfig, source = "weir.yaml"): string {
  const document = new Document(bootstrap(config), { aliasDuplicateObjects: false });
  document.commentBefore =
    ` Envoy 1.40 bootstrap, written by: weir bootstrap -c ${source}\n` +
    " Change that file and write this one again; edits here are lost.";
  const waiting = new Map(Object.entries(COMMENTS));
  addComments(document.contents, waiting);
  return document.toString({ lineWidth: 0 });
}

function bootstrap(config: WeirConfig): BootstrapMap {
  const { admin_address, admin_port } = config.envoy;
  return {
    admin: { address: { socket_address: { address: admin_address, port_value: admin_port } } },
    grpc_async_client_manager_config: { max_cached_entry_idle_duration: CLIENT_IDLE_MAX },
    layered_runtime: {
      layers: [{ name: "static", static_layer: { [GRACEFUL_CLOSE]: true } }],
    },
    static_resources: {
      listeners: [ingressListener(config)],
      clusters: clusters(config),
    },
  };
}

/** Walks the tree in the order it is written and spends each comment once. */
function addComments(node: unknown, waiting: Map<string, string>): void {
  if (!isCollection(node)) return;
  if (!isMap(node)) {
    node.items.forEach((item) => {
      addComments(item, waiting);
    });
    return;
  }
  for (const { key, value } of node.items) {
    const name = isScalar(key) ? String(key.value) : "";
    const comment = waiting.get(name);
    if (comment !== undefined && isNode(key)) {
      key.commentBefore = comment.replace(/^/gm, " ");
      waiting.delete(name);
    }
    addComments(value, waiting);
  }
}
