// The reference codec: @grpc/proto-loader over proto/ext_proc.proto. The hand-written codec is held
// equal to it.

import * as protoLoader from "@grpc/proto-loader";

interface Method {
  readonly requestSerialize: (value: object) => Buffer;
  readonly requestDeserialize: (bytes: Buffer) => object;
  readonly responseSerialize: (value: object) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => object;
}

const SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor";

const definition = protoLoader.loadSync("proto/ext_proc.proto", {
  keepCase: true,
  longs: Number,
  enums: Number,
  defaults: false,
  oneofs: false,
});

const { Process } = definition[SERVICE] as unknown as { readonly Process: Method };

export const encodeRequest = (message: object): Buffer => Process.requestSerialize(message);
export const decodeReply = (bytes: Buffer): ReplyShape => Process.responseDeserialize(bytes);
/** The service definition for a real gRPC client. */
export const serviceDefinition = definition[SERVICE] as protoLoader.ServiceDefinition;

interface HeaderShape {
  readonly key: string;
  readonly value?: string;
  readonly raw_value?: Buffer;
}

interface CommonShape {
  readonly response?: {
    readonly header_mutation?: {
      readonly set_headers?: readonly {
        readonly header: HeaderShape;
        readonly append_action: number;
      }[];
      readonly remove_headers?: readonly string[];
    };
    readonly clear_route_cache?: boolean;
  };
}

/** A ProcessingResponse as the oracle decodes it; absent fields are absent. */
export interface ReplyShape {
  readonly request_headers?: CommonShape;
  readonly response_headers?: CommonShape;
  readonly request_body?: CommonShape;
  readonly response_body?: CommonShape;
  readonly request_trailers?: object;
  readonly response_trailers?: object;
  readonly immediate_response?: {
    readonly status: { readonly code: number };
    readonly headers?: {
      readonly set_headers?: readonly {
        readonly header: HeaderShape;
        readonly append_action: number;
      }[];
    };
    readonly body?: Buffer;
    readonly details?: string;
  };
  readonly dynamic_metadata?: { readonly fields: Record<string, unknown> };
  readonly mode_override?: Record<string, number>;
  readonly override_message_timeout?: { readonly seconds?: number; readonly nanos?: number };
}

/** A Struct value in the form the oracle takes. */
export function structValue(value: unknown): object {
  if (value === null) return { nullValue: 0 };
  if (typeof value === "string") return { stringValue: value };
  if (typeof value === "number") return { numberValue: value };
  if (typeof value === "boolean") return { boolValue: value };
  if (Array.isArray(value)) return { listValue: { values: value.map(structValue) } };
  return { structValue: struct(value as Record<string, unknown>) };
}

/** A Struct in the form the oracle takes. */
export function struct(fields: Readonly<Record<string, unknown>>): {
  fields: Record<string, object>;
} {
  return {
    fields: Object.fromEntries(
      Object.entries(fields).map(([key, value]) => [key, structValue(value)]),
    ),
  };
}

/** A header map in the form the oracle takes; values are bytes. */
export function headerMap(headers: readonly (readonly [string, string])[]): object {
  return {
    headers: headers.map(([key, value]) => ({ key, raw_value: Buffer.from(value, "latin1") })),
  };
}
