// Reads a small body whole. What is longer than the limit is not kept; it is still taken in for a while, so
// that a client which sends first and listens later hears the refusal and not a broken connection.

import type { IncomingMessage } from "node:http";

/** Longest body of the API: ten times what all its fields hold at most. */
export const API_BODY_MAX_BYTES = 65_536;
/** Bytes of a body that is too long which are still taken in; what sends more is cut off. */
const DISCARDED_MAX_BYTES = 1_048_576;

export type BodyReading =
  | { readonly kind: "body"; readonly bytes: Uint8Array }
  | { readonly kind: "too_large" }
  /** The client left. */
  | { readonly kind: "gone" };

/** Never rejects. */
export function readBody(request: IncomingMessage): Promise<BodyReading> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let length = 0;
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length <= API_BODY_MAX_BYTES) chunks.push(chunk);
      else chunks.length = 0;
      if (length > DISCARDED_MAX_BYTES) resolve({ kind: "too_large" });
    });
    request.on("end", () => {
      resolve(
        length > API_BODY_MAX_BYTES
          ? { kind: "too_large" }
          : { kind: "body", bytes: Buffer.concat(chunks) },
      );
    });
    request.on("error", () => undefined);
    request.on("close", () => {
      resolve({ kind: "gone" });
    });
  });
}
