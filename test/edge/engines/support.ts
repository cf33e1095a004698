// Fixtures of engine answers, a small engine on a loopback port whose answers a test sets, and a
// shorthand from a parser's result to the sample it gives.
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { RankSample, WorkerSample } from "../../../extproc/core/workers/telemetry.js";
import { readSample, type ReadingResult } from "../../../extproc/core/workers/telemetry-reading.js";
import type { Parsed } from "../../../extproc/edge/engines/parsed.js";

export function fixture(name: string): string {
  return readFileSync(new URL(`../../fixtures/engines/${name}`, import.meta.url), "utf8");
}

export function jsonFixture(name: string): unknown {
  return JSON.parse(fixture(name)) as unknown;
}

/** What a parser's result is worth, as the poller would read it. */
export function resultOf(parsed: Parsed): ReadingResult | Exclude<Parsed, { kind: "reading" }> {
  if (parsed.kind !== "reading") return parsed;
  return readSample({ ...parsed.reading, token: { kind: "scrape", sequence: 1 } });
}

export function sampleOf(parsed: Parsed): WorkerSample {
  const result = resultOf(parsed);
  if (result.kind !== "sample") throw new Error(`no sample: ${result.reason}: ${result.detail}`);
  return result.sample;
}

/** A rank of which nothing is known but what is given. */
export function rankOf(
  known: Partial<RankSample> & Pick<RankSample, "running" | "waiting" | "tokenUsage">,
): RankSample {
  return {
    rank: 0,
    waitingUncachedTokens: undefined,
    usedTokens: undefined,
    maxTokens: undefined,
    utilization: undefined,
    cacheHitRate: undefined,
    tokensPerSecond: undefined,
    maxRunning: undefined,
    ...known,
  };
}

/** The reason for which a parser's answer gives no sample. */
export function reasonOf(parsed: Parsed): string {
  const result = resultOf(parsed);
  return result.kind === "sample" ? "a sample" : result.reason;
}

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;
/** An answer: a status, a text served as 200, or whatever the test does with the request. */
export type Route = number | string | Handler;

export interface LoopbackEngine {
  readonly url: string;
  /** Paths without query; every other one answers 404. */
  readonly routes: Map<string, Route>;
  readonly requests: IncomingMessage[];
  readonly close: () => Promise<void>;
}

export async function startEngine(
  routes: Readonly<Record<string, Route>>,
): Promise<LoopbackEngine> {
  const table = new Map(Object.entries(routes));
  const requests: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    requests.push(request);
    const route = table.get((request.url ?? "").split("?")[0] ?? "") ?? 404;
    if (typeof route === "function") route(request, response);
    else if (typeof route === "number") response.writeHead(route).end("no");
    else response.writeHead(200, { "content-type": "text/plain" }).end(route);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`,
    routes: table,
    requests,
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          resolve();
        });
        server.closeAllConnections();
      }),
  };
}
