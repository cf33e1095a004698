// Decodes envoy.service.ext_proc.v3.ProcessingRequest, the message Envoy sends for each phase of a
// request. Field numbers are those of Envoy API v1.40 (proto/ext_proc.proto restates them and is the
// test oracle). Unknown fields are skipped; bodies share memory with the message.

import type { HeaderSource } from "../../core/model/headers.js";
import { readStructEntry, type StructValue } from "./struct.js";
import { WireError, WireReader } from "./wire.js";

export type StructMap = ReadonlyMap<string, ReadonlyMap<string, StructValue>>;

interface Context {
  /** Attributes by filter name; empty where the message carries none. */
  readonly attributes: StructMap;
  /** Dynamic metadata by namespace. */
  readonly metadata: StructMap;
}

export interface HeadersMessage extends Context {
  readonly kind: "request_headers" | "response_headers";
  readonly headers: HeaderSource;
  readonly endOfStream: boolean;
}

export interface BodyMessage extends Context {
  readonly kind: "request_body" | "response_body";
  /** Shares memory with the message it came in. */
  readonly body: Buffer;
  readonly endOfStream: boolean;
}

export interface TrailersMessage extends Context {
  readonly kind: "request_trailers" | "response_trailers";
}

export type InboundMessage = HeadersMessage | BodyMessage | TrailersMessage;

/** Attributes arrive under the name of the filter that asked for them. */
export const EXT_PROC_FILTER = "envoy.filters.http.ext_proc";

/** Kinds of messages by their field in ProcessingRequest. */
export const KINDS: ReadonlyMap<number, InboundMessage["kind"]> = new Map([
  [2, "request_headers"],
  [3, "response_headers"],
  [4, "request_body"],
  [5, "response_body"],
  [6, "request_trailers"],
  [7, "response_trailers"],
]);

const NO_STRUCTS: StructMap = new Map();
const EMPTY: Buffer = Buffer.alloc(0);

/** Decodes one message. Throws WireError for bytes that are not one. */
export function decodeMessage(buffer: Buffer): InboundMessage {
  const reader = new WireReader(buffer);
  let kind: InboundMessage["kind"] | undefined;
  let content: WireReader | undefined;
  let metadata: StructMap = NO_STRUCTS;
  let attributes: Map<string, ReadonlyMap<string, StructValue>> | undefined;
  while (reader.next()) {
    const found = KINDS.get(reader.field);
    if (found !== undefined) {
      kind = found;
      content = reader.message();
    } else if (reader.field === 8) {
      metadata = readMetadata(reader.message());
    } else if (reader.field === 9) {
      attributes ??= new Map();
      attributes.set(...readStructEntry(reader.message()));
    } else {
      reader.skip();
    }
  }
  if (kind === undefined || content === undefined) throw new WireError("message of no known kind");
  return assemble(kind, content, attributes ?? NO_STRUCTS, metadata);
}

function assemble(
  kind: InboundMessage["kind"],
  content: WireReader,
  attributes: StructMap,
  metadata: StructMap,
): InboundMessage {
  switch (kind) {
    case "request_headers":
    case "response_headers": {
      const { headers, endOfStream } = readHeaders(content);
      return { kind, headers, endOfStream, attributes, metadata };
    }
    case "request_body":
    case "response_body": {
      const { body, endOfStream } = readBody(content);
      return { kind, body, endOfStream, attributes, metadata };
    }
    case "request_trailers":
    case "response_trailers":
      return { kind, attributes, metadata };
  }
}

function readMetadata(reader: WireReader): StructMap {
  let namespaces: Map<string, ReadonlyMap<string, StructValue>> | undefined;
  while (reader.next()) {
    if (reader.field !== 1) {
      reader.skip();
      continue;
    }
    namespaces ??= new Map();
    namespaces.set(...readStructEntry(reader.message()));
  }
  return namespaces ?? NO_STRUCTS;
}

function readBody(reader: WireReader): { body: Buffer; endOfStream: boolean } {
  let body: Buffer = EMPTY;
  let endOfStream = false;
  while (reader.next()) {
    if (reader.field === 1) body = reader.bytes();
    else if (reader.field === 2) endOfStream = reader.bool();
    else reader.skip();
  }
  return { body, endOfStream };
}

function readHeaders(reader: WireReader): { headers: HeaderSource; endOfStream: boolean } {
  const headers = new WireHeaders();
  let endOfStream = false;
  while (reader.next()) {
    if (reader.field === 1) headers.read(reader.message());
    else if (reader.field === 3) endOfStream = reader.bool();
    else reader.skip();
  }
  return { headers, endOfStream };
}

const NO_VALUES: readonly string[] = [];

/** A header map. Values stay bytes until somebody asks, and most headers nobody asks for. */
class WireHeaders implements HeaderSource {
  readonly #values = new Map<string, Buffer | Buffer[]>();

  read(map: WireReader): void {
    while (map.next()) {
      if (map.field !== 1) {
        map.skip();
        continue;
      }
      const header = map.message();
      let key = "";
      let value: Buffer = EMPTY;
      let rawValue: Buffer | undefined;
      while (header.next()) {
        if (header.field === 1) key = header.latin1();
        else if (header.field === 2) value = header.bytes();
        else if (header.field === 3) rawValue = header.bytes();
        else header.skip();
      }
      // Envoy 1.40 sends raw_value only; value is read for peers that fill it instead.
      this.#add(key, rawValue !== undefined && rawValue.length > 0 ? rawValue : value);
    }
  }

  all(name: string): readonly string[] {
    const values = this.#values.get(name);
    if (values === undefined) return NO_VALUES;
    if (Array.isArray(values)) return values.map((value) => value.toString("latin1"));
    return [values.toString("latin1")];
  }

  #add(key: string, value: Buffer): void {
    const present = this.#values.get(key);
    if (present === undefined) this.#values.set(key, value);
    else if (Array.isArray(present)) present.push(value);
    else this.#values.set(key, [present, value]);
  }
}
