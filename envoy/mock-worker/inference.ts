// How does one inference request pass through the worker? Body, faults, dialect, model, engine,
// answer, in this order; every way out is one answer or one cut connection, and a client that goes
// away at any point frees its slot at once. No state stays here after a request.
import type { IncomingMessage, ServerResponse } from "node:http";
import { AnswerWriter } from "./answer-writer.js";
import { usageFilter } from "./dialects/dialect.js";
import type { AnswerShape, Dialect, Reading } from "./dialects/dialect.js";
import type { Grant, JobHandle, JobSpec } from "./engine.js";
import { faultsFor, readFaultHeader, type Faults } from "./faults.js";
import { MAX_BODY_BYTES, readBody, sendJson } from "./http.js";
import { parseObject } from "./json.js";
import type { SeenRequest } from "./request-log.js";
import { NATURAL_TOKENS, tokenTexts } from "./token-text.js";
import type { Worker } from "./worker.js";

export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly seen: SeenRequest;
}

export async function serveInference(
  worker: Worker,
  dialect: Dialect,
  exchange: Exchange,
): Promise<void> {
  const { request, response, seen } = exchange;
  const fail = (status: number, message: string, param: string | null = null): void => {
    sendJson(response, status, dialect.error(status, message, param));
  };
  const header = request.headersDistinct["x-mock"]?.join(",");
  const own = readFaultHeader(header);
  const body = await readBody(request, (bytes) => {
    seen.body_bytes += bytes;
  });
  if (body.kind === "gone" || response.destroyed) return;
  if (body.kind === "too_large") {
    fail(413, `The body is larger than ${String(MAX_BODY_BYTES)} bytes.`);
    return;
  }
  if (own.kind === "error") {
    fail(400, own.message);
    return;
  }
  const faults = faultsFor(worker.faults, own.faults);
  const writer = new AnswerWriter(response, faults);
  if (faults.status !== undefined || faults.reset === "before") {
    await failOnPurpose(worker, { dialect, response, writer, faults });
    return;
  }
  const json = parseObject(body.text);
  if (json === undefined) {
    fail(400, "The body is not a JSON object.");
    return;
  }
  const reading = dialect.read(json);
  if (reading.kind === "refusal") {
    fail(400, reading.message, reading.param);
    return;
  }
  const { models } = worker.options;
  if (reading.model !== undefined && !models.includes(reading.model)) {
    fail(404, `The model \`${reading.model}\` does not exist.`, "model");
    return;
  }
  runInEngine(worker, { reading, faults, writer, response });
}

/** An answer, or a cut connection, that the engine never hears of. */
async function failOnPurpose(
  worker: Worker,
  parts: {
    readonly dialect: Dialect;
    readonly response: ServerResponse;
    readonly writer: AnswerWriter;
    readonly faults: Faults;
  },
): Promise<void> {
  const { dialect, response, writer, faults } = parts;
  await silence(worker, response, faults.delay_ms ?? 0);
  if (response.destroyed) {
    worker.engine.counters.cancelled += 1;
    return;
  }
  worker.engine.counters.faulted += 1;
  if (faults.reset === "before") {
    writer.resetNow();
    return;
  }
  const status = faults.status ?? 500;
  await writer.json(status, dialect.error(status, "Injected fault.", null));
}

/** Waits on the worker's clock, or until the client has gone. */
function silence(worker: Worker, response: ServerResponse, delayMs: number): Promise<void> {
  if (delayMs === 0) return Promise.resolve();
  return new Promise((resolve) => {
    const cancel = worker.clock.after(delayMs, resolve);
    response.once("close", () => {
      cancel();
      resolve();
    });
  });
}

interface EngineRun {
  readonly reading: Reading;
  readonly faults: Faults;
  readonly writer: AnswerWriter;
  readonly response: ServerResponse;
}

function runInEngine(worker: Worker, run: EngineRun): void {
  const { reading, faults, writer, response } = run;
  const spec = jobOf(reading, faults);
  const endsEarly =
    faults.reset === "after" || faults.error_event === true || faults.truncate === true;
  // A stream of no tokens breaks at its end.
  const breakAt = reading.stream && endsEarly ? spec.outputTokens >> 1 : undefined;
  let shape: AnswerShape | undefined;
  let isOpen = false;
  const open = (): void => {
    if (isOpen || shape === undefined) return;
    isOpen = true;
    writer.openStream();
    writer.events(shape.opening());
  };
  const handle: JobHandle = worker.engine.submit(spec, {
    admitted: (grant) => {
      shape = shapeOf(worker, run, grant);
      if (reading.stream && faults.headers === "early") writer.openStream();
    },
    token: (index) => {
      open();
      if (index === breakAt) {
        handle.stop("faulted");
        void breakStream(run, shape);
        return;
      }
      writer.events(shape?.token(index) ?? []);
    },
    ended: (finish, tokensPerChoice) => {
      const outcome = { finish, tokensPerChoice };
      // A request that never got a slot has no grant: it was aborted while it waited.
      shape ??= shapeOf(worker, run, { promptTokens: [], cachedTokens: [] });
      if (!reading.stream) {
        void writer.json(200, shape.json(outcome));
        return;
      }
      open();
      if (breakAt !== undefined) void breakStream(run, shape);
      else void writer.endStream(shape.closing(outcome));
    },
  });
  response.once("close", () => {
    handle.stop("cancelled");
  });
}

async function breakStream(run: EngineRun, shape: AnswerShape | undefined): Promise<void> {
  if (run.faults.reset === "after") run.writer.cutStream();
  else if (run.faults.error_event === true) {
    await run.writer.endStream(shape?.failure("Injected fault.") ?? []);
  } else await run.writer.endStream([]);
}

function jobOf(reading: Reading, faults: Faults): JobSpec {
  const limit = reading.maxTokens;
  const endsAt = reading.ignoreEnd ? Infinity : NATURAL_TOKENS;
  const limited = Math.min(endsAt, limit ?? NATURAL_TOKENS);
  // A request that wants no tokens at all, such as embeddings, gets none.
  const outputTokens = limit === 0 ? 0 : (faults.tokens ?? limited);
  const isCut = faults.tokens === undefined && limit !== undefined && limit < endsAt;
  return {
    requestName: reading.requestName,
    prompts: reading.prompts,
    choicesPerPrompt: reading.choicesPerPrompt,
    outputTokens,
    finish: isCut ? "length" : "stop",
    extraDelayMs: faults.delay_ms ?? 0,
    hang: faults.hang === true,
    tellTokens: reading.stream,
  };
}

function shapeOf(worker: Worker, run: EngineRun, grant: Grant): AnswerShape {
  worker.requestNumber += 1;
  const number = String(worker.requestNumber).padStart(8, "0");
  const { reading, faults } = run;
  return reading.shape({
    id: `${number}${String(worker.options.port).padStart(8, "0")}`,
    createdSeconds: Math.floor(worker.clock.epochMs() / 1000),
    model: reading.model ?? worker.options.models[0] ?? "",
    grant,
    tokenText: tokenTexts(reading.prompts, faults.text),
    usage: usageFilter(faults.usage),
  });
}
