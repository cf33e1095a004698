// Which path answers what? The table of inference paths with their dialects, and the small paths of
// an engine: models, version, health, telemetry, administration. SGLang's load paths exist only on a
// worker that plays SGLang, as on real engines; every generating path exists on both.
import type { IncomingMessage, ServerResponse } from "node:http";
import { chat } from "./dialects/chat.js";
import { completions } from "./dialects/completions.js";
import type { Dialect } from "./dialects/dialect.js";
import { embeddings } from "./dialects/embeddings.js";
import { generate } from "./dialects/generate.js";
import { messages } from "./dialects/messages.js";
import { openaiError } from "./dialects/openai-common.js";
import { rerank, score } from "./dialects/ranking.js";
import { responses } from "./dialects/responses.js";
import { readBody, sendJson, sendText } from "./http.js";
import { asText, parseObject, type JsonObject } from "./json.js";
import { ENGINE_VERSIONS, getLoad, loads, sglangMetrics, vllmMetrics } from "./telemetry.js";
import { telemetryOf, type Worker } from "./worker.js";

const DIALECTS: ReadonlyMap<string, Dialect> = new Map([
  ["/v1/chat/completions", chat],
  ["/v1/completions", completions],
  ["/v1/responses", responses],
  ["/v1/messages", messages],
  ["/v1/embeddings", embeddings],
  ["/v1/rerank", rerank],
  ["/rerank", rerank],
  ["/v1/score", score],
  ["/score", score],
  ["/generate", generate],
]);

/** The dialect of an inference path; undefined for every other path. */
export function dialectOf(path: string): Dialect | undefined {
  return DIALECTS.get(path);
}

/** Paths that are polled all the time; they stay out of the log of requests. */
export function isProbe(path: string): boolean {
  return ["/health", "/metrics", "/v1/loads", "/get_load"].includes(path);
}

export interface PlainRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly path: string;
  readonly query: URLSearchParams;
}

/** Answers a telemetry or health path; false when `path` is none that this worker has. */
export function serveProbe(worker: Worker, plain: PlainRequest): boolean {
  const { response, path, query } = plain;
  const { faults } = worker;
  const isSglang = worker.options.engine === "sglang";
  if (path === "/metrics" || (isSglang && path !== "/health")) {
    if (faults.telemetry_hang === true) return true;
    if (!mayAsk(faults.telemetry_key, plain)) {
      sendJson(response, 401, { error: "Unauthorized" });
      return true;
    }
  }
  const refused = (status: number | undefined): boolean => {
    if (status === undefined || status === 200) return false;
    sendJson(response, status, { detail: "Injected fault." });
    return true;
  };
  switch (path) {
    case "/health":
      if (!refused(faults.health_status)) sendText(response, 200, "");
      return true;
    case "/metrics": {
      if (refused(faults.metrics_status)) return true;
      const reading = telemetryOf(worker);
      const text = isSglang ? sglangMetrics(reading) : vllmMetrics(reading);
      sendText(response, 200, faults.metrics_body ?? text, "text/plain; version=0.0.4");
      return true;
    }
    case "/v1/loads": {
      if (!isSglang) return false;
      if (refused(faults.loads_status)) return true;
      const answer = loads(telemetryOf(worker), query, faults.loads_form ?? "current");
      if (answer.kind === "text") sendText(response, 200, answer.body);
      else sendJson(response, answer.status, answer.body);
      return true;
    }
    case "/get_load":
      if (!isSglang) return false;
      if (!refused(faults.get_load_status)) sendJson(response, 200, getLoad(telemetryOf(worker)));
      return true;
    default:
      return false;
  }
}

function mayAsk(key: string | undefined, { request }: PlainRequest): boolean {
  return key === undefined || request.headers.authorization === `Bearer ${key}`;
}

/** Answers models, version and administration paths; false when `path` is none of them. */
export async function servePlain(worker: Worker, plain: PlainRequest): Promise<boolean> {
  const { request, response, path } = plain;
  const { models, engine } = worker.options;
  const reads = request.method === "GET" || request.method === "HEAD";
  if (path === "/v1/models" && reads) {
    const data = models.map((id) => modelEntry(worker, id));
    sendJson(response, 200, { object: "list", data });
    return true;
  }
  if (path.startsWith("/v1/models/") && reads) {
    const id = decoded(path.slice("/v1/models/".length));
    if (models.includes(id)) sendJson(response, 200, modelEntry(worker, id));
    else {
      sendJson(response, 404, openaiError(404, `The model \`${id}\` does not exist.`, "model"));
    }
    return true;
  }
  if (path === "/version" && reads) {
    sendJson(response, 200, { version: ENGINE_VERSIONS[engine] });
    return true;
  }
  if (path === "/flush_cache" || path === "/reset_prefix_cache") {
    worker.cache.flush();
    sendText(response, 200, "Cache flushed.\n");
    return true;
  }
  if (path === "/abort_request" && request.method === "POST") {
    await abortRequest(worker, plain);
    return true;
  }
  return false;
}

async function abortRequest(worker: Worker, plain: PlainRequest): Promise<void> {
  const body = await readBody(plain.request);
  const fields: JsonObject = body.kind === "body" ? (parseObject(body.text) ?? {}) : {};
  const requestName = asText(fields["rid"]);
  if (fields["abort_all"] === true) worker.engine.abort({ all: true });
  else if (requestName !== undefined) worker.engine.abort({ requestName });
  sendText(plain.response, 200, "");
}

function modelEntry(worker: Worker, id: string): JsonObject {
  return {
    id,
    object: "model",
    created: Math.floor(worker.clock.epochMs() / 1000),
    owned_by: worker.options.engine,
    root: id,
    parent: null,
    max_model_len: (worker.options.kvBlocks * worker.options.blockChars) / 4,
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
