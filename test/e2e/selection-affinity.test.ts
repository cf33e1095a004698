// Goal: with `cache_aware` conversations meet warm caches, and Weir says why each went where it went.
// Method: two models of one fleet, one chosen by cache and one by two choices, get the same kind of
// conversations; how many blocks were found in a cache is counted by the workers themselves.
import { expect } from "chai";
import {
  ask,
  cacheCounts,
  chatOf,
  forgetAt,
  message,
  selectionOf,
  send,
  workerOf,
  type Message,
} from "../support/cached-chat.js";
import { scrape } from "../support/class-chat.js";
import { startFleet, type Fleet } from "../support/feedback-fleet.js";
import { keptLog, type KeptLine } from "../support/kept-log.js";
import type { Stack } from "../support/stack.js";

/** The shipped block of Weir, and that of the workers. */
const BLOCK_CHARS = 256;
const WORKERS = 4;
/** 2 KiB. */
const SYSTEM_BLOCKS = 8;
const MESSAGE_BLOCKS = 2;
const SYSTEMS = ["pirate", "lawyer", "doctor", "sailor", "brewer", "farmer"];
const CONVERSATIONS = 3;
const TURNS = 6;
/**
 * Conversations at once. A request has at most 30 blocks of 64 tokens and 5 to produce, so all of them
 * reserve 11,550 tokens, less than the difference of 32,768 from which load goes first.
 */
const AT_ONCE = 6;

/** Blocks of the prompt of a turn: the system prompt, `turn` questions, an answer between two. */
const promptBlocks = (turn: number): number => SYSTEM_BLOCKS + MESSAGE_BLOCKS * (2 * turn - 1);

interface Conversation {
  readonly model: string;
  readonly system: string;
  readonly name: string;
}

/** The messages that are sent in a turn, counted from 1. */
function messagesOf({ model, system, name }: Conversation, turn: number): readonly Message[] {
  const part = (role: Message["role"], word: string, blocks = MESSAGE_BLOCKS): Message =>
    message(role, word, blocks, BLOCK_CHARS);
  const messages = [part("system", `${model} ${system}`, SYSTEM_BLOCKS)];
  for (let index = 1; index <= turn; index += 1) {
    if (index > 1) messages.push(part("assistant", `answer ${String(index)} to ${name}`));
    messages.push(part("user", `question ${String(index)} of ${name}`));
  }
  return messages;
}

/** Holds a whole conversation; the urls of the workers it was at. */
async function hold(stack: Stack, conversation: Conversation): Promise<ReadonlySet<string>> {
  const workers = new Set<string>();
  for (let turn = 1; turn <= TURNS; turn += 1) {
    const { model } = conversation;
    const answer = await send(stack, chatOf(messagesOf(conversation, turn), { model }));
    expect(answer.status, answer.body.toString("utf8")).to.equal(200);
    workers.add(workerOf(answer) ?? "");
  }
  return workers;
}

interface Outcome {
  /** Of each conversation, with the system prompt it begins with. */
  readonly workers: readonly { readonly system: string; readonly urls: ReadonlySet<string> }[];
  readonly hits: number;
  readonly queries: number;
}

/** One conversation per system prompt, one after the other, and then all others, some at a time. */
async function holdAll({ stack, workers: engines }: Fleet, model: string): Promise<Outcome> {
  for (const engine of engines) await forgetAt(engine);
  const workers: { readonly system: string; readonly urls: ReadonlySet<string> }[] = [];
  const run = async (system: string, number: number): Promise<void> => {
    const name = `${system} ${String(number)}`;
    workers.push({ system, urls: await hold(stack, { model, system, name }) });
  };
  for (const system of SYSTEMS) await run(system, 1);
  const rest = SYSTEMS.flatMap((system) =>
    Array.from({ length: CONVERSATIONS - 1 }, (_, index) => [system, index + 2] as const),
  );
  const queue = rest.values();
  const client = async (): Promise<void> => {
    for (const [system, number] of queue) await run(system, number);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, client));
  await stack.idle();
  return { workers, ...cacheCounts(engines) };
}

/** Hits and queries when every prefix is found that any earlier prompt of the fleet began with. */
function byHand(): { readonly hits: number; readonly queries: number } {
  let hits = 0;
  let queries = 0;
  for (let conversation = 1; conversation <= CONVERSATIONS; conversation += 1) {
    // The first turn finds the system prompt, unless it is the first of all.
    hits += conversation === 1 ? 0 : SYSTEM_BLOCKS;
    for (let turn = 1; turn <= TURNS; turn += 1) {
      hits += turn === 1 ? 0 : promptBlocks(turn - 1);
      queries += promptBlocks(turn);
    }
  }
  return { hits: SYSTEMS.length * hits, queries: SYSTEMS.length * queries };
}

describe("conversations with shared system prompts, through Envoy", function () {
  this.timeout(60_000);
  const kept = keptLog();
  const MODELS = ["aware", "blind"] as const;
  let fleet: Fleet;
  let stack: Stack;
  before(async () => {
    const mock = { models: MODELS, blockChars: BLOCK_CHARS, slots: 16 };
    fleet = await startFleet({
      engines: Array.from({ length: WORKERS }, () => ({ engine: "vllm", mock })),
      slots: { aware: 16, blind: 16 },
      adaptive: { mode: "off" },
      config: { models: { aware: { policy: "cache_aware" } } },
      log: kept.log,
    });
    // The stack has Weir and Envoy; what workers count is asked of them.
    stack = fleet.stack;
  });
  after(() => fleet.stop());

  it("stay each at the worker of their system prompt, and find every block there that was ever computed", async () => {
    const aware = await holdAll(fleet, "aware");
    for (const { system, urls } of aware.workers) {
      expect(urls.size, system).to.equal(1);
      const others = aware.workers.filter((other) => other.system === system);
      expect(others).to.have.length(CONVERSATIONS);
      for (const other of others) expect([...other.urls]).to.deep.equal([...urls]);
    }
    // Whatever nobody holds goes by load, so that the six system prompts are not all at one worker.
    const used = new Set(aware.workers.flatMap(({ urls }) => [...urls]));
    expect(used.size).to.be.at.least(2);

    const { hits, queries } = aware;
    expect({ hits, queries }).to.deep.equal(byHand());
    expect(hits / queries).to.be.above(0.75);

    const blind = await holdAll(fleet, "blind");
    expect(blind.queries).to.equal(queries);
    // Two choices compute at least twice as many blocks.
    expect(queries - blind.hits).to.be.at.least(2 * (queries - hits));
    expect(blind.workers.some(({ urls }) => urls.size > 1)).to.equal(true);
  });

  it("are counted by policy and result on /state/selection and in the metrics", async () => {
    const requests = SYSTEMS.length * CONVERSATIONS * TURNS;
    const { models, workers } = await selectionOf(stack);
    const [aware, blind] = MODELS.map((name) => models.find(({ model }) => model === name));
    const firsts = SYSTEMS.length;
    expect(aware).to.deep.include({ policy: "cache_aware", ownership: "committed" });
    expect(aware?.decisions).to.have.deep.members([
      { policy: "cache_aware", result: "no_owner", count: firsts },
      { policy: "cache_aware", result: "owner_match", count: requests - firsts },
    ]);
    expect(blind).to.deep.include({ policy: "power_of_two" });
    expect(blind?.decisions).to.deep.equal([
      { policy: "power_of_two", result: "two_choices", count: requests },
    ]);
    // Each conversation leaves the blocks of its last prompt, the system prompt's only once.
    const blocksOfSystem = CONVERSATIONS * (promptBlocks(TURNS) - SYSTEM_BLOCKS) + SYSTEM_BLOCKS;
    const committed = workers.map((worker) => worker.committed_blocks);
    expect(committed.reduce((sum, blocks) => sum + blocks, 0)).to.equal(
      SYSTEMS.length * blocksOfSystem,
    );
    const series = await scrape(stack);
    const decisions = "weir_selection_decisions_total";
    expect(series(decisions, { model: "aware", result: "owner_match" })).to.equal(
      requests - firsts,
    );
    expect(series("weir_prefix_index_blocks", { source: "committed" })).to.equal(
      SYSTEMS.length * blocksOfSystem,
    );
  });

  it("have log lines that say who decided: owners, and matched blocks out of how many", async () => {
    const conversation = { model: "aware", system: "keeper", name: "log" };
    const before = kept.lines().length;
    const first = await ask(stack, {
      ...chatOf(messagesOf(conversation, 1), { model: "aware" }),
    });
    const second = await ask(stack, chatOf(messagesOf(conversation, 2), { model: "aware" }));
    const lines = (): KeptLine[] => kept.lines().slice(before);
    await stack.until("both lines are written", () => lines().length === 2);
    const [one, two] = lines();
    expect(one).to.include({
      worker_url: first.worker,
      selection_policy: "cache_aware",
      selection: "no_owner",
      prefix_owners: 0,
      matched_blocks: 0,
      prompt_blocks: promptBlocks(1),
      cached_tokens: 0,
    });
    expect(one).to.not.have.property("prefix_source");
    expect(two).to.include({
      worker_url: first.worker,
      selection_policy: "cache_aware",
      selection: "owner_match",
      prefix_owners: 1,
      prefix_source: "committed",
      matched_blocks: promptBlocks(1),
      prompt_blocks: promptBlocks(2),
      // The engine agrees.
      cached_tokens: promptBlocks(1) * (BLOCK_CHARS / 4),
    });
    expect(second.worker).to.equal(first.worker);
  });
});
