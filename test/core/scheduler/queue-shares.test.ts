// Who gives up its place in a full queue: the rule of queue-shares.ts, worked out by hand. One slot is
// taken throughout, so whoever asks waits or is refused.

import { expect } from "chai";
import type { PriorityClass } from "../../../extproc/core/model/priority.js";
import { fairQueueing } from "../../support/fair.js";
import { SchedulerBench } from "../../support/scheduler.js";

/** `a` is named for both models; in the bucket of others of each is whoever begins with `o`. */
const PROFILES = {
  kimi: { weights: { a: 80 }, other: 20 },
  deepseek: { weights: { a: 1 }, other: 1 },
};

class FullQueue {
  readonly #bench: SchedulerBench;
  readonly #asked = new Map<string, number>();

  constructor(queueSize: number) {
    const fair = fairQueueing({ profiles: PROFILES });
    this.#bench = new SchedulerBench({ capacity: 1, queueSize, fair });
    this.#bench.admit("running", "system");
  }

  /** A tenant asks so many times; its requests are named `tenant#n`. */
  fill(tenant: string, count: number, model?: string, name: PriorityClass = "default"): void {
    for (let index = 0; index < count; index += 1) {
      expect(this.ask(tenant, model, name), tenant).to.equal(undefined);
    }
  }

  /** Who gave up its place; "refused" = nobody did; undefined = there was a place. */
  ask(tenant: string, model?: string, name: PriorityClass = "default"): string | undefined {
    const at = (this.#asked.get(tenant) ?? 0) + 1;
    this.#asked.set(tenant, at);
    const before = this.#bench.displaced.length;
    const share = model === undefined ? { tenant } : { tenant, model };
    const came = this.#bench.admit(`${tenant}#${String(at)}`, name, undefined, share);
    return came === "queue_full" ? "refused" : this.#bench.displaced[before];
  }

  leave(request: string): void {
    expect(this.#bench.leave(request), request).to.equal(true);
  }
}

describe("a full queue", () => {
  it("takes from the tenant with the most places inside the fullest bucket", () => {
    const queue = new FullQueue(5);
    queue.fill("o1", 1, "kimi");
    queue.fill("o2", 3, "kimi");
    queue.fill("o3", 1, "kimi");
    expect(queue.ask("a", "kimi"), "the bucket has five, o2 three of them").to.equal("o2#3");
    expect(queue.ask("b"), "the bucket has four, o2 two of them").to.equal("o2#2");
    expect(queue.ask("b"), "three and two: each of the bucket has one, o3 came last").to.equal(
      "o3#1",
    );
    expect(queue.ask("b"), "two and three").to.equal("refused");
  });

  it("shares the places of a bucket between its tenants, as those of the queue between sides", () => {
    const queue = new FullQueue(6);
    queue.fill("a", 1, "kimi");
    queue.fill("o1", 4, "kimi");
    queue.fill("o2", 1, "kimi");
    expect(queue.ask("o2", "kimi"), "o1 has four, o2 two").to.equal("o1#4");
    expect(queue.ask("o2", "kimi"), "three and three").to.equal("refused");
    expect(queue.ask("o3", "kimi"), "o1 has three, o3 one").to.equal("o1#3");
    expect(queue.ask("o4", "kimi"), "o1 and o2 have two, o2 came last").to.equal("o2#2");
    expect(queue.ask("o4", "kimi"), "o1 has two, o4 too").to.equal("refused");
  });

  it("asks inside the newcomer's bucket when nobody outside has more than the bucket", () => {
    const queue = new FullQueue(7);
    queue.fill("o1", 3, "kimi");
    queue.fill("b", 4);
    expect(queue.ask("o2", "kimi"), "with o2 the bucket has four as well").to.equal("o1#3");
    expect(queue.ask("o2", "kimi"), "o1 has two, o2 too").to.equal("refused");
    queue.leave("o1#2");
    queue.fill("b", 1);
    expect(queue.ask("o2", "kimi"), "b has five, with o2 the bucket has three").to.equal("b#5");
  });

  it("does not let a flood of names in a bucket push out each other or those who came before", () => {
    const queue = new FullQueue(4);
    for (const tenant of ["o1", "o2", "o3", "o4"]) queue.fill(tenant, 1, "kimi");
    expect(queue.ask("o5", "kimi")).to.equal("refused");
    expect(queue.ask("a", "kimi"), "the last of the crowd goes").to.equal("o4#1");
  });

  it("asks the next fullest when all waiters of the fullest are of a higher class", () => {
    const queue = new FullQueue(5);
    queue.fill("b", 3, undefined, "interactive");
    queue.fill("c", 2, undefined, "bulk");
    expect(queue.ask("d", undefined, "bulk")).to.equal("c#2");
    expect(queue.ask("d", undefined, "bulk"), "c has one, d two").to.equal("refused");
    expect(queue.ask("e", undefined, "interactive"), "b has three").to.equal("b#3");
  });

  it("compares all places of a side, also those of classes that do not give way", () => {
    const queue = new FullQueue(6);
    queue.fill("b", 3, undefined, "interactive");
    queue.fill("b", 1, undefined, "bulk");
    queue.fill("c", 2, undefined, "bulk");
    expect(queue.ask("d", undefined, "bulk"), "b has four").to.equal("b#4");
    expect(queue.ask("e", undefined, "bulk"), "b's three do not give way").to.equal("c#2");
  });

  it("goes by class inside a bucket too", () => {
    const queue = new FullQueue(5);
    queue.fill("o1", 3, "kimi", "interactive");
    queue.fill("o2", 2, "kimi", "bulk");
    expect(queue.ask("o3", "kimi", "bulk"), "o1 has more, but no bulk").to.equal("o2#2");
    expect(queue.ask("a", "kimi", "bulk"), "each has one bulk, o3 came last").to.equal("o3#1");
    expect(queue.ask("o4", "kimi", "system")).to.equal("o1#3");
  });

  it("counts the places of a tenant with shares of its own together, whatever their models", () => {
    const queue = new FullQueue(5);
    queue.fill("b", 2);
    queue.fill("a", 1, "kimi");
    queue.fill("a", 1, "deepseek");
    queue.fill("a", 1);
    expect(queue.ask("a", "deepseek"), "a has four, b two").to.equal("refused");
    expect(queue.ask("c"), "a has three").to.equal("a#3");
    expect(queue.ask("c"), "nobody has three").to.equal("refused");
  });

  it("counts what a tenant has in a bucket for the bucket alone", () => {
    const queue = new FullQueue(6);
    queue.fill("c", 3);
    queue.fill("o1", 2);
    queue.fill("o1", 1, "kimi");
    // Counted together o1 would have three and, having come last, would be asked.
    expect(queue.ask("d")).to.equal("c#3");
    expect(queue.ask("o1", "kimi"), "nobody has more than the bucket's two").to.equal("refused");
  });

  it("forgets places that are given back", () => {
    const queue = new FullQueue(4);
    queue.fill("b", 3);
    queue.leave("b#1");
    queue.leave("b#2");
    queue.leave("b#3");
    queue.fill("c", 2);
    queue.fill("b", 2);
    expect(queue.ask("d"), "two and two, b came back last").to.equal("b#5");
  });
});
