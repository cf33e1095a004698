// The capacity-credit API over a real socket, in front of a whole core on virtual time: what an allocator
// sees, without Envoy.

import { AdminServer } from "../../extproc/edge/admin/admin-server.js";
import { createCreditApi } from "../../extproc/edge/admin/create-credit-api.js";
import { openApiDocument } from "../../extproc/edge/admin/openapi.js";
import { statePages } from "../../extproc/edge/admin/state-pages.js";
import { testConfig, type ConfigSketch } from "./config.js";
import { Allocator, creditSketch } from "./credit-desk.js";
import { POOL } from "./credits.js";
import { Bench } from "./desk.js";
import { request, type Answer } from "./http-client.js";

/** Environment variable that holds the service key of the tests. */
export const SERVICE_KEY_VARIABLE = "WEIR_TEST_SERVICE_KEY";
export const SERVICE_KEY = "test-service-key-7f3a";
export const API = "/internal/capacity-credits";

/** The section `credits` of the tests. */
export const CREDITS_ON = { generation: "g1", service_key_env: SERVICE_KEY_VARIABLE } as const;

export type Fields = Readonly<Record<string, unknown>>;

/** Body of an issue, for the tenant `a` of the API's default headers. */
export const issueFields = (over: Fields = {}): Fields => ({
  generation: "g1",
  policy_epoch: 7,
  partition: POOL,
  model: "demo",
  request_id: "req-1",
  estimated_output_tokens: 1_024,
  ...over,
});

export interface CallOptions {
  readonly method?: string;
  readonly path?: string;
  /** An object is sent as JSON; text and bytes as they are; undefined = no body. */
  readonly body?: object | string;
  /** Replace the default headers of that name; null leaves one out. */
  readonly headers?: Readonly<Record<string, string | readonly string[] | null>>;
}

const DEFAULT_HEADERS = {
  authorization: `Bearer ${SERVICE_KEY}`,
  "x-weir-tenant-id": "a",
  "content-type": "application/json",
};

/** One call of the API, with key, tenant and content type unless they are replaced. */
export function callApi(port: number, options: CallOptions = {}): Promise<Answer> {
  const { body } = options;
  const all: NonNullable<CallOptions["headers"]> = { ...DEFAULT_HEADERS, ...options.headers };
  const headers = Object.entries(all).flatMap(([name, value]): (readonly [string, string])[] =>
    value === null ? [] : [value].flat().map((line: string) => [name, line] as const),
  );
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  return request({
    port,
    path: options.path ?? API,
    method: options.method ?? "POST",
    headers,
    ...(text === undefined ? {} : { body: text }),
    limitMs: 5_000,
  });
}

export interface CreditServerOptions {
  readonly slots?: number;
  readonly config?: ConfigSketch;
}

export class CreditServer {
  readonly bench: Bench;
  readonly allocator: Allocator;
  readonly faults: unknown[] = [];
  readonly keyProblems: string[] = [];
  readonly #server: AdminServer;
  port = 0;

  constructor({ slots = 4, config: over = {} }: CreditServerOptions = {}) {
    process.env[SERVICE_KEY_VARIABLE] = SERVICE_KEY;
    const sketch = creditSketch(slots, { credits: CREDITS_ON, ...over });
    const config = testConfig(sketch);
    this.bench = new Bench(sketch);
    this.allocator = new Allocator(this.bench);
    const now = (): Bench["now"] => this.bench.now;
    const pages = { config, core: this.bench.core, ready: () => true, now };
    const { operations } = this.bench;
    this.#server = new AdminServer({
      ready: pages.ready,
      metrics: () => Promise.resolve({ contentType: "text/plain", text: "" }),
      states: statePages(pages),
      credits: createCreditApi(pages, {
        onOperation: (partition, outcome) =>
          operations.push(`${partition ?? "unknown"} ${outcome}`),
        onFault: (error) => this.faults.push(error),
        onKeyProblem: (problem) => this.keyProblems.push(problem),
      }),
      openApi: openApiDocument(config.trust.tenant_header_name),
      onError: (error) => this.faults.push(error),
    });
  }

  async start(): Promise<this> {
    const address = await this.#server.listen({ kind: "tcp", host: "127.0.0.1", port: 0 });
    this.port = address.kind === "tcp" ? address.port : 0;
    return this;
  }

  close(): Promise<void> {
    return this.#server.close();
  }

  call(options: CallOptions = {}): Promise<Answer> {
    return callApi(this.port, options);
  }

  issue(over: Fields = {}, headers: CallOptions["headers"] = {}): Promise<Answer> {
    return this.call({ body: issueFields(over), headers });
  }

  /** Issues a credit that must be issued, and gives its token. */
  async token(over: Fields = {}): Promise<string> {
    const answer = await this.issue(over);
    const { credit } = jsonOf(answer);
    if (typeof credit !== "string") throw new Error(answer.body.toString());
    return credit;
  }

  arm(token: string, over: Fields = {}, headers: CallOptions["headers"] = {}): Promise<Answer> {
    const body = { ...issueFields(), dispatch_id: "d-1", ...over };
    return this.call({ path: `${API}/${token}/arm`, body, headers });
  }

  cancel(token: string, headers: CallOptions["headers"] = {}): Promise<Answer> {
    return this.call({ method: "DELETE", path: `${API}/${token}`, headers });
  }
}

export function jsonOf(answer: Answer): Record<string, unknown> {
  return JSON.parse(answer.body.toString()) as Record<string, unknown>;
}

/** Status and code of an error answer, in its exact shape; the plain status of any other. */
export function refusalOf(answer: Answer): string {
  if (answer.status < 400) return String(answer.status);
  const body = jsonOf(answer) as { error?: Record<string, unknown> };
  const keys = [Object.keys(body), Object.keys(body.error ?? {})].flat().join();
  if (keys !== "error,code,message") throw new Error(`not an error: ${answer.body.toString()}`);
  return `${String(answer.status)} ${String(body.error?.["code"])}`;
}
