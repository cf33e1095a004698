// Workers that cost next to nothing, several in one process: `fast-worker.ts <ports>`. Requests are
// read from the socket without an HTTP parser and get an answer that was written down before, so
// that what stands in front of the workers is measured and not they. A chat request is answered as a
// whole, at once or after as many milliseconds as `POST /answer-after/<ms>` last said to any of them,
// or, when its body asks for it, as a stream of 64 tokens, one every 20 ms, which ends with the usage.
// For those that ask, they are healthy vLLM engines with room.

import { createServer, type Socket } from "node:net";
import { STREAM_TOKENS, TOKEN_EVERY_MS } from "./workloads.js";

/** The beginning of a body, which says how to answer; the rest is only counted. */
const SEARCHED_BYTES = 256;
const HEAD_END = "\r\n\r\n";
const USAGE = {
  prompt_tokens: 256,
  completion_tokens: STREAM_TOKENS,
  total_tokens: 256 + STREAM_TOKENS,
  prompt_tokens_details: { cached_tokens: 192 },
};
const FRAME = { id: "chatcmpl-1", created: 1_700_000_000, model: "demo" };

function answer(status: string, type: string, body: string): Buffer {
  const length = String(Buffer.byteLength(body));
  return Buffer.from(
    `HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\ncontent-length: ${length}${HEAD_END}${body}`,
  );
}

const json = (value: unknown): Buffer =>
  answer("200 OK", "application/json", JSON.stringify(value));

const COMPLETION = json({
  ...FRAME,
  object: "chat.completion",
  choices: [
    {
      index: 0,
      message: { role: "assistant", content: "word ".repeat(STREAM_TOKENS) },
      finish_reason: "stop",
    },
  ],
  usage: USAGE,
});
const MODELS = json({ object: "list", data: [{ id: "demo", object: "model", owned_by: "bench" }] });
const HEALTHY = answer("200 OK", "text/plain", "");
const NOT_FOUND = answer("404 Not Found", "text/plain", "");

function httpChunk(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
}

function event(choices: readonly unknown[], usage?: object): string {
  const value = { ...FRAME, object: "chat.completion.chunk", choices, usage };
  return `data: ${JSON.stringify(value)}\n\n`;
}

const delta = (value: object, finish_reason: string | null = null): string =>
  event([{ index: 0, delta: value, finish_reason }]);

const STREAM_HEAD =
  "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const FIRST = Buffer.from(STREAM_HEAD + httpChunk(delta({ role: "assistant", content: "" })));
const TOKEN = Buffer.from(httpChunk(delta({ content: "word " })));
const LAST = Buffer.from(
  `${httpChunk(delta({}, "stop"))}${httpChunk(event([], USAGE))}${httpChunk("data: [DONE]\n\n")}0\r\n\r\n`,
);

let answerAfterMs = 0;

class Worker {
  #running = 0;
  #generated = 0;

  listen(port: number): void {
    createServer({ noDelay: true }, (socket) => {
      this.#serve(socket);
    }).listen(port, "127.0.0.1");
  }

  #serve(socket: Socket): void {
    let held = Buffer.alloc(0);
    let skipped = 0;
    let head = "";
    let body = "";
    socket.on("error", () => undefined);
    socket.on("data", (bytes) => {
      if (skipped > 0) {
        skipped -= bytes.length;
        if (skipped === 0) this.#answer(socket, head, body);
        return;
      }
      held = held.length === 0 ? bytes : Buffer.concat([held, bytes]);
      const end = held.indexOf(HEAD_END);
      if (end < 0) return;
      head = held.toString("latin1", 0, end);
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? "0");
      const start = end + HEAD_END.length;
      if (held.length - start < Math.min(length, SEARCHED_BYTES)) return;
      body = held.toString("latin1", start, start + SEARCHED_BYTES);
      skipped = start + length - held.length;
      held = Buffer.alloc(0);
      if (skipped === 0) this.#answer(socket, head, body);
    });
  }

  #answer(socket: Socket, head: string, body: string): void {
    if (head.startsWith("POST /v1/chat/completions ")) {
      if (/"stream": ?true/.test(body)) this.#stream(socket);
      else this.#complete(socket);
    } else if (head.startsWith("POST /answer-after/")) {
      answerAfterMs = Number.parseInt(head.slice("POST /answer-after/".length), 10);
      socket.write(HEALTHY);
    } else if (head.startsWith("GET /health ")) socket.write(HEALTHY);
    else if (head.startsWith("GET /metrics ")) socket.write(this.#metrics());
    else if (head.startsWith("GET /v1/models ")) socket.write(MODELS);
    else socket.write(NOT_FOUND);
  }

  #complete(socket: Socket): void {
    this.#running += 1;
    const answer = (): void => {
      this.#running -= 1;
      this.#generated += STREAM_TOKENS;
      socket.write(COMPLETION);
    };
    if (answerAfterMs === 0) answer();
    else setTimeout(answer, answerAfterMs);
  }

  #stream(socket: Socket): void {
    this.#running += 1;
    socket.write(FIRST);
    const startedAt = performance.now();
    let sent = 0;
    const next = (): void => {
      if (socket.destroyed || sent === STREAM_TOKENS) {
        this.#running -= 1;
        if (!socket.destroyed) socket.write(LAST);
        return;
      }
      sent += 1;
      this.#generated += 1;
      socket.write(TOKEN);
      const dueInMs = startedAt + (sent + 1) * TOKEN_EVERY_MS - performance.now();
      setTimeout(next, Math.max(1, dueInMs));
    };
    setTimeout(next, TOKEN_EVERY_MS);
  }

  #metrics(): Buffer {
    return answer(
      "200 OK",
      "text/plain; version=0.0.4",
      `vllm:num_requests_running{model_name="demo"} ${String(this.#running)}\n` +
        `vllm:num_requests_waiting{model_name="demo"} 0\n` +
        `vllm:kv_cache_usage_perc{model_name="demo"} 0.1\n` +
        `vllm:generation_tokens_total{model_name="demo"} ${String(this.#generated)}\n`,
    );
  }
}

for (const port of process.argv.slice(2)) new Worker().listen(Number(port));
process.stdout.write("serving\n");
