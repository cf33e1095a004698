// The protobuf wire format, as much of it as ext_proc needs: tags, varints, length-delimited fields.
// A reader walks one message in place and copies nothing. Every malformed input (truncated, a length
// past the end, an overlong varint, a deprecated group) is a WireError; nothing loops or reads past
// the end. Writers build small messages at start-up or for rare replies, so they favour clarity.

/** Bytes that are not a well-formed protobuf message. */
export class WireError extends Error {
  override readonly name = "WireError";
}

export const VARINT = 0;
export const FIXED64 = 1;
export const LENGTH_DELIMITED = 2;
export const FIXED32 = 5;

/** A 64-bit varint has at most ten bytes. */
const VARINT_BYTES_MAX = 10;

/** Walks the fields of one message inside a buffer. */
export class WireReader {
  readonly buffer: Buffer;
  #position: number;
  readonly #end: number;
  /** Field number and wire type of the field that `next` found. */
  field = 0;
  wireType = 0;

  constructor(buffer: Buffer, start = 0, end: number = buffer.length) {
    this.buffer = buffer;
    this.#position = start;
    this.#end = end;
  }

  /** Moves to the next field; false at the end of the message. */
  next(): boolean {
    if (this.#position >= this.#end) return false;
    const tag = this.varint();
    this.field = Math.floor(tag / 8);
    this.wireType = tag % 8;
    if (this.field === 0) throw new WireError("field number 0");
    return true;
  }

  /** An unsigned varint; above 2^53 the value is rounded, which no field of ours can need. */
  varint(): number {
    let result = 0;
    let scale = 1;
    for (let count = 0; count < VARINT_BYTES_MAX; count += 1) {
      if (this.#position >= this.#end) throw new WireError("truncated varint");
      const byte = this.buffer[this.#position] ?? 0;
      this.#position += 1;
      result += (byte & 0x7f) * scale;
      if (byte < 0x80) return result;
      scale *= 128;
    }
    throw new WireError("varint longer than ten bytes");
  }

  bool(): boolean {
    this.#expect(VARINT);
    return this.varint() !== 0;
  }

  double(): number {
    this.#expect(FIXED64);
    const at = this.#advance(8);
    return this.buffer.readDoubleLE(at);
  }

  /** A reader over the embedded message. */
  message(): WireReader {
    const start = this.#delimited();
    return new WireReader(this.buffer, start, this.#position);
  }

  /** The bytes of the field, sharing memory with the buffer. */
  bytes(): Buffer {
    const start = this.#delimited();
    return this.buffer.subarray(start, this.#position);
  }

  /** The field as text; each byte becomes one character. */
  latin1(): string {
    const start = this.#delimited();
    return this.buffer.toString("latin1", start, this.#position);
  }

  utf8(): string {
    const start = this.#delimited();
    return this.buffer.toString("utf8", start, this.#position);
  }

  /** Passes over the field, whatever its type. */
  skip(): void {
    switch (this.wireType) {
      case VARINT:
        this.varint();
        return;
      case FIXED64:
        this.#advance(8);
        return;
      case LENGTH_DELIMITED:
        this.#delimited();
        return;
      case FIXED32:
        this.#advance(4);
        return;
      default:
        throw new WireError(`wire type ${String(this.wireType)}`);
    }
  }

  #delimited(): number {
    this.#expect(LENGTH_DELIMITED);
    return this.#advance(this.varint());
  }

  #advance(length: number): number {
    const start = this.#position;
    if (length > this.#end - start) throw new WireError("field longer than its message");
    this.#position = start + length;
    return start;
  }

  #expect(wireType: number): void {
    if (this.wireType !== wireType) {
      throw new WireError(`field ${String(this.field)} has wire type ${String(this.wireType)}`);
    }
  }
}

/** The bytes of an unsigned varint; `value` is a whole number from 0 to 2^53 - 1. */
export function encodeVarint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 0x80) {
    bytes.push((rest % 0x80) | 0x80);
    rest = Math.floor(rest / 0x80);
  }
  bytes.push(rest);
  return Buffer.from(bytes);
}

/** A varint field: enum, bool or unsigned number. */
export function varintField(field: number, value: number): Buffer {
  return Buffer.concat([encodeVarint(field * 8 + VARINT), encodeVarint(value)]);
}

/** A length-delimited field: text, bytes or an embedded message in parts. */
export function bytesField(field: number, ...parts: readonly (Uint8Array | string)[]): Buffer {
  const content = Buffer.concat(
    parts.map((part) => (typeof part === "string" ? Buffer.from(part, "utf8") : part)),
  );
  return Buffer.concat([
    encodeVarint(field * 8 + LENGTH_DELIMITED),
    encodeVarint(content.length),
    content,
  ]);
}

/** Bytes of a length-delimited field with a one-byte tag around `length` bytes. */
export function delimitedLength(length: number): number {
  return 1 + varintLength(length) + length;
}

function varintLength(value: number): number {
  let bytes = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes += 1;
  return bytes;
}

/** Writes tag and length of a length-delimited field (1..15); returns the offset behind them. */
export function writeHead(buffer: Buffer, offset: number, field: number, length: number): number {
  buffer[offset] = (field << 3) | LENGTH_DELIMITED;
  let at = offset + 1;
  let rest = length;
  while (rest >= 0x80) {
    buffer[at] = (rest % 0x80) | 0x80;
    at += 1;
    rest = Math.floor(rest / 0x80);
  }
  buffer[at] = rest;
  return at + 1;
}

/** Writes a whole text field; returns the offset behind it. */
export function writeText(buffer: Buffer, offset: number, field: number, text: string): number {
  const at = writeHead(buffer, offset, field, Buffer.byteLength(text));
  return at + buffer.write(text, at, "utf8");
}
