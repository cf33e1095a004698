// How does a test steer a worker that runs in another process? The /mock paths: faults for all
// following requests, the state report, zeroed counters, and the manual clock. These paths obey no
// fault and are no part of any engine.
import { readFaults } from "./faults.js";
import { ManualClock } from "./clock.js";
import { readBody, sendJson } from "./http.js";
import { parseObject, type JsonObject } from "./json.js";
import type { PlainRequest } from "./routes.js";
import { setFaults, stateOf, type Worker } from "./worker.js";

export const NO_KV_EVENTS = "this worker publishes no KV events";

/** Answers a /mock path; false when `path` is none of them. */
export async function serveControl(worker: Worker, plain: PlainRequest): Promise<boolean> {
  const { request, response, path } = plain;
  switch (`${request.method ?? ""} ${path}`) {
    case "GET /mock/state":
      sendJson(response, 200, stateOf(worker));
      return true;
    case "GET /mock/faults":
      sendJson(response, 200, worker.faults);
      return true;
    case "POST /mock/faults":
      await takeFaults(worker, plain);
      return true;
    case "DELETE /mock/faults":
      setFaults(worker, {});
      sendJson(response, 200, worker.faults);
      return true;
    case "POST /mock/reset":
      zeroCounters(worker);
      sendJson(response, 200, stateOf(worker));
      return true;
    case "POST /mock/advance":
      await advance(worker, plain);
      return true;
    default:
      return false;
  }
}

/** Zeroes every counter, the metrics' ones too, and empties the log of requests. */
export function zeroCounters(worker: Worker): void {
  worker.engine.zeroCounters();
  worker.log.clear();
}

async function takeFaults(worker: Worker, { request, response }: PlainRequest): Promise<void> {
  const result = readFaults(await objectOf(request));
  if (result.kind === "error") {
    sendJson(response, 400, { error: { message: result.message } });
    return;
  }
  if (setFaults(worker, result.faults)) sendJson(response, 200, worker.faults);
  else sendJson(response, 409, { error: { message: NO_KV_EVENTS } });
}

async function advance(worker: Worker, { request, response }: PlainRequest): Promise<void> {
  const ms = (await objectOf(request))?.["ms"];
  if (typeof ms !== "number" || !(ms >= 0)) {
    const message = `ms is ${JSON.stringify(ms)}; allowed: a number of at least 0`;
    sendJson(response, 400, { error: { message } });
    return;
  }
  if (!(worker.clock instanceof ManualClock)) {
    sendJson(response, 409, { error: { message: "this worker runs on the real clock" } });
    return;
  }
  worker.clock.advance(ms);
  sendJson(response, 200, { now_ms: worker.clock.now() });
}

async function objectOf(request: PlainRequest["request"]): Promise<JsonObject | undefined> {
  const body = await readBody(request);
  return body.kind === "body" ? parseObject(body.text) : undefined;
}
