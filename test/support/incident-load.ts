// The clients of the replayed incident: all of them ask about one long shared document, and all of them
// come through an external allocator. First a burst that is admitted as a whole, because nobody has
// reported anything yet; then clients that always want more, and come again when they are refused.

import { randomUUID } from "node:crypto";
import { BacklogAllocator, type TenantCounts } from "./allocator.js";
import { AllocatorClient, type ClientOptions, type CreditAsk } from "./allocator-client.js";
import { message } from "./cached-chat.js";
import { SERVICE_KEY } from "./credit-server.js";
import type { Stack } from "./stack.js";

export const MODEL = "demo";
export const GENERATION = "g1";
const TENANT = "red";
const POLICY_EPOCH = 1;
const SHARED_BLOCKS = 8;
const OWN_BLOCKS = 1;
/** The clients begin one after the other, so that they do not come again in step. */
const START_GAP_MS = 15;

/** What all prompts begin with fills this many blocks, and each has one of its own behind it. */
export const PROMPT_BLOCKS = SHARED_BLOCKS + OWN_BLOCKS;

/** Lengths of answers that come again every 17 requests, from three quarters to five quarters of `tokens`. */
export function variedTokens(tokens: number, index: number): number {
  return Math.round(tokens * (0.75 + ((index * 7) % 17) / 32));
}

/** A question about the shared document, unlike every other one; the answer has so many tokens. */
export function questionBody(name: string, tokens: number, blockChars: number): string {
  return JSON.stringify({
    model: MODEL,
    max_tokens: tokens,
    ignore_eos: true,
    messages: [
      message("system", "the document", SHARED_BLOCKS, blockChars),
      message("user", `${name} ${randomUUID()}`, OWN_BLOCKS, blockChars),
    ],
  });
}

/** Where the allocator finds Weir and Envoy. */
export function placesOf({ config, port }: Stack): ClientOptions {
  const { listen } = config.admin;
  if (listen.kind !== "tcp") throw new Error("the admin port of a stack is on TCP");
  return {
    admin: `http://127.0.0.1:${String(listen.port)}`,
    gateway: `http://127.0.0.1:${String(port)}`,
    serviceKey: SERVICE_KEY,
  };
}

/** Requests that have their credits in hand and are sent together. */
export class Burst {
  readonly #client: AllocatorClient;
  readonly #armed: { readonly credit: string; readonly ask: CreditAsk }[] = [];

  constructor(stack: Stack) {
    this.#client = new AllocatorClient(placesOf(stack));
  }

  /** Takes and arms one more credit. */
  async take(): Promise<void> {
    const ask: CreditAsk = {
      generation: GENERATION,
      policyEpoch: POLICY_EPOCH,
      partition: MODEL,
      model: MODEL,
      tenant: TENANT,
      requestId: randomUUID(),
      estimateTokens: 16,
    };
    const { credit } = (await this.#client.issue(ask)).body;
    if (typeof credit !== "string") throw new Error("no credit was issued");
    const { status } = await this.#client.arm(credit, ask, `dispatch-${ask.requestId}`);
    if (status !== 200) throw new Error(`a credit was not armed: ${String(status)}`);
    this.#armed.push({ credit, ask });
  }

  /** Redeems all of them at once; resolves with the statuses. */
  send(bodyOf: (index: number) => string): Promise<readonly number[]> {
    const sent = this.#armed.map(async ({ credit, ask }, index) => {
      const { status } = await this.#client.infer(credit, ask, bodyOf(index));
      return status;
    });
    return Promise.all(sent);
  }
}

export interface ClientsSketch {
  readonly count: number;
  readonly tokens: number;
  readonly blockChars: number;
}

/** So many clients, each of which asks its next question when it has an answer. */
export class SteadyClients {
  readonly #allocator: BacklogAllocator;
  readonly #sketch: ClientsSketch;
  readonly #clients: Promise<void>[];
  #stopped = false;

  constructor(stack: Stack, sketch: ClientsSketch) {
    this.#sketch = sketch;
    this.#allocator = new BacklogAllocator({
      ...placesOf(stack),
      generation: () => Promise.resolve(GENERATION),
      policyEpoch: POLICY_EPOCH,
      outstanding: sketch.count,
    });
    this.#clients = Array.from({ length: sketch.count }, (_, client) => this.#run(client));
  }

  get counts(): TenantCounts | undefined {
    return this.#allocator.counts.get(TENANT);
  }

  /** Asks nothing more; ends when those under way have their answers. */
  async leave(): Promise<void> {
    this.#stopped = true;
    await this.#allocator.stop();
    await Promise.all(this.#clients);
  }

  async #run(client: number): Promise<void> {
    const { tokens, blockChars } = this.#sketch;
    await new Promise((done) => setTimeout(done, client * START_GAP_MS));
    for (let asked = 0; !this.#stopped; asked += 1) {
      const wanted = variedTokens(tokens, client + asked);
      await this.#allocator.submit({
        tenant: TENANT,
        partition: MODEL,
        model: MODEL,
        estimateTokens: wanted,
        body: questionBody("question", wanted, blockChars),
      });
    }
  }
}
