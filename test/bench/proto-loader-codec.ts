// The same session over @grpc/proto-loader's codec with its default options: what Weir would cost
// without a codec of its own. It decodes every message into objects and encodes every reply anew.

import * as protoLoader from "@grpc/proto-loader";
import { headersFrom } from "../../extproc/core/model/headers.js";
import type { Codec, CreateCodec } from "../../extproc/edge/envoy/codec.js";
import type { InboundMessage, StructMap } from "../../extproc/edge/envoy/messages.js";
import type { StructValue } from "../../extproc/edge/envoy/struct.js";

interface Method {
  readonly requestDeserialize: (bytes: Buffer) => Decoded;
  readonly responseSerialize: (value: object) => Buffer;
}

interface DecodedValue {
  readonly stringValue?: string;
  readonly numberValue?: number;
  readonly boolValue?: boolean;
  readonly structValue?: DecodedStruct;
  readonly listValue?: { readonly values?: readonly DecodedValue[] };
}

interface DecodedStruct {
  readonly fields?: Readonly<Record<string, DecodedValue>>;
}

interface DecodedHeaders {
  readonly headers?: {
    readonly headers?: readonly { readonly key: string; readonly rawValue?: Buffer }[];
  };
  readonly endOfStream?: boolean;
}

interface DecodedBody {
  readonly body?: Buffer;
  readonly endOfStream?: boolean;
}

interface Decoded {
  readonly requestHeaders?: DecodedHeaders | null;
  readonly responseHeaders?: DecodedHeaders | null;
  readonly requestBody?: DecodedBody | null;
  readonly responseBody?: DecodedBody | null;
  readonly responseTrailers?: object | null;
  readonly attributes?: Readonly<Record<string, DecodedStruct>>;
  readonly metadataContext?: {
    readonly filterMetadata?: Readonly<Record<string, DecodedStruct>>;
  } | null;
}

const definition = protoLoader.loadSync("proto/ext_proc.proto");
const service = definition["envoy.service.ext_proc.v3.ExternalProcessor"] as unknown as {
  readonly Process: Method;
};

function value(decoded: DecodedValue): StructValue {
  if (decoded.stringValue !== undefined) return decoded.stringValue;
  if (decoded.numberValue !== undefined) return decoded.numberValue;
  if (decoded.boolValue !== undefined) return decoded.boolValue;
  if (decoded.structValue !== undefined) return fields(decoded.structValue);
  return decoded.listValue?.values?.map(value) ?? null;
}

function fields(decoded: DecodedStruct): ReadonlyMap<string, StructValue> {
  return new Map(Object.entries(decoded.fields ?? {}).map(([key, inner]) => [key, value(inner)]));
}

function structs(decoded: Readonly<Record<string, DecodedStruct>> | undefined): StructMap {
  return new Map(Object.entries(decoded ?? {}).map(([key, inner]) => [key, fields(inner)]));
}

function headers(
  decoded: DecodedHeaders,
): Pick<InboundMessage & { readonly kind: "request_headers" }, "headers" | "endOfStream"> {
  const record: Record<string, string[]> = {};
  for (const { key, rawValue } of decoded.headers?.headers ?? []) {
    (record[key] ??= []).push(rawValue?.toString("latin1") ?? "");
  }
  return { headers: headersFrom(record), endOfStream: decoded.endOfStream ?? false };
}

function decode(bytes: Buffer): InboundMessage {
  const message = service.Process.requestDeserialize(bytes);
  const context = {
    attributes: structs(message.attributes),
    metadata: structs(message.metadataContext?.filterMetadata),
  };
  if (message.requestHeaders) {
    return { kind: "request_headers", ...headers(message.requestHeaders), ...context };
  }
  if (message.responseHeaders) {
    return { kind: "response_headers", ...headers(message.responseHeaders), ...context };
  }
  const body = message.requestBody ?? message.responseBody;
  if (body) {
    return {
      kind: message.requestBody ? "request_body" : "response_body",
      body: body.body ?? Buffer.alloc(0),
      endOfStream: body.endOfStream ?? false,
      ...context,
    };
  }
  return { kind: "response_trailers", ...context };
}

const encode = (reply: object): Buffer => service.Process.responseSerialize(reply);

const PHASES = {
  request_headers: "requestHeaders",
  response_headers: "responseHeaders",
  request_body: "requestBody",
  response_body: "responseBody",
  request_trailers: "requestTrailers",
  response_trailers: "responseTrailers",
} as const;

const structField = (inner: string | number): object =>
  typeof inner === "string" ? { stringValue: inner } : { numberValue: inner };

export const createProtoLoaderCodec: CreateCodec = (routeHeader, removeHeaders): Codec => ({
  decode,
  proceed: (phase) => encode({ [PHASES[phase]]: {} }),
  readResponseBody: () =>
    encode({
      responseHeaders: {},
      modeOverride: {
        requestHeaderMode: "SEND",
        responseHeaderMode: "SEND",
        requestBodyMode: "BUFFERED",
        responseBodyMode: "STREAMED",
        requestTrailerMode: "SKIP",
        responseTrailerMode: "SEND",
      },
    }),
  hold: (budgetMs) => encode({ overrideMessageTimeout: { seconds: budgetMs / 1_000 } }),
  route: (phase, cluster, headers, facts) =>
    encode({
      [PHASES[phase]]: {
        response: {
          headerMutation: {
            setHeaders: [
              {
                header: { key: routeHeader, rawValue: Buffer.from(cluster) },
                appendAction: "OVERWRITE_IF_EXISTS_OR_ADD",
              },
            ],
            removeHeaders: removeHeaders.filter((name) => headers.all(name).length > 0),
          },
          clearRouteCache: true,
        },
      },
      dynamicMetadata: {
        fields: {
          weir: {
            structValue: {
              fields: Object.fromEntries(
                Object.entries(facts).map(([key, inner]) => [key, structField(inner)]),
              ),
            },
          },
        },
      },
    }),
  refusal: (rejection) =>
    encode({
      immediateResponse: {
        status: { code: rejection.status },
        body: Buffer.from(JSON.stringify({ error: { code: rejection.code } })),
      },
    }),
});
