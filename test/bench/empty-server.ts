// An ext_proc server that decides nothing: `empty-server.ts <port> <workers>` answers every message by its
// first byte with bytes written down before, over Weir's own HTTP/2, and sends requests to the clusters
// worker_1, worker_2, … in turn. What Envoy and this cost together, no server behind ext_proc goes below.

import { PEER_HEADER, ROUTE_HEADER } from "../../extproc/core/identity/control-headers.js";
import { headersFrom } from "../../extproc/core/model/headers.js";
import { KINDS } from "../../extproc/edge/envoy/messages.js";
import { CONTINUE, RouteReplies } from "../../extproc/edge/envoy/replies.js";
import { H2cTransport } from "../../extproc/edge/envoy/transport/h2c/h2c-transport.js";

const MESSAGE_MAX_BYTES = 67_108_864;

const [port = "", workers = ""] = process.argv.slice(2);
const removed = [PEER_HEADER, "x-weir-tenant-id"];
const replies = new RouteReplies(ROUTE_HEADER, removed);
const everyHeader = headersFrom(Object.fromEntries(removed.map((name) => [name, ""])));
const routes = Array.from({ length: Number(workers) }, (_, at) =>
  replies.for("request_body", `worker_${String(at + 1)}`, everyHeader, {}),
);
let requests = 0;

function fault(error: unknown): void {
  process.stderr.write(`${String(error)}\n`);
}

function replyTo(bytes: Buffer): Buffer | undefined {
  // Envoy writes the field of the phase first.
  const phase = KINDS.get((bytes[0] ?? 0) >> 3);
  if (phase !== "request_body") return phase && CONTINUE[phase];
  requests += 1;
  return routes[requests % routes.length];
}

const transport = new H2cTransport(
  (exchange) => ({
    message: (bytes) => {
      const reply = replyTo(bytes);
      if (reply === undefined) exchange.abort();
      else exchange.send(reply);
    },
    closed: () => undefined,
  }),
  { maxReceiveBytes: MESSAGE_MAX_BYTES, onFault: fault },
);
await transport.listen({ kind: "tcp", host: "127.0.0.1", port: Number(port) });
process.stdout.write("serving\n");
