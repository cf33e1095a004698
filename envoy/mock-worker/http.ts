// Small HTTP tools of the worker: reading a bounded body, and plain answers that no fault touches.
import type { IncomingMessage, ServerResponse } from "node:http";

/** Largest request body: room for a request with several inline images. */
export const MAX_BODY_BYTES = 64 * 1024 * 1024;

export type Body =
  | { readonly kind: "body"; readonly text: string }
  | { readonly kind: "too_large" }
  | { readonly kind: "gone" };

/** Reads the whole body; `count` hears of every piece. */
export async function readBody(
  request: IncomingMessage,
  count?: (bytes: number) => void,
): Promise<Body> {
  const parts: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const part of request) {
      const piece = part as Buffer;
      bytes += piece.length;
      count?.(piece.length);
      // The rest is read and dropped: a server that stops reading resets the client mid-upload.
      if (bytes > MAX_BODY_BYTES) parts.length = 0;
      else parts.push(piece);
    }
  } catch {
    return { kind: "gone" };
  }
  if (bytes > MAX_BODY_BYTES) return { kind: "too_large" };
  return { kind: "body", text: Buffer.concat(parts).toString("utf8") };
}

export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  sendText(response, status, JSON.stringify(value), "application/json");
}

export function sendText(
  response: ServerResponse,
  status: number,
  text: string,
  type = "text/plain; charset=utf-8",
): void {
  if (response.destroyed || response.headersSent) return;
  const body = Buffer.from(text);
  response.writeHead(status, { "content-type": type, "content-length": body.length });
  response.end(body);
}
