// One GET to a worker, as health checks and telemetry polls need it: it never throws, does not follow
// redirects (an engine that redirects does not serve, and a key must not travel to where it points),
// ends with its deadline or with the caller's signal, and leaves neither timer nor listener behind.
// A body is read only as far as the caller wants it, up to its limit of bytes.

import type { TelemetryFailure } from "../../core/workers/telemetry.js";

export interface GetOptions {
  /** Ends the request early: a deadline, or the end of everything. */
  readonly signal: AbortSignal;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Why there is no answer. */
export interface GetFailure {
  readonly kind: "failed";
  readonly reason: Extract<
    TelemetryFailure,
    | "timeout"
    | "connect"
    | "status_401"
    | "status_404"
    | "status_other"
    | "not_text"
    | "too_large"
    | "malformed"
  >;
  readonly detail: string;
}

export interface TextAnswer {
  readonly kind: "text";
  readonly text: string;
}

/** A signal that fires at a deadline or with another signal; `end` takes both away. */
export interface Deadline {
  readonly signal: AbortSignal;
  readonly end: () => void;
}

/** The reason with which a deadline aborts, to tell it from a caller that stops. */
class DeadlinePassed extends Error {
  override readonly name = "DeadlinePassed";
}

export function deadlineAfter(timeoutMs: number, stop: AbortSignal): Deadline {
  const controller = new AbortController();
  const onStop = (): void => {
    controller.abort(stop.reason);
  };
  const timer = setTimeout(() => {
    controller.abort(new DeadlinePassed(`no answer within ${String(timeoutMs)} ms`));
  }, timeoutMs);
  if (stop.aborted) onStop();
  else stop.addEventListener("abort", onStop, { once: true });
  return {
    signal: controller.signal,
    end: () => {
      clearTimeout(timer);
      stop.removeEventListener("abort", onStop);
    },
  };
}

/** The status of an answer, its body unread; undefined when there is no answer. */
export async function getStatus(url: URL, options: GetOptions): Promise<number | undefined> {
  try {
    const response = await get(url, options);
    await response.body?.cancel();
    return response.status;
  } catch {
    // Refused, reset, timed out: all of them are no answer.
    return undefined;
  }
}

/**
 * The text of a 2xx answer.
 *
 * @param maxBytes most bytes of the body, after decompression; one more is `too_large`
 */
export async function getText(
  url: URL,
  options: GetOptions,
  maxBytes: number,
): Promise<TextAnswer | GetFailure> {
  try {
    const response = await get(url, options);
    const type = response.headers.get("content-type") ?? "";
    const refused = refusal(url, response, type);
    if (refused !== undefined) {
      await response.body?.cancel();
      return refused;
    }
    const bytes = await readBody(response, maxBytes);
    if (bytes === undefined) {
      return failed("too_large", `${url.pathname}: more than ${String(maxBytes)} bytes`);
    }
    const text = decode(bytes);
    if (text === undefined) return failed("malformed", `${url.pathname}: not UTF-8`);
    // Front ends and login pages answer 200 under any type.
    if (/^\s*</.test(text)) return failed("not_text", `${url.pathname}: HTML`);
    return { kind: "text", text };
  } catch (error) {
    if (options.signal.reason instanceof DeadlinePassed) {
      return failed("timeout", `${url.pathname}: ${options.signal.reason.message}`);
    }
    return failed("connect", `${url.pathname}: ${causeOf(error)}`);
  }
}

function get(url: URL, { signal, headers }: GetOptions): Promise<Response> {
  return fetch(url, { signal, redirect: "manual", ...(headers === undefined ? {} : { headers }) });
}

function refusal(url: URL, { ok, status }: Response, type: string): GetFailure | undefined {
  const detail = `${url.pathname}: status ${String(status)}`;
  if (status === 401) return failed("status_401", detail);
  if (status === 404) return failed("status_404", detail);
  if (!ok) return failed("status_other", detail);
  if (/^text\/html\b/i.test(type)) return failed("not_text", `${url.pathname}: HTML`);
  return undefined;
}

async function readBody(response: Response, maxBytes: number): Promise<Uint8Array | undefined> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  const body: AsyncIterable<Uint8Array> | null = response.body;
  // Leaving the loop early cancels the body, which closes the connection.
  for await (const part of body ?? []) {
    bytes += part.byteLength;
    if (bytes > maxBytes) return undefined;
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function decode(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function failed(reason: GetFailure["reason"], detail: string): GetFailure {
  return { kind: "failed", reason, detail };
}

/** The code of a socket error; fetch wraps it. */
function causeOf(error: unknown): string {
  const { cause, message } = error as { cause?: { code?: unknown; message?: unknown } } & Error;
  const code = cause?.code ?? cause?.message ?? message;
  return typeof code === "string" ? code : "no connection";
}
