// The heads of a request and of its answer, as an edge hands them to the core.

import type { Evidence } from "../identity/evidence.js";
import type { HeaderSource } from "../model/headers.js";
import type { ResponseAttributes } from "../settlement/answer-origin.js";

export interface RequestHead {
  readonly method: string;
  /** The request target, query included. */
  readonly target: string;
  readonly requestId: string;
  readonly headers: HeaderSource;
  /** Announced length of the body in bytes; undefined when none is announced. */
  readonly contentLength: number | undefined;
  readonly contentEncoding: string | undefined;
  /** True when no body follows. */
  readonly endOfStream: boolean;
  readonly evidence: Evidence;
}

export interface ResponseHead {
  readonly status: number;
  readonly contentType: string | undefined;
  /** True when no body follows. */
  readonly endOfStream: boolean;
  readonly attributes: ResponseAttributes;
}
