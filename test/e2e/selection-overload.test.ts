// Goal: a worker that hangs does not collect every request on the prefixes it owns, and its trouble
// takes no prefix away from any other owner. Method: no telemetry, only requests that never end and
// Weir's own count of them.
import { expect } from "chai";
import {
  ask,
  chatOf,
  message,
  workerOf,
  type Asked,
  type Question,
} from "../support/cached-chat.js";
import { untilRunning } from "../support/class-chat.js";
import type { ConfigSketch } from "../support/config.js";
import type { OpenRequest } from "../support/http-client.js";
import { startChat } from "../support/slots.js";
import { startStack, type Stack } from "../support/stack.js";

const BLOCK_CHARS = 256;
const BLOCKS = 4;
/** One worker may be so many requests ahead of the calmest one before load goes first. */
const AHEAD = 4;

const prompt = (name: string): readonly ReturnType<typeof message>[] => [
  message("user", name, BLOCKS, BLOCK_CHARS),
];
const chat = (name: string): Question => chatOf(prompt(name));

describe("an owner that hangs, through Envoy", () => {
  const stacks: Stack[] = [];
  const hung: OpenRequest[] = [];

  async function start(selection: ConfigSketch): Promise<Stack> {
    const stack = await startStack({
      workers: 4,
      mock: { blockChars: BLOCK_CHARS, slots: 100 },
      config: {
        models: { demo: { policy: "cache_aware" } },
        selection: { balance_abs_threshold: AHEAD, ...selection },
      },
    });
    stacks.push(stack);
    return stack;
  }

  afterEach(async () => {
    for (const opened of hung.splice(0)) {
      opened.abort();
      await opened.answer;
    }
    for (const stack of stacks.splice(0)) {
      await stack.idle();
      await stack.stop();
    }
  });

  /** Two prompts at different workers: one owner is to hang, the other one is a bystander. */
  async function twoOwners(stack: Stack): Promise<{ hanging: string; bystander: string }> {
    const { worker: hanging = "" } = await ask(stack, chat("hanging"));
    let name = "";
    await stack.until("another owner", async () => {
      name = `bystander ${String(stack.settled.length)}`;
      return (await ask(stack, chat(name))).worker !== hanging;
    });
    return { hanging, bystander: name };
  }

  /** Has so many requests hang on the first prompt; they are sent one after the other. */
  async function hang(stack: Stack, count: number): Promise<void> {
    const before = hung.length;
    for (let index = 1; index <= count; index += 1) {
      const headers = [["x-mock", "hang"]] as const;
      hung.push(startChat(stack, headers, { messages: prompt("hanging") }));
      await untilRunning(stack, before + index);
    }
  }

  const runningAt = (stack: Stack, url: string): number =>
    stack.workers.find((worker) => worker.url === url)?.state().running ?? 0;

  async function expectBystanderKept(stack: Stack, name: string, result: string): Promise<void> {
    const first = await ask(stack, chat(name));
    const second = await ask(stack, chat(name));
    expect(first.decision).to.include({ result, owners: 1, matchedBlocks: BLOCKS });
    expect(second.worker).to.equal(first.worker);
  }

  /** A request on the prompt whose owner hangs, which is answered. */
  async function askElsewhere(stack: Stack, hanging: string): Promise<Asked> {
    const answered = await ask(stack, chat("hanging"));
    expect(answered.answer.status).to.equal(200);
    expect(workerOf(answered.answer)).to.not.equal(hanging);
    return answered;
  }

  it("is left as soon as it is too far ahead, and the prefix gets a second owner", async () => {
    const stack = await start({});
    const { hanging, bystander } = await twoOwners(stack);
    await hang(stack, AHEAD);
    expect(runningAt(stack, hanging)).to.equal(AHEAD);
    // Four ahead is not more than four: the fifth still goes there.
    await hang(stack, 1);
    expect(runningAt(stack, hanging)).to.equal(AHEAD + 1);
    const away = await askElsewhere(stack, hanging);
    expect(away.decision).to.include({ result: "imbalanced_requests" });
    const again = await askElsewhere(stack, hanging);
    expect(again.decision).to.include({ result: "owner_match", owners: 2 });
    expect(again.worker).to.equal(away.worker);
    await expectBystanderKept(stack, bystander, "owner_match");
    expect(runningAt(stack, hanging)).to.equal(AHEAD + 1);
  });

  it("is left within the budget of owners too: one more, which the next requests join", async () => {
    const budget = { max_cached_owners_per_prefix: 2, cache_owner_spill_cooldown_secs: 60 };
    const stack = await start(budget);
    const { hanging, bystander } = await twoOwners(stack);
    await hang(stack, AHEAD + 1);
    expect(runningAt(stack, hanging)).to.equal(AHEAD + 1);
    const spilled = await askElsewhere(stack, hanging);
    expect(spilled.decision).to.include({ result: "owner_pressure_spill", owners: 1 });
    for (let index = 0; index < 3; index += 1) {
      const { worker, decision } = await askElsewhere(stack, hanging);
      expect(worker).to.equal(spilled.worker);
      expect(decision).to.include({ result: "cached_owner_hold", owners: 2 });
    }
    await expectBystanderKept(stack, bystander, "cached_owner_hold");
  });
});
