// Which port may a test use? This file hands out TCP ports of 127.0.0.1 that nobody listens on.
//
// The ports come from below 32768, where the kernel takes the local ends of outgoing connections:
// a port of port 0's kind can be taken by a client between our look and the server's start. No port
// is handed out twice in one process; a random start keeps two processes apart.
import { createServer } from "node:net";
import { randomInt } from "node:crypto";

const FIRST_PORT = 14_000;
const LAST_PORT = 31_999;
/** Offsets that `npm start` uses from WEIR_PORT_BASE on. */
const BASE_OFFSETS = [0, 1, 2, 3, 11, 12, 13] as const;
const BASE_SPAN = 14;

let next = randomInt(FIRST_PORT, LAST_PORT + 1);

/** A port on 127.0.0.1 that was free a moment ago. */
export async function freePort(): Promise<number> {
  const [port] = await freePorts(1);
  return port;
}

/** `count` (1 to 100) different free ports. */
export async function freePorts(count: number): Promise<[number, ...number[]]> {
  const ports: number[] = [];
  for (let tries = 0; ports.length < count; tries += 1) {
    if (tries > 1000) throw new Error("no free port on 127.0.0.1 after 1000 tries");
    const port = take(1);
    if (await isFree(port)) ports.push(port);
  }
  const [first, ...rest] = ports;
  if (first === undefined) throw new Error(`count must be from 1 to 100, got ${String(count)}`);
  return [first, ...rest];
}

/** A base whose whole family of ports (base to base + 3, base + 11 to base + 13) is free. */
export async function freePortBase(): Promise<number> {
  for (let tries = 0; tries < 100; tries += 1) {
    const base = take(BASE_SPAN);
    const free = await Promise.all(BASE_OFFSETS.map((offset) => isFree(base + offset)));
    if (free.every(Boolean)) return base;
  }
  throw new Error("no free family of ports on 127.0.0.1 after 100 tries");
}

/** Whether 127.0.0.1:`port` can be listened on now. */
export function isFree(port: number): Promise<boolean> {
  return new Promise((done) => {
    const server = createServer();
    server.once("error", () => {
      done(false);
    });
    server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
      server.close(() => {
        done(true);
      });
    });
  });
}

function take(span: number): number {
  if (next + span > LAST_PORT + 1) next = FIRST_PORT;
  const first = next;
  next += span;
  return first;
}
