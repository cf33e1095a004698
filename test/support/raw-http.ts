// How do tests send what no HTTP client would? This file writes bytes to a socket as they stand and
// reads one HTTP/1.1 answer with a content-length, or finds that the connection was closed without
// one. For malformed requests, methods and targets that node:http refuses to send.
import { createConnection } from "node:net";
import type { Answer } from "./http-client.js";

export type RawAnswer = Pick<Answer, "status" | "headers" | "body">;

const DEFAULT_LIMIT_MS = 10_000;

/**
 * Sends `text`, one byte per character, and returns the answer, or undefined when the connection
 * was closed without a whole one. Rejects when neither happens in time.
 */
export function exchangeRaw(
  port: number,
  text: string,
  limitMs = DEFAULT_LIMIT_MS,
): Promise<RawAnswer | undefined> {
  return new Promise((done, failed) => {
    const socket = createConnection({ host: "127.0.0.1", port });
    let received = "";
    const settle = (finish: () => void): void => {
      clearTimeout(timer);
      socket.destroy();
      finish();
    };
    const timer = setTimeout(() => {
      settle(() => {
        failed(new Error(`no answer in ${String(limitMs)} ms to: ${text.slice(0, 80)}`));
      });
    }, limitMs);
    socket.on("data", (bytes) => {
      received += bytes.toString("latin1");
      const answer = parse(received);
      if (answer === undefined) return;
      settle(() => {
        done(answer);
      });
    });
    socket.on("error", () => undefined);
    socket.on("close", () => {
      settle(() => {
        done(undefined);
      });
    });
    socket.write(Buffer.from(text, "latin1"));
  });
}

function parse(text: string): RawAnswer | undefined {
  const end = text.indexOf("\r\n\r\n");
  if (end < 0) return undefined;
  const [statusLine = "", ...lines] = text.slice(0, end).split("\r\n");
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(":");
    headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
  }
  const length = Number(headers["content-length"] ?? "0");
  const body = text.slice(end + 4);
  if (body.length < length) return undefined;
  const status = Number(statusLine.split(" ")[1]);
  return { status, headers, body: Buffer.from(body.slice(0, length), "latin1") };
}
