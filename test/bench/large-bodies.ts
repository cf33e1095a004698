// The other side of the stall benchmark, in processes of their own so that they do not hold up whoever
// reads the streams. `large-bodies.ts sink` is a worker that takes any body unread and answers at once;
// `large-bodies.ts send <port> <bytes>` sends one large body after the other, of each kind in turn, and
// prints what came of it, until it is stopped.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { request } from "../support/http-client.js";
import { JSON_HEADERS } from "../support/stack.js";
import { LARGE_BODIES } from "./body-kinds.js";

const ANSWER = JSON.stringify({
  choices: [{ index: 0, message: { role: "assistant", content: "a" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
});

function serve(): void {
  const sink = createServer((incoming, response) => {
    incoming.resume().on("end", () => {
      response.writeHead(200, { "content-type": "application/json" }).end(ANSWER);
    });
  });
  sink.listen(0, "127.0.0.1", () => {
    const { port } = sink.address() as AddressInfo;
    process.stdout.write(`http://127.0.0.1:${String(port)}\n`);
  });
}

async function send(port: number, bytes: number): Promise<never> {
  const bodies = Object.entries(LARGE_BODIES).map(([kind, make]) => [kind, make(bytes)] as const);
  process.stdout.write("sending\n");
  for (;;) {
    for (const [kind, body] of bodies) {
      const path = "/v1/chat/completions";
      const { status } = await request({ port, path, headers: JSON_HEADERS, body });
      process.stdout.write(`${kind}: ${String(status)}\n`);
    }
  }
}

const [role, port, bytes] = process.argv.slice(2);
if (role === "sink") serve();
else await send(Number(port), Number(bytes));
