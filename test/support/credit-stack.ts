// A stack whose slots an external allocator may take: one partition with every worker of the model `demo`,
// credits on, and the admin port to ask for them.

import type { CreditBinding } from "../../extproc/core/scheduler/credit-binding.js";
import type { HeaderLines } from "./chat.js";
import { creditHeaders, creditSketch } from "./credit-desk.js";
import {
  API,
  callApi,
  CREDITS_ON,
  issueFields,
  jsonOf,
  SERVICE_KEY,
  SERVICE_KEY_VARIABLE,
  type CallOptions,
  type Fields,
} from "./credit-server.js";
import { binding, POOL } from "./credits.js";
import { request, type Answer } from "./http-client.js";
import { chatBody, JSON_HEADERS, startStack, type Stack, type StackOptions } from "./stack.js";

export interface CreditStackOptions extends StackOptions {
  readonly slots?: number;
  /** Replaces keys of the section `credits`. */
  readonly credits?: Fields;
}

/** The peer that all clients of the tests are. */
const PEERS = { peers: ["127.0.0.1"] };

export class CreditStack {
  readonly stack: Stack;
  readonly adminPort: number;

  constructor(stack: Stack) {
    const { listen } = stack.config.admin;
    if (listen.kind !== "tcp") throw new Error("the admin port of a stack is on TCP");
    this.stack = stack;
    this.adminPort = listen.port;
  }

  call(options: CallOptions): Promise<Answer> {
    return callApi(this.adminPort, options);
  }

  issue(over: Fields = {}): Promise<Answer> {
    return this.call({ body: issueFields(over) });
  }

  async token(over: Fields = {}): Promise<string> {
    const answer = await this.issue(over);
    const { credit } = jsonOf(answer);
    if (typeof credit !== "string") throw new Error(answer.body.toString());
    return credit;
  }

  arm(token: string, over: Fields = {}): Promise<Answer> {
    const body = { ...issueFields(), dispatch_id: "d-1", ...over };
    return this.call({ path: `${API}/${token}/arm`, body });
  }

  cancel(token: string): Promise<Answer> {
    return this.call({ method: "DELETE", path: `${API}/${token}` });
  }

  /** Sends a chat request that brings a credit. */
  redeem(
    token: string,
    over: Partial<CreditBinding> = {},
    body: Readonly<Record<string, unknown>> = {},
    more: HeaderLines = [],
  ): Promise<Answer> {
    const headers = Object.entries(creditHeaders(token, binding(over)));
    return request({
      port: this.stack.port,
      path: "/v1/chat/completions",
      headers: [...headers, ...more, ...JSON_HEADERS],
      body: chatBody(body),
    });
  }

  /** Credits that hold a slot. */
  async active(): Promise<number> {
    const state = jsonOf(await request({ port: this.adminPort, path: "/state" }));
    const { active } = state["credits"] as { readonly active: Readonly<Record<string, number>> };
    return active[POOL] ?? 0;
  }

  /** Charged and booked output tokens of a tenant, and its requests that run. */
  async tokens(tenant: string): Promise<readonly [number, number, number]> {
    const path = `/state/fair-share?tenant=${encodeURIComponent(tenant)}`;
    const page = jsonOf(await request({ port: this.adminPort, path }));
    const [account] = page["tenants"] as readonly Record<string, number>[];
    return [account?.["charged"] ?? 0, account?.["reserved"] ?? 0, account?.["active"] ?? 0];
  }

  /** Figures of `weir_capacity_credit_operations_total` by `partition outcome`. */
  async operations(): Promise<Readonly<Record<string, number>>> {
    const page = await request({ port: this.adminPort, path: "/metrics" });
    const line =
      /^weir_capacity_credit_operations_total\{partition="(.*)",outcome="(.*)"\} (\d+)$/gm;
    const found = page.body.toString().matchAll(line);
    return Object.fromEntries(
      Array.from(found, ([, partition, outcome, count]) => [
        `${partition ?? ""} ${outcome ?? ""}`,
        Number(count),
      ]),
    );
  }

  stop(): Promise<void> {
    return this.stack.stop();
  }
}

export async function startCreditStack(options: CreditStackOptions = {}): Promise<CreditStack> {
  const { slots = 4, credits = {}, config = {}, ...rest } = options;
  process.env[SERVICE_KEY_VARIABLE] = SERVICE_KEY;
  const sketch = creditSketch(slots, config);
  const trust = { ...PEERS, ...(sketch["trust"] as object) };
  const stack = await startStack({
    workers: 1,
    ...rest,
    config: { ...sketch, trust, credits: { ...CREDITS_ON, ...credits } },
  });
  return new CreditStack(stack);
}
