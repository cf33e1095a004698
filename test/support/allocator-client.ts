// What an external allocator says to Weir: the three calls of the capacity-credit API, and the inference
// request that redeems a credit. Nothing is decided here. A call that gets no answer at all (nobody
// listens, the connection breaks) has the status 0.

/** What a credit is asked for. The tenant is named without its prefix. */
export interface CreditAsk {
  readonly generation: string;
  readonly policyEpoch: number;
  readonly partition: string;
  readonly model: string;
  readonly tenant: string;
  readonly requestId: string;
  readonly estimateTokens: number;
}

export interface ClientOptions {
  /** Weir's admin port, `http://host:port`. */
  readonly admin: string;
  /** Where clients reach Envoy, `http://host:port`. */
  readonly gateway: string;
  readonly serviceKey: string;
  /** `trust.tenant_header_name`. */
  readonly tenantHeader?: string;
}

export interface ClientAnswer {
  /** 0 = there was no answer. */
  readonly status: number;
  /** Code of a refusal, of the API or of the gateway; empty when there is none. */
  readonly code: string;
  /** Undefined when the answer names no time. */
  readonly retryAfterMs: number | undefined;
  readonly body: Readonly<Record<string, unknown>>;
}

const API = "/internal/capacity-credits";
const CHAT = "/v1/chat/completions";
const CALL_LIMIT_MS = 10_000;
const ANSWER_LIMIT_MS = 600_000;

export class AllocatorClient {
  readonly #options: ClientOptions;
  readonly #tenantHeader: string;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.#tenantHeader = options.tenantHeader ?? "x-weir-tenant-id";
  }

  /** Takes a slot, or gets the same credit again. */
  issue(ask: CreditAsk): Promise<ClientAnswer> {
    return this.#call("POST", "", ask, apiFields(ask));
  }

  /** Gives a credit its whole life for one dispatch, just before the request is sent. */
  arm(credit: string, ask: CreditAsk, dispatchId: string): Promise<ClientAnswer> {
    return this.#call("POST", `/${credit}/arm`, ask, {
      ...apiFields(ask),
      dispatch_id: dispatchId,
    });
  }

  /** Gives the slot back, if the credit still has it. */
  cancel(credit: string): Promise<ClientAnswer> {
    return this.#call("DELETE", `/${credit}`);
  }

  /** Sends the chat request that redeems the credit. */
  infer(credit: string, ask: CreditAsk, body: string): Promise<ClientAnswer> {
    return exchange(`${this.#options.gateway}${CHAT}`, ANSWER_LIMIT_MS, {
      method: "POST",
      body,
      headers: {
        "content-type": "application/json",
        [this.#tenantHeader]: ask.tenant,
        "x-weir-capacity-credit": credit,
        "x-weir-capacity-credit-generation": ask.generation,
        "x-weir-capacity-credit-request-id": ask.requestId,
        "x-weir-fair-share-policy-epoch": String(ask.policyEpoch),
        "x-weir-admission-partition": ask.partition,
        "x-weir-request-model": ask.model,
        "x-weir-output-token-estimate": String(ask.estimateTokens),
      },
    });
  }

  #call(method: string, path: string, ask?: CreditAsk, fields?: object): Promise<ClientAnswer> {
    const headers: Record<string, string> = { authorization: `Bearer ${this.#options.serviceKey}` };
    if (ask !== undefined) headers[this.#tenantHeader] = ask.tenant;
    if (fields !== undefined) headers["content-type"] = "application/json";
    return exchange(`${this.#options.admin}${API}${path}`, CALL_LIMIT_MS, {
      method,
      headers,
      ...(fields === undefined ? {} : { body: JSON.stringify(fields) }),
    });
  }
}

function apiFields(ask: CreditAsk): object {
  return {
    generation: ask.generation,
    policy_epoch: ask.policyEpoch,
    partition: ask.partition,
    model: ask.model,
    request_id: ask.requestId,
    estimated_output_tokens: ask.estimateTokens,
  };
}

async function exchange(url: string, limitMs: number, init: RequestInit): Promise<ClientAnswer> {
  try {
    const response = await fetch(url, { ...init, signal: AbortSignal.timeout(limitMs) });
    const body = parse(await response.text());
    const error = body["error"] as { readonly code?: unknown } | undefined;
    const retryAfter = Number(response.headers.get("retry-after"));
    return {
      status: response.status,
      code: typeof error?.code === "string" ? error.code : "",
      retryAfterMs: retryAfter > 0 ? retryAfter * 1_000 : undefined,
      body,
    };
  } catch {
    return { status: 0, code: "", retryAfterMs: undefined, body: {} };
  }
}

function parse(text: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(text) as Readonly<Record<string, unknown>>;
  } catch {
    return {};
  }
}
