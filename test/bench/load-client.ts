// The benchmarks' own client, in a process of its own: `load-client.ts <order as JSON>`. Counts the
// events of streamed answers and the gaps between them, or whole answers where no wrk is used. Prints
// "begin" and "end" where the measured time begins and ends, then lets the answers under way come to
// their ends, so that nobody is charged for a client that left, and prints the result.

import { readFileSync } from "node:fs";
import { Agent } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { request, type Answer } from "../support/http-client.js";
import { quantile } from "./measure.js";
import { STREAM_TOKENS, TOKEN_EVERY_MS, type Workload } from "./workloads.js";

interface Order extends Pick<Workload, "connections" | "unit"> {
  readonly port: number;
  readonly bodiesFile: string;
  readonly seconds: number;
  readonly warmUpSeconds: number;
}

const TENANTS = 8;
const LINE_FEED = 10;
const LIMIT_MS = 20_000;

/** Counts the ends of events in a stream that comes in pieces cut anywhere. */
class EventCounter {
  #lastByte = 0;

  push(bytes: Uint8Array): number {
    let events = 0;
    for (const byte of bytes) {
      if (byte !== LINE_FEED) this.#lastByte = byte;
      else if (this.#lastByte === LINE_FEED) {
        events += 1;
        this.#lastByte = 0;
      } else this.#lastByte = LINE_FEED;
    }
    return events;
  }
}

class Load {
  readonly #order: Order;
  readonly #agent: Agent;
  readonly #bodies: readonly string[];
  #sent = 0;
  #measuring = false;
  #stopped = false;
  #answers = 0;
  #errors = 0;
  readonly #times: number[] = [];
  readonly #firsts: number[] = [];

  constructor(order: Order) {
    this.#order = order;
    this.#agent = new Agent({ keepAlive: true, maxSockets: order.connections });
    this.#bodies = readFileSync(order.bodiesFile, "utf8").trimEnd().split("\n");
  }

  async run(): Promise<void> {
    const { connections, seconds, warmUpSeconds, unit } = this.#order;
    // Streams begin one after another over the time of one, as they would in life.
    const spreadMs = unit === "chunk" ? STREAM_TOKENS * TOKEN_EVERY_MS : 0;
    const loops = Array.from({ length: connections }, async (_, index) => {
      await sleep((spreadMs * index) / connections);
      while (!this.#stopped) await this.#one();
    });
    await sleep(Math.max(spreadMs, warmUpSeconds * 1_000));
    process.stdout.write("begin\n");
    this.#measuring = true;
    const startedAt = performance.now();
    await sleep(seconds * 1_000);
    this.#measuring = false;
    const measuredSeconds = (performance.now() - startedAt) / 1_000;
    process.stdout.write("end\n");
    this.#stopped = true;
    await Promise.all(loops);
    this.#agent.destroy();
    this.#print(measuredSeconds);
  }

  async #one(): Promise<void> {
    const index = this.#sent;
    this.#sent += 1;
    const sentAt = performance.now();
    let lastAt: number | undefined;
    const counter = new EventCounter();
    const onChunk = (bytes: Buffer): void => {
      const events = counter.push(bytes);
      if (events === 0) return;
      const now = performance.now();
      if (this.#measuring) {
        this.#answers += events;
        if (lastAt === undefined) this.#firsts.push(now - sentAt);
        else this.#times.push(now - lastAt);
        for (let more = 1; more < events; more += 1) this.#times.push(0);
      }
      lastAt = now;
    };
    const streamed = this.#order.unit === "chunk";
    const answer = await request({
      port: this.#order.port,
      path: "/v1/chat/completions",
      headers: [
        ["content-type", "application/json"],
        ["x-weir-tenant-id", `tenant-${String(index % TENANTS)}`],
      ],
      body: this.#bodies[index % this.#bodies.length] ?? "",
      agent: this.#agent,
      limitMs: LIMIT_MS,
      ...(streamed ? { onChunk } : {}),
    }).catch(() => undefined);
    if (!isWhole(answer, streamed)) {
      this.#errors += 1;
      // A gateway that is gone must not be asked as fast as this process can.
      await sleep(TOKEN_EVERY_MS);
    } else if (!streamed && this.#measuring) {
      this.#answers += 1;
      this.#times.push(performance.now() - sentAt);
    }
  }

  #print(seconds: number): void {
    const result = {
      answers: this.#answers,
      seconds,
      errors: this.#errors,
      p50Ms: quantile(this.#times, 0.5),
      p99Ms: quantile(this.#times, 0.99),
      ...(this.#firsts.length > 0 ? { firstP50Ms: quantile(this.#firsts, 0.5) } : {}),
    };
    process.stdout.write(`result ${JSON.stringify(result)}\n`);
  }
}

/** An answer with its usage and, of a stream, its end. */
function isWhole(answer: Answer | undefined, streamed: boolean): boolean {
  if (answer?.status !== 200 || !answer.complete) return false;
  return answer.body.includes('"usage":{') && (!streamed || answer.body.includes("data: [DONE]"));
}

await new Load(JSON.parse(process.argv[2] ?? "") as Order).run();
