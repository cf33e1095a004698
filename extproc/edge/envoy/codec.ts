// What a session needs of a codec: messages from bytes, and bytes for each kind of reply. Weir's own
// codec writes most replies once and sends the same bytes again. The interface exists so that another
// codec can be measured in its place under the same session and transport.

import type { HeaderSource } from "../../core/model/headers.js";
import type { Rejection } from "../../core/model/rejection.js";
import type { RouteFacts } from "../../core/request/verdict.js";
import { decodeMessage, type InboundMessage } from "./messages.js";
import {
  CONTINUE,
  holdReply,
  READ_RESPONSE_BODY,
  refusalReply,
  RouteReplies,
  type Phase,
  type RequestPhase,
} from "./replies.js";

export interface Codec {
  /** Throws for bytes that are not a ProcessingRequest. */
  readonly decode: (bytes: Buffer) => InboundMessage;
  /** Go on, change nothing. */
  readonly proceed: (phase: Phase) => Buffer;
  /** Go on at the response headers, and send the body chunk by chunk. */
  readonly readResponseBody: () => Buffer;
  /** Wait this much longer for the reply. */
  readonly hold: (budgetMs: number) => Buffer;
  /** Go to this cluster without those of the request's headers that must not reach a worker. */
  readonly route: (
    phase: RequestPhase,
    cluster: string,
    headers: HeaderSource,
    facts: RouteFacts,
  ) => Buffer;
  readonly refusal: (rejection: Rejection) => Buffer;
}

/** Makes a codec for a route header and the request headers that must not reach a worker. */
export type CreateCodec = (routeHeader: string, removeHeaders: readonly string[]) => Codec;

export const createWireCodec: CreateCodec = (routeHeader, removeHeaders) => {
  const routes = new RouteReplies(routeHeader, removeHeaders);
  return {
    decode: decodeMessage,
    proceed: (phase) => CONTINUE[phase],
    readResponseBody: () => READ_RESPONSE_BODY,
    hold: holdReply,
    route: (phase, cluster, headers, facts) => routes.for(phase, cluster, headers, facts),
    refusal: refusalReply,
  };
};
