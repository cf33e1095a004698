// The API by which an external allocator takes slots ahead of its requests: which operation a request
// means, whether its sender may ask for it, and what the answer is. Everything is checked before the
// registry is asked, and from there to the answer nothing is awaited. Issuing and arming end when the
// process drains; cancelling goes on, because it only gives back.

import type { IncomingMessage } from "node:http";
import type { PartitionName } from "../../core/model/ids.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { CreditBinding } from "../../core/scheduler/credit-binding.js";
import type { CreditRegistry, OnCreditOperation } from "../../core/scheduler/credit-registry.js";
import { isCreditToken } from "../../core/scheduler/credit-token.js";
import type { CreditBinder } from "./credit-binder.js";
import { creditError, creditFailure, type CreditErrorCode } from "./credit-errors.js";
import { creditRoute, type CreditRoute } from "./credit-routes.js";
import { armRequest, issueRequest, readFields, type IssueRequest } from "./credit-schemas.js";
import { parseExactObject } from "./exact-json.js";
import { jsonReply, type Reply } from "./reply.js";
import { API_BODY_MAX_BYTES, readBody } from "./request-body.js";
import type { ServiceKey } from "./service-key.js";

export interface CreditApiOptions {
  readonly registry: Pick<CreditRegistry, "issue" | "arm" | "cancel">;
  readonly binder: CreditBinder;
  readonly serviceKey: Pick<ServiceKey, "check">;
  readonly draining: () => boolean;
  /** Whole seconds after which a slot of class `default` is likely. */
  readonly retryAfterS: (partition: PartitionName) => number;
  /** Counts what the registry does not see. */
  readonly onOperation: OnCreditOperation;
  readonly onFault: (error: unknown) => void;
  readonly now: () => MonotonicMs;
}

type Read<Value> =
  { readonly ok: true; readonly value: Value } | { readonly ok: false; readonly reply: Reply };

const NO_CONTENT: Reply = { status: 204, headers: {}, text: undefined };
const DRAINING = creditError("draining", "the process is stopping", { "retry-after": "1" });
const INTERNAL = creditError("capacity_credit_internal", "the request could not be handled");
const DISABLED = creditError("capacity_credits_disabled", "capacity credits are off");
const JSON_TYPE = /^application\/json *(;|$)/i;

/** The answer while credits are off. */
export function creditsDisabled(request: IncomingMessage, path: string): Reply {
  const cancels = request.method === "DELETE" && creditRoute(path)?.kind === "credit";
  return cancels ? { status: 404, headers: {}, text: undefined } : DISABLED;
}

export class CreditApi {
  readonly #options: CreditApiOptions;

  constructor(options: CreditApiOptions) {
    this.#options = options;
  }

  /**
   * Answers one request; never rejects.
   * @param path without the query
   */
  async answer(request: IncomingMessage, path: string): Promise<Reply> {
    try {
      return await this.#answer(request, path);
    } catch (error) {
      this.#options.onFault(error);
      return INTERNAL;
    }
  }

  async #answer(request: IncomingMessage, path: string): Promise<Reply> {
    const route = creditRoute(path);
    if (route === undefined) return creditError("not_found", "the API has no such path");
    if (request.method !== route.method) {
      const message = `only ${route.method} is allowed`;
      return creditError("method_not_allowed", message, { allow: route.method });
    }
    const verdict = await this.#options.serviceKey.check(
      request.headersDistinct["authorization"] ?? [],
    );
    if (verdict === "unreadable") return INTERNAL;
    if (verdict === "refused") {
      const headers = { "www-authenticate": 'Bearer realm="capacity credits"' };
      return creditError("unauthorized", "the service key is missing or wrong", headers);
    }
    switch (route.kind) {
      case "capabilities":
        return jsonReply(200, { arm: "v1" });
      case "issue":
        return this.#issue(request);
      case "arm":
        return this.#arm(request, route.token);
      case "credit":
        return this.#cancel(route);
    }
  }

  async #issue(request: IncomingMessage): Promise<Reply> {
    const { registry, now } = this.#options;
    const body = await readObject(request);
    if (!body.ok) return body.reply;
    if (this.#options.draining()) return DRAINING;
    const read = readFields(issueRequest, body.value);
    if (!read.ok) {
      this.#options.onOperation(undefined, "invalid_binding");
      return creditError("invalid_capacity_credit", read.problem);
    }
    const bound = this.#bind(request, read.fields, "invalid_binding");
    if (!bound.ok) return bound.reply;
    const { partition, generation } = bound.value;
    const result = registry.issue(bound.value, now());
    if (!result.ok) return creditFailure(result.failure, this.#options.retryAfterS(partition));
    return jsonReply(200, {
      credit: result.token,
      generation,
      expires_in_ms: result.expiresInMs,
      newly_issued: result.newlyIssued,
    });
  }

  async #arm(request: IncomingMessage, token: string): Promise<Reply> {
    const { registry, now } = this.#options;
    const body = await readObject(request);
    if (!body.ok) return body.reply;
    if (this.#options.draining()) return DRAINING;
    const read = readFields(armRequest, body.value);
    const problem = read.ok ? tokenProblem(token) : read.problem;
    if (!read.ok || problem !== undefined) {
      this.#options.onOperation(undefined, "arm_rejected");
      return creditError("invalid_capacity_credit", problem ?? "");
    }
    const bound = this.#bind(request, read.fields, "arm_rejected");
    if (!bound.ok) return bound.reply;
    const { dispatch_id } = read.fields;
    const result = registry.arm(token, bound.value, dispatch_id, now());
    if (!result.ok) return creditFailure(result.failure, undefined);
    return jsonReply(200, {
      generation: bound.value.generation,
      dispatch_id,
      expires_in_ms: result.expiresInMs,
      newly_armed: result.newlyArmed,
    });
  }

  #cancel({ token }: Extract<CreditRoute, { readonly kind: "credit" }>): Reply {
    const problem = tokenProblem(token);
    if (problem !== undefined) return creditError("invalid_capacity_credit", problem);
    this.#options.registry.cancel(token, this.#options.now());
    return NO_CONTENT;
  }

  #bind(
    request: IncomingMessage,
    fields: IssueRequest,
    outcome: "invalid_binding" | "arm_rejected",
  ): Read<CreditBinding> {
    const bound = this.#options.binder.bind(request, fields);
    if (bound.ok) return { ok: true, value: bound.binding };
    this.#options.onOperation(bound.partition, outcome);
    return refuse(bound.code, bound.message);
  }
}

async function readObject(request: IncomingMessage): Promise<Read<object>> {
  const { headers } = request;
  const coding = headers["content-encoding"] ?? "identity";
  if (!JSON_TYPE.test(headers["content-type"] ?? "") || coding !== "identity") {
    return refuse("unsupported_media_type", "the body must be application/json, not compressed");
  }
  const body = await readBody(request);
  if (body.kind === "gone") return refuse("invalid_request", "the body has no end");
  if (body.kind === "too_large") {
    const message = `the body has more than ${String(API_BODY_MAX_BYTES)} bytes`;
    return refuse("body_too_large", message, { connection: "close" });
  }
  const parsed = parseExactObject(body.bytes, "policy_epoch");
  return parsed.ok ? parsed : refuse("invalid_request", parsed.problem);
}

function tokenProblem(token: string): string | undefined {
  return isCreditToken(token) ? undefined : "the credit is not 43 characters of base64url";
}

function refuse(
  code: CreditErrorCode,
  message: string,
  headers?: Readonly<Record<string, string>>,
): { readonly ok: false; readonly reply: Reply } {
  return { ok: false, reply: creditError(code, message, headers) };
}
