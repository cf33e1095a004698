// Reads the heads of a request and of an answer out of decoded messages.

import type { HeaderSource } from "../../core/model/headers.js";
import type { RequestHead, ResponseHead } from "../../core/request/heads.js";
import type { EvidenceReader } from "./evidence.js";
import { EXT_PROC_FILTER, type HeadersMessage } from "./messages.js";
import type { StructValue } from "./struct.js";

const WHOLE_NUMBER = /^\d{1,15}$/;

export function requestHead(message: HeadersMessage, evidence: EvidenceReader): RequestHead {
  const { headers } = message;
  return {
    method: first(headers, ":method") ?? "",
    target: first(headers, ":path") ?? "",
    requestId: first(headers, "x-request-id") ?? "",
    headers,
    contentLength: wholeNumber(first(headers, "content-length")),
    contentEncoding: contentEncoding(headers),
    endOfStream: message.endOfStream,
    evidence: evidence.read(message),
  };
}

export function responseHead(message: HeadersMessage): ResponseHead {
  const { headers } = message;
  const attributes = message.attributes.get(EXT_PROC_FILTER);
  return {
    status: wholeNumber(first(headers, ":status")) ?? 0,
    contentType: first(headers, "content-type"),
    endOfStream: message.endOfStream,
    attributes: {
      codeDetails: text(attributes?.get("response.code_details")),
      flags: count(attributes?.get("response.flags")),
      clusterName: text(attributes?.get("xds.cluster_name")),
      upstreamAddress: text(attributes?.get("upstream.address")),
      attempts: count(attributes?.get("upstream.request_attempt_count")),
    },
  };
}

/** The coding of a body, lower case; undefined for an uncoded one. */
export function contentEncoding(headers: HeaderSource): string | undefined {
  const coding = headers.all("content-encoding").join(",").trim().toLowerCase();
  return coding === "" || coding === "identity" ? undefined : coding;
}

function first(headers: HeaderSource, name: string): string | undefined {
  return headers.all(name)[0];
}

function wholeNumber(value: string | undefined): number | undefined {
  return value !== undefined && WHOLE_NUMBER.test(value) ? Number(value) : undefined;
}

function text(value: StructValue | undefined): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function count(value: StructValue | undefined): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}
