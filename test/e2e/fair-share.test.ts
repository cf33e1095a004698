// Goal: whom Weir serves next, seen where the work arrives: by the shares of the model a proxy vouches
// for, by debts that follow a tenant from class to class, and never to the gain of a client that leaves
// its stream, keeps its usage to itself, understates its estimate, floods the queue or invents names.
// Method: a real Envoy and so few slots that the order in which requests reach the worker is the order
// of the grants. Slots are held while the queue fills, so nothing depends on how fast anything is.
import { expect } from "chai";
import { startMockWorker, type MockWorker } from "../../envoy/mock-worker/server.js";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import type { HeaderLines } from "../support/chat.js";
import {
  classTable,
  expectContended,
  expectServed,
  namesAt,
  openChat,
  openQueued,
  openRunning,
  untilRunning,
  watchArrivals,
  type ClassChat,
  type OpenChat,
} from "../support/class-chat.js";
import type { ConfigSketch } from "../support/config.js";
import { openStream, PACED, produceTokens, untilQueued } from "../support/slots.js";
import { startStack, type Stack } from "../support/stack.js";
import { tenantLine, TENANT_TRUST } from "../support/tenant-load.js";

const ESTIMATE_TOKENS = 256;

/** A chat of a tenant that ends with exactly this many tokens. */
function chatOf(tenant: string, name: string, tokens: number, more: ClassChat = {}): ClassChat {
  return {
    ...more,
    name,
    headers: [tenantLine(tenant), ...(more.headers ?? [])],
    body: { max_tokens: tokens, ignore_eos: true, ...more.body },
  };
}

/** Holds slots with requests that end only when they are aborted; of no tenant of the tests. */
async function occupy(stack: Stack, slots: number): Promise<readonly OpenChat[]> {
  const taken: OpenChat[] = [];
  while (taken.length < slots) taken.push(await openRunning(stack, { mock: "hang" }));
  await untilRunning(stack, slots);
  return taken;
}

function release(occupants: readonly OpenChat[]): void {
  for (const { abort } of occupants) abort();
}

function count(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

const recordsOf = (stack: Stack, tenant: string): readonly SettlementRecord[] =>
  stack.settled.filter((record) => record.tenant === `header:${tenant}`);

describe("shares of a model, which a proxy names by an alias, through Envoy", () => {
  const MODELS = {
    "deepseek-v4-flash": { aliases: ["deepseek-latest"] },
    kimi: { aliases: ["kimi-latest"] },
    glm: { aliases: ["glm-latest"] },
  };
  /** Each request produces what it was booked. */
  const TOKENS = 10;
  let worker: MockWorker;
  let stack: Stack;
  before(async () => {
    const models = Object.keys(MODELS);
    worker = await startMockWorker({ port: 0, models, slots: 64 });
    stack = await startStack({
      workers: 0,
      config: {
        workers: [{ url: worker.url, cluster: "worker_1", models }],
        models: MODELS,
        trust: { ...TENANT_TRUST, request_model: true },
        fair_share: {
          default_output_tokens: TOKENS,
          max_queued_requests_per_tenant: 100,
          // Flat weights have no part where a profile applies.
          tenant_weights: { "header:green": 1_000, "header:dora": 1_000 },
          model_profiles: {
            "deepseek-v4-flash": {
              tenant_weights: { "header:red": 30, "header:blue": 40, "header:green": 10 },
              other_weight: 20,
            },
            kimi: { tenant_weights: { "header:red": 80 }, other_weight: 20 },
            glm: { tenant_weights: { "header:red": 50 }, other_weight: 50 },
          },
        },
        scheduler: { max_concurrent_requests: 1, queue_size: 300 },
      },
    });
  });
  after(async () => {
    await stack.stop();
    await worker.close(0);
  });

  /** Tenants whose requests reached the worker, in order, when so many of each wait from the start. */
  async function servedOf(
    model: string,
    alias: string,
    waiters: Readonly<Record<string, number>>,
  ): Promise<readonly string[]> {
    const occupant = await openRunning(stack, { mock: "hang", body: { model } });
    const headers: HeaderLines = [["x-weir-request-model", alias]];
    const chats = Object.entries(waiters).flatMap(([tenant, waiting]) =>
      Array.from({ length: waiting }, (_, index) =>
        openChat(
          stack,
          chatOf(tenant, `${model} ${tenant} ${String(index)}`, TOKENS, {
            headers,
            body: { model },
          }),
        ),
      ),
    );
    await untilQueued(stack, chats.length);
    const arrivals = watchArrivals(worker);
    occupant.abort();
    for (const { answer } of chats) expectServed(await answer);
    arrivals.stop();
    const names = [...arrivals.seen.keys()].filter((name) => name.startsWith(model));
    expect(names).to.have.length(chats.length);
    return names.map((name) => name.split(" ")[1] ?? "");
  }

  it("F11 deepseek 30/40/10 and others 20: 100 of them are 30, 40, 10 and 10 each for two others", async () => {
    const waiters = { red: 35, blue: 45, green: 15, dora: 15, emil: 15 };
    const served = await servedOf("deepseek-v4-flash", "deepseek-latest", waiters);
    expect(count(served.slice(0, 100))).to.deep.equal({
      red: 30,
      blue: 40,
      green: 10,
      dora: 10,
      emil: 10,
    });
    const [record] = recordsOf(stack, "dora");
    expect(record).to.deep.include({ accountingModel: "deepseek-v4-flash" });
    expect(record?.share).to.include({ profile: "deepseek-v4-flash", bucket: "other" });
  });

  it("F12 F13 kimi 80 and others 20: 80, 10 and 10, whatever the same tenants owe for deepseek", async () => {
    const served = await servedOf("kimi", "kimi-latest", { red: 90, dora: 15, emil: 15 });
    expect(count(served.slice(0, 100))).to.deep.equal({ red: 80, dora: 10, emil: 10 });
  });

  it("forty invented names inside `other` have one share together, and one turn each", async () => {
    const flood = Array.from({ length: 40 }, (_, index) => [`name-${String(index)}`, 1] as const);
    const waiters = { red: 50, quiet: 10, ...Object.fromEntries(flood) };
    const served = await servedOf("glm", "glm-latest", waiters);
    const first = served.slice(0, 82);
    expect(count(first)["red"]).to.equal(41);
    // 41 turns of `other` are one for each name: who has been served stands behind who has not.
    const others = first.filter((tenant) => tenant !== "red");
    expect(new Set(others).size).to.equal(41);
    expect(others).to.include("quiet");
  });
});

/** Runs tests on one stack with a worker that produces tokens only when it is told to. */
function onPacedStack(
  title: string,
  config: ConfigSketch,
  tests: (stack: () => Stack, worker: () => MockWorker) => void,
): void {
  describe(title, () => {
    let stack: Stack;
    beforeEach(async () => {
      stack = await startStack({
        workers: 1,
        mock: PACED,
        config: { trust: TENANT_TRUST, ...config },
      });
    });
    afterEach(() => stack.stop());
    tests(
      () => stack,
      () => {
        const [worker] = stack.workers;
        if (worker === undefined) throw new Error("the stack has no worker");
        return worker;
      },
    );
  });
}

onPacedStack(
  "tenants of equal weight on one slot, through Envoy",
  {
    scheduler: {
      max_concurrent_requests: 1,
      queue_size: 40,
      default_max_class: "interactive",
      classes: classTable({}),
    },
  },
  (stack, worker) => {
    /** Waits for the next request at the worker and gives its name. */
    async function nextAt(seenBefore: number): Promise<string> {
      await stack().until("the next request runs", () => {
        const { running, last_requests } = worker().state();
        return running === 1 && last_requests.length === seenBefore + 1;
      });
      return namesAt(worker()).at(-1) ?? "";
    }

    it("a client that leaves its stream pays at least the estimate, and gets no more turns than who stays", async () => {
      const turns = 6;
      const occupants = await occupy(stack(), 1);
      const streams = Array.from({ length: turns }, () =>
        openStream(stack(), [tenantLine("leaver"), ["x-test-name", "leaver"]]),
      );
      const chats = Array.from({ length: turns }, () =>
        openChat(stack(), chatOf("honest", "honest", ESTIMATE_TOKENS)),
      );
      await untilQueued(stack(), 2 * turns);
      release(occupants);
      const order: string[] = [];
      while (order.length < 2 * turns) {
        const name = await nextAt(1 + order.length);
        order.push(name);
        await produceTokens(stack(), name === "honest" ? ESTIMATE_TOKENS : 5);
        if (name === "honest") continue;
        // Any of its streams may be the one that runs.
        await stack().until("five tokens are seen", () =>
          streams.some((stream) => stream.contentEvents() === 5),
        );
        const at = streams.findIndex((stream) => stream.contentEvents() === 5);
        streams.splice(at, 1)[0]?.abort();
      }
      for (const { answer } of chats) expectServed(await answer);
      await stack().idle();
      // Both have paid 256 whenever it is their turn again; of equals the smaller key goes first.
      expect(order).to.deep.equal(Array.from({ length: turns }, () => ["honest", "leaver"]).flat());
      const left = recordsOf(stack(), "leaver");
      expect(left).to.have.length(turns);
      for (const { charge } of left) {
        expect(charge).to.deep.equal({ kind: "interrupted", tokens: 256, clockTokens: 256 });
      }
    });

    it("a client that leaves its stream late pays for what it has seen beyond the estimate", async () => {
      const stream = openStream(stack(), [tenantLine("leaver")], 1_000);
      await untilRunning(stack(), 1);
      await produceTokens(stack(), 300);
      await stack().until("300 tokens are seen", () => stream.contentEvents() === 300);
      stream.abort();
      const [record] = await stack().settlements(1);
      expect(record?.charge?.kind).to.equal("interrupted");
      expect(record?.charge?.tokens).to.be.within(300, 301);
    });

    it("a client whose streams say no usage pays their content events, and gets no more turns", async () => {
      const turns = 4;
      const tokens = 512;
      const occupants = await occupy(stack(), 1);
      for (let turn = 0; turn < turns; turn += 1) {
        openStream(stack(), [tenantLine("mute"), ["x-test-name", "mute"]], tokens);
        void openChat(stack(), chatOf("honest", "honest", tokens)).answer;
      }
      await untilQueued(stack(), 2 * turns);
      release(occupants);
      const order: string[] = [];
      while (order.length < 2 * turns) {
        order.push(await nextAt(1 + order.length));
        await produceTokens(stack(), tokens);
      }
      await stack().idle();
      expect(order).to.deep.equal(Array.from({ length: turns }, () => ["honest", "mute"]).flat());
      for (const { charge } of recordsOf(stack(), "mute")) {
        expect(charge?.kind).to.equal("missing_usage");
        // The event that says why the stream ended carries no text and is counted all the same.
        expect(charge?.tokens).to.be.within(tokens, tokens + 1);
      }
    });

    it("F10 a debt made as bulk counts as interactive: the other is served until it has had as much", async () => {
      const bulk = chatOf("a", "a-bulk", 2_000, { class: "bulk" });
      await openRunning(stack(), bulk);
      await untilRunning(stack(), 1);
      const live = (tenant: string, name: string): Promise<OpenChat> =>
        openQueued(stack(), chatOf(tenant, name, ESTIMATE_TOKENS, { class: "interactive" }));
      await openQueued(stack(), chatOf("b", "b-bulk", ESTIMATE_TOKENS, { class: "bulk" }));
      await live("a", "a-live");
      for (let index = 1; index <= 9; index += 1) await live("b", `b-live-${String(index)}`);
      await stack().until("all are served", async () => {
        await produceTokens(stack(), 2_000);
        return stack().settled.length === 12;
      });
      // 7 x 256 = 1,792 is less than 2,000, 8 x 256 = 2,048 is more; interactive goes before bulk.
      const eight = Array.from({ length: 8 }, (_, index) => `b-live-${String(index + 1)}`);
      const order = ["a-bulk", ...eight, "a-live", "b-live-9", "b-bulk"];
      expect(namesAt(worker())).to.deep.equal(order);
    });
  },
);

for (const trusted of [false, true]) {
  const title = trusted
    ? "an estimate of 1 from a trusted proxy, through Envoy"
    : "a client that claims an estimate of 1, through Envoy";
  onPacedStack(
    title,
    {
      trust: { ...TENANT_TRUST, output_token_estimate: trusted },
      scheduler: { max_concurrent_requests: 8, queue_size: 40 },
    },
    (stack, worker) => {
      const what = trusted
        ? "is what is booked: seven of eight slots, until the first answer has ended"
        : "changes nothing: four of eight slots, like the one that claims none";
      it(what, async () => {
        const occupants = await occupy(stack(), 8);
        const estimate: HeaderLines = [["x-weir-output-token-estimate", "1"]];
        const waiting = ["liar", "honest"].flatMap((tenant) =>
          Array.from({ length: 8 }, () => {
            const headers = tenant === "liar" ? estimate : [];
            return openChat(stack(), chatOf(tenant, tenant, 50, { headers }));
          }),
        );
        await untilQueued(stack(), waiting.length);
        release(occupants);
        await untilQueued(stack(), 8);
        await stack().until("eight more requests", () => namesAt(worker()).length === 8);
        // honest is first by its key and then booked 256; liar is booked 1 or 256 each time.
        expect(count(namesAt(worker()))).to.deep.equal(
          trusted ? { honest: 1, liar: 7 } : { honest: 4, liar: 4 },
        );
        await stack().until("all are served", async () => {
          await produceTokens(stack(), 50);
          return stack().settled.length === 8 + waiting.length;
        });
        for (const { answer } of waiting) expectServed(await answer);
        const [record] = recordsOf(stack(), "liar");
        expect(record?.estimateTokens).to.equal(trusted ? 1 : ESTIMATE_TOKENS);
      });
    },
  );
}

onPacedStack(
  "at most four waiting requests of a tenant on one slot, through Envoy",
  {
    fair_share: { max_queued_requests_per_tenant: 4 },
    scheduler: {
      max_concurrent_requests: 1,
      queue_size: 5,
      default_max_class: "interactive",
      classes: classTable({}),
    },
  },
  (stack, worker) => {
    it("Q6 a noisy tenant is refused, others still get a place, also in a full queue, and are served first", async () => {
      const tokens = 5;
      const running = await openRunning(stack(), chatOf("noisy", "noisy", tokens));
      const waiting: OpenChat[] = [];
      // All classes count together.
      for (const name of ["bulk", "default", "default", "default"] as const) {
        const chat = chatOf("noisy", `noisy-${name}`, tokens, { class: name });
        waiting.push(await openQueued(stack(), chat));
      }
      for (const name of ["bulk", "default", "interactive"] as const) {
        const chat = chatOf("noisy", "refused", tokens, { class: name });
        expectContended(await openChat(stack(), chat).answer, "scheduler_queue_full", 30);
      }
      const refused = recordsOf(stack(), "noisy");
      expect(refused.map(({ queueRefusal }) => queueRefusal)).to.deep.equal(
        new Array<string>(3).fill("tenant_limit"),
      );
      const quiet = await openQueued(stack(), chatOf("quiet", "quiet", tokens));
      // Now the queue itself is full: it makes room for a tenant that has fewer waiters than another.
      const late = openChat(stack(), chatOf("late", "late", tokens));
      const [displaced] = waiting;
      if (displaced === undefined) throw new Error("nobody waits");
      expectContended(await displaced.answer, "scheduler_queue_full", 30);
      expect(recordsOf(stack(), "noisy").at(-1)).to.include({
        queueRefusal: "displaced",
        class: "bulk",
      });
      await stack().until("all are served", async () => {
        await produceTokens(stack(), tokens);
        return stack().settled.length === 10;
      });
      for (const { answer } of [running, ...waiting.slice(1), quiet, late]) {
        expectServed(await answer);
      }
      expect(namesAt(worker())).to.deep.equal([
        "noisy",
        "late",
        "quiet",
        "noisy-default",
        "noisy-default",
        "noisy-default",
      ]);
    });
  },
);
