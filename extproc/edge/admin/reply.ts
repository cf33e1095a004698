// One answer of the admin port, before it is written. A page has a body; an answer without one has no
// content type either.

import type { ServerResponse } from "node:http";

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Undefined = no body. */
  readonly text: string | undefined;
}

export const textReply = (status: number, text: string): Reply => ({
  status,
  headers: { "content-type": "text/plain; charset=utf-8" },
  text: `${text}\n`,
});

export const jsonReply = (
  status: number,
  value: object,
  headers: Readonly<Record<string, string>> = {},
): Reply => ({
  status,
  headers: { ...headers, "content-type": "application/json" },
  text: JSON.stringify(value),
});

/** Writes an answer; nothing when another one has begun. */
export function sendReply(response: ServerResponse, reply: Reply, headOnly: boolean): void {
  if (response.headersSent) {
    response.end();
    return;
  }
  const { status, headers, text } = reply;
  const length =
    text === undefined && status === 204
      ? {}
      : { "content-length": String(Buffer.byteLength(text ?? "")) };
  response.writeHead(status, { ...headers, ...length, "cache-control": "no-store" });
  response.end(headOnly ? undefined : text);
}
