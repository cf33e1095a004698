// Decodes header blocks (HPACK, RFC 7541). State: the dynamic table, which has to follow every block
// of the connection in order. A table of size 0 would spare it, but a peer may use the default size
// until it has read our settings, so the table is needed all the same, and it makes blocks short.

import { decodeHuffman } from "./hpack-huffman.js";
import { STATIC_TABLE, type HeaderField } from "./hpack-static-table.js";
import { COMPRESSION_ERROR, ConnectionError, ENHANCE_YOUR_CALM } from "./frames.js";
import { HEADER_BLOCK_BYTES_MAX, HEADER_TABLE_BYTES_MAX } from "./limits.js";

/** What an entry counts beyond its name and value (RFC 7541, section 4.1). */
const ENTRY_OVERHEAD_BYTES = 32;
/** Above any index or length that can be right; keeps integers exact. */
const INTEGER_MAX = 2 ** 28;

export type VisitField = (name: string, value: string) => void;

export class HpackDecoder {
  /** Oldest first: the newest entry has dynamic index 1. */
  readonly #entries: HeaderField[] = [];
  #tableBytes = 0;
  #maxTableBytes = HEADER_TABLE_BYTES_MAX;
  #changes = 0;
  // The block being decoded.
  #block: Buffer = Buffer.alloc(0);
  #at = 0;

  /** Counts every change of the table: two equal blocks mean the same while it stands still. */
  get changes(): number {
    return this.#changes;
  }

  /** Decodes a whole block. Throws ConnectionError: the table is out of step then. */
  decode(block: Buffer, visit: VisitField): void {
    this.#block = block;
    this.#at = 0;
    this.#sizeUpdates();
    let listBytes = 0;
    while (this.#at < block.length) {
      const [name, value] = this.#field();
      listBytes += entryBytes(name, value);
      if (listBytes > HEADER_BLOCK_BYTES_MAX) {
        throw new ConnectionError(
          ENHANCE_YOUR_CALM,
          "headers are longer than MAX_HEADER_LIST_SIZE",
        );
      }
      visit(name, value);
    }
  }

  /** Changes of the table's size stand at the beginning of a block only. */
  #sizeUpdates(): void {
    while (this.#at < this.#block.length && ((this.#block[this.#at] ?? 0) & 0xe0) === 0x20) {
      const size = this.#integer(5);
      if (size > HEADER_TABLE_BYTES_MAX) throw broken("a table size above the one that is allowed");
      this.#changes += 1;
      this.#maxTableBytes = size;
      this.#evict(0);
    }
  }

  #field(): HeaderField {
    const byte = this.#block[this.#at] ?? 0;
    if (byte >= 0x80) return this.#entry(this.#integer(7));
    if (byte >= 0x40) {
      const field = this.#literal(6);
      this.#insert(field);
      return field;
    }
    if (byte >= 0x20) throw broken("a change of the table size behind a field");
    // Without indexing, or never to be indexed: the same for whoever passes nothing on.
    return this.#literal(4);
  }

  #literal(prefixBits: number): HeaderField {
    const index = this.#integer(prefixBits);
    const name = index === 0 ? this.#text() : this.#entry(index)[0];
    return [name, this.#text()];
  }

  #entry(index: number): HeaderField {
    const entry =
      index <= STATIC_TABLE.length
        ? STATIC_TABLE[index - 1]
        : this.#entries[this.#entries.length - (index - STATIC_TABLE.length)];
    if (entry === undefined) throw broken("an index outside of the tables");
    return entry;
  }

  #insert(field: HeaderField): void {
    const bytes = entryBytes(...field);
    this.#changes += 1;
    this.#evict(bytes);
    // An entry larger than the table empties it, and is no error.
    if (bytes > this.#maxTableBytes) return;
    this.#entries.push(field);
    this.#tableBytes += bytes;
  }

  /** Drops the oldest entries until `bytes` more fit. */
  #evict(bytes: number): void {
    while (this.#tableBytes + bytes > this.#maxTableBytes) {
      const oldest = this.#entries.shift();
      if (oldest === undefined) return;
      this.#tableBytes -= entryBytes(...oldest);
    }
  }

  #text(): string {
    const huffman = (this.#block[this.#at] ?? 0) >= 0x80;
    const length = this.#integer(7);
    const start = this.#at;
    const end = start + length;
    if (end > this.#block.length) throw broken("a text longer than its block");
    this.#at = end;
    if (!huffman) return this.#block.toString("latin1", start, end);
    const text = decodeHuffman(this.#block, start, end);
    if (text === undefined) throw broken("a text that is not Huffman code");
    return text;
  }

  /** An integer that begins in the low bits of the next byte (RFC 7541, section 5.1). */
  #integer(prefixBits: number): number {
    const mask = 2 ** prefixBits - 1;
    let value = this.#byte() & mask;
    if (value < mask) return value;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#byte();
      value += (byte & 0x7f) * scale;
      if (value > INTEGER_MAX || scale > INTEGER_MAX) throw broken("an integer out of bounds");
      if (byte < 0x80) return value;
    }
  }

  #byte(): number {
    const byte = this.#block[this.#at];
    if (byte === undefined) throw broken("a block that ends inside of a field");
    this.#at += 1;
    return byte;
  }
}

function entryBytes(name: string, value: string): number {
  return name.length + value.length + ENTRY_OVERHEAD_BYTES;
}

function broken(what: string): ConnectionError {
  return new ConnectionError(COMPRESSION_ERROR, `HPACK: ${what}`);
}
