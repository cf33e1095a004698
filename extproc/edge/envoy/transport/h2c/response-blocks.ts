// The header blocks of every answer, encoded once. They use no dynamic table, so they mean the same at
// any time and on any connection, whatever table size the peer allows.

import { STATUS_TEXTS } from "../grpc-status.js";

/** `:status: 200`, entry 8 of the static table. */
const STATUS_200 = Buffer.from([0x88]);
/** Index of `content-type` in the static table. */
const CONTENT_TYPE_INDEX = 31;

/** Opens an answer that has messages. */
export const HEAD_BLOCK = Buffer.concat([
  STATUS_200,
  indexedName(CONTENT_TYPE_INDEX, "application/grpc"),
]);

/** Ends an answer that has a head, by gRPC status. */
const TRAILER_BLOCKS = new Map([...STATUS_TEXTS].map(([code, text]) => [code, status(code, text)]));

/** A whole answer without messages, by gRPC status. */
const WHOLE_BLOCKS = new Map(
  [...TRAILER_BLOCKS].map(([code, block]) => [code, Buffer.concat([HEAD_BLOCK, block])]),
);

/** The block that ends a call with a status. `begun`: its head has been sent. */
export function endBlock(code: number, begun: boolean): Buffer {
  const block = (begun ? TRAILER_BLOCKS : WHOLE_BLOCKS).get(code);
  if (block === undefined) throw new Error(`no answer ends with gRPC status ${String(code)}`);
  return block;
}

function status(code: number, text: string): Buffer {
  const field = literal("grpc-status", String(code));
  return text === "" ? field : Buffer.concat([field, literal("grpc-message", text)]);
}

/** A field that is not to be indexed, with a name of its own. */
function literal(name: string, value: string): Buffer {
  return Buffer.concat([Buffer.from([0]), plainText(name), plainText(value)]);
}

/** A field that is not to be indexed, with a name of the static table (15 to 142). */
function indexedName(index: number, value: string): Buffer {
  return Buffer.concat([Buffer.from([0x0f, index - 15]), plainText(value)]);
}

/** Up to 126 characters, not Huffman coded: they are copied once per answer and never parsed here. */
function plainText(text: string): Buffer {
  return Buffer.concat([Buffer.from([text.length]), Buffer.from(text, "latin1")]);
}
