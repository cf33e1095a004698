// Tenants that always want more: each keeps a number of requests under way, sends the next one when an
// answer has come, and counts the output tokens the worker says it produced. Output lengths are drawn
// from a seed. What Weir believes plays no part here, so that its shares are judged from outside.

import { Agent } from "node:http";
import { expect } from "chai";
import type { PriorityClass } from "../../extproc/core/model/priority.js";
import type { Chance } from "../sim/chance.js";
import { open, type OpenRequest } from "./http-client.js";
import { PATIENT_MS } from "./slots.js";
import { chatBody, JSON_HEADERS, type Stack } from "./stack.js";

/** Lets requests name their tenant; every client of a test connects from this host. */
export const TENANT_TRUST = { tenant_id: true, peers: ["127.0.0.1"] } as const;

export const tenantLine = (tenant: string): readonly [string, string] => [
  "x-weir-tenant-id",
  tenant,
];

export interface Served {
  readonly tenant: string;
  readonly class: PriorityClass;
  /** As the worker counted them. */
  readonly tokens: number;
}

export interface TenantPlan {
  readonly tenant: string;
  readonly connections: number;
  /** The class of each connection, in turn. */
  readonly classes?: readonly PriorityClass[];
  /** Output tokens of a request: drawn between these, both included. */
  readonly tokens: readonly [low: number, high: number];
}

/** What a run has asked for and got. */
export class Tally {
  /** All answers, in the order in which they came. */
  readonly answers: Served[] = [];
  /** Output tokens a request asked for, by its name, which is the tenant's and a number. */
  readonly asked = new Map<string, number>();

  /** Output tokens of each of these tenants among the answers from `from` to before `to`. */
  tokens(tenants: readonly string[], from: number, to?: number): number[] {
    const window = this.answers.slice(from, to);
    return tenants.map((tenant) =>
      window
        .filter((answer) => answer.tenant === tenant)
        .reduce((sum, answer) => sum + answer.tokens, 0),
    );
  }
}

/** One tenant under load; use `startTenant`. */
export class TenantLoad {
  readonly #stack: Stack;
  readonly #plan: TenantPlan;
  readonly #chance: Chance;
  readonly #tally: Tally;
  readonly #agent: Agent;
  readonly #open = new Set<OpenRequest>();
  readonly #connections: Promise<void>[] = [];
  #sent = 0;
  #stopped = false;

  constructor(stack: Stack, plan: TenantPlan, chance: Chance, tally: Tally) {
    this.#stack = stack;
    this.#plan = plan;
    this.#chance = chance;
    this.#tally = tally;
    this.#agent = new Agent({ keepAlive: true, maxSockets: plan.connections });
    const classes = plan.classes ?? ["default"];
    for (let index = 0; index < plan.connections; index += 1) {
      this.#connections.push(this.#run(classes[index % classes.length] ?? "default"));
    }
  }

  /** Sends nothing more and waits for what is under way. */
  async finish(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#connections);
    this.#agent.destroy();
  }

  /** Drops every connection, whatever is under way on it. */
  async leave(): Promise<void> {
    this.#stopped = true;
    for (const request of this.#open) request.abort();
    await this.finish();
  }

  async #run(name: PriorityClass): Promise<void> {
    while (!this.#stopped) {
      const { tenant } = this.#plan;
      const tokens = this.#chance.whole(...this.#plan.tokens);
      this.#sent += 1;
      const requestName = `${tenant}-${String(this.#sent)}`;
      this.#tally.asked.set(requestName, tokens);
      const opened = open({
        port: this.#stack.port,
        method: "POST",
        path: "/v1/chat/completions",
        headers: [
          ...JSON_HEADERS,
          tenantLine(tenant),
          ["x-weir-priority", name],
          ["x-test-name", requestName],
        ],
        agent: this.#agent,
        limitMs: PATIENT_MS,
      });
      opened.write(chatBody({ max_tokens: tokens, ignore_eos: true }));
      opened.end();
      this.#open.add(opened);
      const answer = await opened.answer;
      this.#open.delete(opened);
      if (answer.aborted) continue;
      const text = answer.body.toString("utf8");
      expect(answer.status, text).to.equal(200);
      const { usage } = JSON.parse(text) as { usage: { completion_tokens: number } };
      expect(usage.completion_tokens).to.equal(tokens);
      this.#tally.answers.push({ tenant, class: name, tokens: usage.completion_tokens });
    }
  }
}

/** Waits until `count` more answers have come, and gives the place of the first of them. */
export async function moreAnswers(tally: Tally, count: number, limitMs: number): Promise<number> {
  const from = tally.answers.length;
  const deadline = Date.now() + limitMs;
  while (tally.answers.length < from + count) {
    if (Date.now() > deadline) {
      const came = tally.answers.length - from;
      throw new Error(`${String(came)} of ${String(count)} answers in ${String(limitMs)} ms`);
    }
    await new Promise((done) => setTimeout(done, 10));
  }
  return from;
}
