// The decoder against the reference codec, and against bytes nobody should send.

import { expect } from "chai";
import fc from "fast-check";
import structPb from "google-protobuf/google/protobuf/struct_pb.js";
import { decodeMessage, type InboundMessage } from "../../../extproc/edge/envoy/messages.js";
import {
  readStruct,
  STRUCT_DEPTH_MAX,
  structLength,
  writeStruct,
  type FlatFields,
  type StructValue,
} from "../../../extproc/edge/envoy/struct.js";
import {
  bytesField,
  varintField,
  WireError,
  WireReader,
} from "../../../extproc/edge/envoy/wire.js";
import { encodeRequest, headerMap, struct } from "../../support/oracle.js";

const token = fc.string({
  minLength: 1,
  maxLength: 12,
  unit: fc.constantFrom("a", "b", "c", "x", "y", "z", "-", ":", "0", "9"),
});
const latin1 = fc.string({
  maxLength: 20,
  unit: fc.nat(255).map((code) => String.fromCharCode(code)),
});
const headers = fc.array(fc.tuple(token, latin1), { maxLength: 12 });
/** The reference libraries lose a key `__proto__`, which Weir keeps: they are not asked about it. */
const isProto = (key: string): boolean => key === "__proto__";
const json = fc
  .jsonValue({ maxDepth: 4 })
  .filter((value) => !JSON.stringify(value).includes("__proto__"));
const structKey = fc.string({ maxLength: 12 }).filter((key) => !isProto(key));
const structFields = fc.dictionary(structKey, json, { maxKeys: 5, noNullPrototype: true });
const structs = fc.dictionary(token, structFields, { maxKeys: 3 });

/** Maps and lists as plain values, for comparison. */
function plain(value: StructValue): unknown {
  if (value instanceof Map) {
    return Object.fromEntries(
      Array.from(value as ReadonlyMap<string, StructValue>, ([key, inner]) => [key, plain(inner)]),
    );
  }
  return Array.isArray(value) ? (value as readonly StructValue[]).map(plain) : value;
}

function plainStructs(map: InboundMessage["attributes"]): unknown {
  return Object.fromEntries(Array.from(map, ([key, fields]) => [key, plain(fields)]));
}

/** What JSON keeps of a value: -0 becomes 0, __proto__ stays a key. */
const normal = (value: unknown): unknown => JSON.parse(JSON.stringify(value)) as unknown;

describe("decodeMessage", () => {
  it("reads every phase that the reference codec writes: kind, headers in order, body, end of stream", () => {
    fc.assert(
      fc.property(
        fc.constantFrom("request_headers", "response_headers"),
        headers,
        fc.boolean(),
        (kind, list, endOfStream) => {
          const message = decodeMessage(
            encodeRequest({ [kind]: { headers: headerMap(list), end_of_stream: endOfStream } }),
          );
          expect(message.kind).to.equal(kind);
          if (message.kind !== "request_headers" && message.kind !== "response_headers") return;
          expect(message.endOfStream).to.equal(endOfStream);
          for (const [name] of list) {
            const expected = list.filter(([key]) => key === name).map(([, value]) => value);
            expect(message.headers.all(name)).to.deep.equal(expected);
          }
          expect(message.headers.all("absent!")).to.deep.equal([]);
        },
      ),
    );
    fc.assert(
      fc.property(
        fc.constantFrom("request_body", "response_body"),
        fc.uint8Array({ maxLength: 300 }),
        fc.boolean(),
        (kind, bytes, endOfStream) => {
          const body = Buffer.from(bytes);
          const message = decodeMessage(
            encodeRequest({ [kind]: { body, end_of_stream: endOfStream } }),
          );
          expect(message).to.deep.include({ kind, endOfStream });
          if (message.kind === "request_body" || message.kind === "response_body") {
            expect(message.body.equals(body)).to.equal(true);
          }
        },
      ),
    );
    for (const kind of ["request_trailers", "response_trailers"]) {
      expect(decodeMessage(encodeRequest({ [kind]: {} })).kind).to.equal(kind);
    }
  });

  it("reads attributes and metadata like the reference codec writes them", () => {
    fc.assert(
      fc.property(structs, structs, (attributes, metadata) => {
        const wrap = (map: Record<string, Record<string, unknown>>): object =>
          Object.fromEntries(Object.entries(map).map(([key, fields]) => [key, struct(fields)]));
        const message = decodeMessage(
          encodeRequest({
            request_body: {},
            attributes: wrap(attributes),
            metadata_context: { filter_metadata: wrap(metadata) },
          }),
        );
        expect(normal(plainStructs(message.attributes))).to.deep.equal(normal(attributes));
        expect(normal(plainStructs(message.metadata))).to.deep.equal(normal(metadata));
      }),
    );
  });

  it("prefers raw_value and falls back to value", () => {
    const header = (fields: object): object => ({
      request_headers: { headers: { headers: [fields] } },
    });
    const valueOf = (fields: object): readonly string[] => {
      const message = decodeMessage(encodeRequest(header(fields)));
      return message.kind === "request_headers" ? message.headers.all("k") : [];
    };
    expect(valueOf({ key: "k", value: "v", raw_value: Buffer.from("r") })).to.deep.equal(["r"]);
    expect(valueOf({ key: "k", value: "v" })).to.deep.equal(["v"]);
    expect(valueOf({ key: "k" })).to.deep.equal([""]);
  });

  it("skips unknown fields of every wire type, at every level", () => {
    const unknown = Buffer.concat([
      varintField(100, 7),
      bytesField(101, "text"),
      Buffer.from([(102 << 3) | 1, 6, 1, 2, 3, 4, 5, 6, 7, 8].slice(1)),
    ]);
    const noise = Buffer.concat([varintField(100, 7), bytesField(101, unknown.subarray(0, 3))]);
    const body = bytesField(4, noise, bytesField(1, "hello"), varintField(2, 1), noise);
    const message = decodeMessage(Buffer.concat([noise, body, noise]));
    expect(message).to.deep.include({ kind: "request_body", endOfStream: true });
    if (message.kind === "request_body") expect(message.body.toString()).to.equal("hello");
  });

  it("refuses every truncation of a valid message or reads a shorter valid one, and never hangs", () => {
    const whole = encodeRequest({
      request_headers: {
        headers: headerMap([
          [":path", "/v1"],
          ["a", "b"],
        ]),
        end_of_stream: true,
      },
      attributes: {
        filter: struct({ "source.address": "127.0.0.1:1", deep: { list: [1, "x", null] } }),
      },
    });
    for (let length = 0; length < whole.length; length += 1) {
      try {
        decodeMessage(whole.subarray(0, length));
      } catch (error) {
        expect(error).to.be.instanceOf(WireError);
      }
    }
  });

  it("answers any bytes with a message or a WireError", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        try {
          decodeMessage(Buffer.from(bytes));
        } catch (error) {
          expect(error).to.be.instanceOf(WireError);
        }
      }),
      { numRuns: 2_000 },
    );
  });

  it("refuses hostile shapes: no kind, field 0, a length past the end, a varint of eleven bytes, a group", () => {
    const hostile = {
      "no kind": varintField(10, 1),
      empty: Buffer.alloc(0),
      "field 0": Buffer.from([0x02, 0x00]),
      "length past the end": Buffer.from([0x12, 0x7f, 0x01]),
      "huge length": Buffer.from([0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
      "long varint": Buffer.from([0x50, ...Array.from({ length: 11 }, () => 0xff)]),
      group: Buffer.from([0x0b, 0x0c]),
      "headers as a varint": varintField(2, 1),
    };
    for (const [title, bytes] of Object.entries(hostile)) {
      expect(() => decodeMessage(bytes), title).to.throw(WireError);
    }
  });

  it("reads structs nested to the limit and refuses one level more instead of overflowing the stack", () => {
    const nested = (depth: number): Buffer => {
      let value = bytesField(3, "deep");
      for (let level = 0; level < depth; level += 1) {
        value = bytesField(5, bytesField(1, bytesField(1, "k"), bytesField(2, value)));
      }
      const fields = bytesField(1, bytesField(1, "k"), bytesField(2, value));
      const entry = bytesField(9, bytesField(1, "f"), bytesField(2, fields));
      return Buffer.concat([bytesField(4), entry]);
    };
    expect(decodeMessage(nested(STRUCT_DEPTH_MAX)).attributes.has("f")).to.equal(true);
    expect(() => decodeMessage(nested(STRUCT_DEPTH_MAX + 1))).to.throw(WireError, /deep/);
  });
});

/** A struct written with bytes around it, which must stay as they were. */
function encode(fields: FlatFields): Buffer {
  const buffer = Buffer.alloc(structLength(fields) + 6, 0xee);
  expect(writeStruct(buffer, 3, fields)).to.equal(buffer.length - 3);
  expect(buffer.subarray(0, 3).equals(buffer.subarray(-3))).to.equal(true);
  return buffer.subarray(3, -3);
}

describe("Struct", () => {
  it("is written as google-protobuf reads it", () => {
    const flat = fc.dictionary(
      fc.string({ maxLength: 10 }).filter((key) => !isProto(key)),
      fc.oneof(fc.string(), fc.double({ noNaN: true }), fc.boolean()),
    );
    fc.assert(
      fc.property(flat, (fields) => {
        const decoded = structPb.Struct.deserializeBinary(encode(fields)).toJavaScript();
        expect(normal(decoded)).to.deep.equal(normal(fields));
      }),
    );
  });

  it("keeps a key named as an object's own parts are", () => {
    const fields = JSON.parse('{"__proto__":"a","toString":"b","constructor":"c"}') as FlatFields;
    const decoded = readStruct(new WireReader(encode(fields)));
    expect(Array.from(decoded)).to.deep.equal([
      ["__proto__", "a"],
      ["toString", "b"],
      ["constructor", "c"],
    ]);
  });

  it("is written right at every length at which its own length takes one byte more", () => {
    for (const length of [0, 100, 110, 119, 120, 123, 127, 128, 16_370, 16_383, 16_384]) {
      const fields = { k: "v".repeat(length), é: "€" };
      const decoded = structPb.Struct.deserializeBinary(encode(fields)).toJavaScript();
      expect(decoded, String(length)).to.deep.equal(fields);
    }
  });

  it("is read as google-protobuf writes it", () => {
    fc.assert(
      fc.property(structFields, (fields) => {
        const bytes = structPb.Struct.fromJavaScript(fields).serializeBinary();
        const decoded = readStruct(new WireReader(Buffer.from(bytes)));
        expect(normal(plain(decoded))).to.deep.equal(normal(fields));
      }),
    );
  });
});
