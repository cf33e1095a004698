// google.protobuf.Struct, which carries Envoy's attributes and dynamic metadata. Reading gives plain
// values; writing takes a flat record, all that Weir's own metadata needs. Held equal to
// google-protobuf's Struct by tests.

import {
  delimitedLength,
  FIXED64,
  WireError,
  writeHead,
  writeText,
  type WireReader,
} from "./wire.js";

export type StructValue =
  null | boolean | number | string | readonly StructValue[] | ReadonlyMap<string, StructValue>;

/** Nesting of structs and lists; Envoy's own metadata stays far below it. */
export const STRUCT_DEPTH_MAX = 64;

/** Reads a Struct. A key that occurs twice keeps its last value, as protobuf maps do. */
export function readStruct(reader: WireReader, depth = 0): ReadonlyMap<string, StructValue> {
  if (depth > STRUCT_DEPTH_MAX) throw new WireError("struct nested too deeply");
  const fields = new Map<string, StructValue>();
  while (reader.next()) {
    if (reader.field !== 1) {
      reader.skip();
      continue;
    }
    const entry = reader.message();
    let key = "";
    let value: StructValue = null;
    while (entry.next()) {
      if (entry.field === 1) key = entry.utf8();
      else if (entry.field === 2) value = readValue(entry.message(), depth + 1);
      else entry.skip();
    }
    fields.set(key, value);
  }
  return fields;
}

function readValue(reader: WireReader, depth: number): StructValue {
  let value: StructValue = null;
  while (reader.next()) {
    switch (reader.field) {
      case 1:
        reader.skip();
        value = null;
        break;
      case 2:
        value = reader.double();
        break;
      case 3:
        value = reader.utf8();
        break;
      case 4:
        value = reader.bool();
        break;
      case 5:
        value = readStruct(reader.message(), depth);
        break;
      case 6:
        value = readList(reader.message(), depth);
        break;
      default:
        reader.skip();
    }
  }
  return value;
}

function readList(reader: WireReader, depth: number): readonly StructValue[] {
  if (depth > STRUCT_DEPTH_MAX) throw new WireError("struct nested too deeply");
  const values: StructValue[] = [];
  while (reader.next()) {
    if (reader.field === 1) values.push(readValue(reader.message(), depth + 1));
    else reader.skip();
  }
  return values;
}

/** Reads a `map<string, Struct>` entry: its key, and its struct's fields. */
export function readStructEntry(entry: WireReader): [string, ReadonlyMap<string, StructValue>] {
  let key = "";
  let value: ReadonlyMap<string, StructValue> = new Map();
  while (entry.next()) {
    if (entry.field === 1) key = entry.utf8();
    else if (entry.field === 2) value = readStruct(entry.message());
    else entry.skip();
  }
  return [key, value];
}

/** The value at a path of keys, from a struct down; undefined when a step is missing. */
export function structAt(
  fields: ReadonlyMap<string, StructValue>,
  path: readonly string[],
): StructValue | undefined {
  let value: StructValue | undefined = fields;
  for (const key of path) {
    if (!(value instanceof Map)) return undefined;
    value = (value as ReadonlyMap<string, StructValue>).get(key);
  }
  return value;
}

export type FlatFields = Readonly<Record<string, string | number | boolean>>;

/** Bytes that `writeStruct` will write for these fields. */
export function structLength(fields: FlatFields): number {
  let length = 0;
  for (const key in fields) {
    length += delimitedLength(entryLength(key, fields[key]));
  }
  return length;
}

/**
 * Writes a Struct with these fields, in order, at `offset` of a buffer with room for it. Returns the
 * offset behind it. One pass and no garbage, since every routed request carries such a struct.
 */
export function writeStruct(buffer: Buffer, offset: number, fields: FlatFields): number {
  let at = offset;
  for (const key in fields) {
    const value = fields[key];
    at = writeHead(buffer, at, 1, entryLength(key, value));
    at = writeText(buffer, at, 1, key);
    at = writeHead(buffer, at, 2, valueLength(value));
    at = writeValue(buffer, at, value);
  }
  return at;
}

function entryLength(key: string, value: FlatFields[string] | undefined): number {
  return delimitedLength(Buffer.byteLength(key)) + delimitedLength(valueLength(value));
}

function valueLength(value: FlatFields[string] | undefined): number {
  if (typeof value === "string") return delimitedLength(Buffer.byteLength(value));
  return typeof value === "number" ? 9 : 2;
}

function writeValue(buffer: Buffer, offset: number, value: FlatFields[string] | undefined): number {
  if (typeof value === "string") return writeText(buffer, offset, 3, value);
  if (typeof value === "number") {
    buffer[offset] = (2 << 3) | FIXED64;
    return buffer.writeDoubleLE(value, offset + 1);
  }
  buffer[offset] = 4 << 3;
  buffer[offset + 1] = value === true ? 1 : 0;
  return offset + 2;
}
