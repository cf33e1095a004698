// Puts the way in from Envoy together: a session for each stream, and the transport that carries the
// streams.

import { removeUpstream, ROUTE_HEADER } from "../../core/identity/control-headers.js";
import type { TransportKind, WeirConfig } from "../../core/model/config.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { RequestDesk } from "../../core/request/request-desk.js";
import { SlicedWork } from "../runtime/sliced-work.js";
import type { Log, RateLimitedLog } from "../telemetry/log.js";
import { createWireCodec, type CreateCodec } from "./codec.js";
import { EvidenceReader } from "./evidence.js";
import { Session } from "./session.js";
import { GrpcJsTransport } from "./transport/grpc-js-transport.js";
import { H2cTransport } from "./transport/h2c/h2c-transport.js";
import { Http2Transport } from "./transport/http2-transport.js";
import type { OpenExchange, Transport, TransportOptions } from "./transport/transport.js";

/** Room for the framing of a request body above the body limit: Envoy's own limit stands 1 MiB above it. */
const MESSAGE_OVERHEAD_BYTES = 2 * 1024 * 1024;

/** A way to serve ext_proc. */
export type CreateTransport = (open: OpenExchange, options: TransportOptions) => Transport;

const TRANSPORTS: Readonly<Record<TransportKind, CreateTransport>> = {
  h2c: (open, options) => new H2cTransport(open, options),
  http2: (open, options) => new Http2Transport(open, options),
  grpc_js: (open, options) => new GrpcJsTransport(open, options),
};

export interface TransportParts {
  readonly config: WeirConfig;
  readonly desk: RequestDesk;
  readonly now: () => MonotonicMs;
  readonly onFault: (error: unknown) => void;
  readonly log: Log;
  readonly complaints: RateLimitedLog;
  /** The default is the one the configuration names. */
  readonly createTransport?: CreateTransport | undefined;
  /** The default is Weir's own codec. */
  readonly createCodec?: CreateCodec | undefined;
}

export function createTransport(parts: TransportParts): Transport {
  const { config, log, complaints, createCodec = createWireCodec } = parts;
  const deps = {
    desk: parts.desk,
    evidence: new EvidenceReader({
      identityMetadata: config.envoy.identity_metadata,
      peers: config.trust.peers,
      trustedHops: config.envoy.trusted_hops,
    }),
    codec: createCodec(ROUTE_HEADER, removeUpstream(config.trust, config.headers)),
    now: parts.now,
    work: new SlicedWork(),
    messageTimeoutMs: config.envoy.message_timeout_ms,
    decodeMaxBytes: config.settlement.decode_max_bytes,
    onFault: parts.onFault,
    onMissingAttributes: () => {
      complaints.once("attributes", () => {
        log.warn("Envoy sends no response attributes: add response_attributes to its filter");
      });
    },
  };
  const open: OpenExchange = (exchange) => new Session(deps, exchange);
  const create = parts.createTransport ?? TRANSPORTS[config.listen.transport];
  return create(open, {
    maxReceiveBytes: config.limits.body_limit_bytes + MESSAGE_OVERHEAD_BYTES,
    onFault: parts.onFault,
  });
}
