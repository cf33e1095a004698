// The acceptance rows of cache-aware selection, and each of its decisions once. Prompts are cut into
// blocks of four; "own" makes a worker an owner the way a real request does.

import { expect } from "chai";
import { Bench, scripted, text, tokens, url } from "./support.js";

const PROMPT = text("aaaabbbbccccdddd");

describe("cache-aware selection without a budget of owners", () => {
  it("sends a prompt to the worker that has answered its beginning", () => {
    const bench = new Bench({ workers: 4 });
    bench.own(text("aaaabbbb"), 2);
    // 8 of 16 characters are known, more than 0.3.
    const selection = bench.chosen({ prompt: PROMPT });
    expect(selection.at).to.equal(2);
    expect(selection.decision).to.deep.equal({
      policy: "cache_aware",
      result: "owner_match",
      engineLoad: undefined,
      ownership: "committed",
      owners: 1,
      matchedBlocks: 2,
      promptBlocks: 4,
    });
  });

  it("takes the owner of the longest match, and the least loaded of several", () => {
    const bench = new Bench({ workers: 4 });
    bench.own(text("aaaabbbb"), 0);
    bench.own(PROMPT, 1, 3);
    bench.load(1, 1);
    expect(bench.where({ prompt: PROMPT })).to.equal("w3 owner_match");
    bench.load(3, 2);
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 owner_match");
  });

  it("wants the match to exceed the threshold, not to reach it", () => {
    const at = new Bench({ selection: { cache_threshold: 0.5 }, rng: scripted(1, 0) });
    at.own(text("aaaabbbb"), 0);
    // 8 of 16 characters are exactly 0.5: the first drawn of two idle workers decides.
    expect(at.where({ prompt: PROMPT })).to.equal("w1 short_match");
    expect(at.where({ prompt: text("aaaabbbbccccddd") })).to.equal("w0 owner_match");
  });

  it("measures the match against the part of the prompt that is looked at", () => {
    const bench = new Bench({ selection: { max_prefix_blocks: 2, cache_threshold: 0.9 } });
    bench.own(text("aaaabbbb"), 1);
    expect(bench.where({ prompt: text(`aaaabbbb${"z".repeat(1000)}`) })).to.equal("w1 owner_match");
  });

  it("decides by load when there is no prompt, no full block, or nobody who knows it", () => {
    const bench = new Bench({ rng: scripted(1, 0, 1, 0, 1, 0) });
    expect(bench.where()).to.equal("w1 no_prompt");
    expect(bench.where({ prompt: text("aaa") })).to.equal("w1 short_prompt");
    expect(bench.where({ prompt: text("aaaa") })).to.equal("w1 no_owner");
  });

  it("falls back to load when the only owner cannot be chosen", () => {
    const bench = new Bench({ workers: 3 });
    bench.own(PROMPT, 0);
    bench.load(1, 3);
    expect(bench.where({ prompt: PROMPT, excludedWorkerUrls: [url(0)] })).to.equal(
      "w2 no_usable_owner",
    );
  });

  it("takes the longest match among the workers that can be asked", () => {
    const bench = new Bench({ workers: 3 });
    bench.own(PROMPT, 0);
    bench.own(text("aaaabbbbcccc"), 1);
    bench.own(text("aaaabbbb"), 2);
    bench.registry.recordHealth(url(0), false);
    const selection = bench.chosen({ prompt: PROMPT });
    expect(selection.at).to.equal(1);
    expect(selection.decision.matchedBlocks).to.equal(3);
  });

  it("C-1 keeps affinity while the owner is within 0.10 of the calmest, and without full telemetry", () => {
    const bench = new Bench({ selection: { engine_load: true } });
    bench.own(PROMPT, 0);
    const decide = (): string => {
      const selection = bench.chosen({ prompt: PROMPT });
      selection.booking();
      return `w${String(selection.at)} ${selection.decision.engineLoad ?? ""}`;
    };
    bench.report(0.5, 0.45);
    expect(decide()).to.equal("w0 all_candidates_allowed");
    bench.report(0.85, 0.5);
    expect(decide()).to.equal("w1 candidate_set_restricted");
    bench.passSeconds(30);
    expect(decide(), "30 s old").to.equal("w1 candidate_set_restricted");
    bench.passSeconds(1);
    expect(decide(), "31 s old").to.equal("w0 telemetry_fallback");
    bench.report(0.85, undefined);
    expect(decide(), "partial").to.equal("w0 telemetry_fallback");
  });

  it("C-2 gives two requests in a row to two owners of a text, and both remain owners", () => {
    for (const selection of [{}, { max_cached_owners_per_prefix: 2 }]) {
      const bench = new Bench({ selection });
      bench.own(PROMPT, 0, 1);
      const first = bench.chosen({ prompt: PROMPT });
      const second = bench.chosen({ prompt: PROMPT });
      expect([first.at, second.at].sort()).to.deep.equal([0, 1]);
      bench.succeed(first);
      bench.succeed(second);
      expect(bench.owners(PROMPT)).to.deep.equal([0, 1]);
    }
  });

  it("C-3 goes elsewhere when the owner is excluded, which makes a second owner; removal prunes one", () => {
    const bench = new Bench();
    bench.own(PROMPT, 0);
    const selection = bench.chosen({ prompt: PROMPT, excludedWorkerUrls: [url(0)] });
    expect(selection.at).to.equal(1);
    bench.succeed(selection);
    expect(bench.owners(PROMPT)).to.deep.equal([0, 1]);
    const { generation } = bench.worker(0).identity;
    bench.registry.remove(url(0));
    expect(bench.selector.committed.blocksOf(generation)).to.equal(0);
    // What was the second worker is the only one left.
    expect(bench.owners(PROMPT)).to.deep.equal([0]);
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 owner_match");
  });

  it("lets imbalance decide before ownership", () => {
    const bench = new Bench({ selection: { balance_abs_threshold: 5 } });
    bench.own(PROMPT, 0);
    bench.load(0, 5);
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 owner_match");
    bench.load(0, 1);
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 imbalanced_requests");
  });

  it("does not let a worker that cannot be chosen make the others imbalanced", () => {
    const bench = new Bench({ workers: 3, selection: { balance_abs_threshold: 5 } });
    bench.own(PROMPT, 0);
    bench.load(2, 100);
    const excludedWorkerUrls = [url(2)];
    expect(bench.where({ prompt: PROMPT, excludedWorkerUrls })).to.equal("w0 owner_match");
  });

  it("names the kind of imbalance, for requests without a prompt too", () => {
    const bench = new Bench({
      selection: { overload_token_usage_threshold: 0.95, balance_token_usage_threshold: 0.3 },
    });
    bench.load(0, 1);
    bench.report(0.97, 0.8);
    expect(bench.where()).to.equal("w1 imbalanced_kv_overload");
    bench.report(0.9, 0.15);
    expect(bench.where({ prompt: PROMPT })).to.equal("w1 imbalanced_kv_spread");
  });

  it("C-13 leaves an owner that has 4112 reserved tokens for the other worker", () => {
    // The difference that the row speaks of is one request without a limit of its own.
    const bench = new Bench({ selection: { balance_reserved_threshold: 4_096 } });
    const prompt = tokens(1, 16);
    bench.own(prompt, 0);
    const first = bench.chosen({ prompt });
    expect(first.at).to.equal(0);
    const { generation } = first.worker.identity;
    expect(bench.selector.bookings.reservedTokens(generation)).to.equal(16 + 4096);
    // 4112 - 0 exceeds the estimate of 4096, and 1.5 times nothing.
    expect(bench.where({ prompt })).to.equal("w1 imbalanced_reserved");
    first.booking();
    expect(bench.where({ prompt })).to.equal("w0 owner_match");
  });

  it("keeps to an owner that bears its load, whatever the others bear", () => {
    const bench = new Bench({ workers: 8, selection: { balance_abs_threshold: 5 } });
    bench.own(PROMPT, 3);
    bench.load(0, 50);
    const hot = bench.worker(1);
    bench.selector.bookings.reserve(hot, 1_000_000);
    expect(bench.where({ prompt: PROMPT })).to.equal("w3 owner_match");
    bench.load(3, 6);
    expect(bench.where({ prompt: PROMPT })).to.match(/imbalanced_requests$/);
  });

  it("keeps eight requests without a limit of their own with their owner, and moves the tenth", () => {
    const bench = new Bench({ workers: 4 });
    bench.own(PROMPT, 2);
    // Each reserves 4 + 4096: eight are 32,800, the first sum above 32,768.
    for (let request = 0; request < 8; request += 1) {
      const { at, decision } = bench.chosen({ prompt: PROMPT });
      expect([at, decision.result]).to.deep.equal([2, "owner_match"]);
    }
    expect(bench.where({ prompt: PROMPT })).to.match(/imbalanced_reserved$/);
  });

  it("C-15 does not let an excluded idle worker say what is calm", () => {
    const bench = new Bench({ workers: 3, selection: { engine_load: true } });
    bench.own(PROMPT, 2);
    bench.report(0.1, 0.75, 0.8);
    // Next to 0.75 the owner's 0.8 is fine; next to the excluded 0.1 it would be too much.
    expect(bench.where({ prompt: PROMPT, excludedWorkerUrls: [url(0)] })).to.equal(
      "w2 owner_match",
    );
    expect(bench.where({ prompt: PROMPT })).to.equal("w0 no_usable_owner");
  });
});

describe("cache-aware selection by the engines' events", () => {
  const events = (over = {}): Bench =>
    new Bench({ workers: 4, ownership: "events", selection: { block_size: 4, ...over } });

  it("C-10 follows a full match, the deeper match, and falls back by load without one", () => {
    const bench = events();
    bench.stored(2, tokens(1, 16));
    const full = bench.chosen({ prompt: tokens(1, 16) });
    expect(full.at).to.equal(2);
    expect(full.decision).to.include({ ownership: "events", matchedBlocks: 4, owners: 1 });
    full.booking();
    bench.stored(3, tokens(1, 8));
    expect(bench.where({ prompt: tokens(1, 16) })).to.equal("w2 owner_match");
    // Both hold the first two blocks; the one with fewer requests is chosen.
    bench.load(2, 1);
    expect(bench.where({ prompt: tokens(1, 8) })).to.equal("w3 owner_match");
    expect(bench.where({ prompt: tokens(51, 66) })).to.match(/no_owner$/);
    expect(bench.where({ prompt: tokens(1, 3) })).to.match(/short_prompt$/);
  });

  it("counts any full block that an engine publishes, however small a part of the prompt", () => {
    const bench = events({ cache_threshold: 0.9 });
    bench.stored(1, tokens(1, 4));
    expect(bench.where({ prompt: tokens(1, 64) })).to.equal("w1 owner_match");
  });

  it("C-11 asks the committed index while the events know nothing, and where they have no overlap", () => {
    const bench = events({ block_size: 16 });
    bench.own(tokens(1, 16), 1);
    expect(bench.where({ prompt: tokens(1, 16) })).to.equal("w1 owner_match");
    expect(bench.where({ prompt: tokens(1, 15) })).to.match(/short_prompt$/);
    bench.stored(2, tokens(101, 116));
    const selection = bench.chosen({ prompt: tokens(1, 16) });
    expect(selection.at).to.equal(1);
    expect(selection.decision.ownership).to.equal("committed");
  });

  it("C-12 uses the block size that the events teach", () => {
    const bench = events();
    bench.stored(1, tokens(1, 16), 8);
    const selection = bench.chosen({ prompt: tokens(1, 20) });
    expect(selection.at).to.equal(1);
    expect(selection.decision).to.include({ matchedBlocks: 2, promptBlocks: 2 });
  });

  it("commits under its own block size, whatever size the events teach", () => {
    const bench = events();
    bench.own(tokens(1, 12), 1);
    bench.stored(2, tokens(101, 108), 8);
    const selection = bench.chosen({ prompt: tokens(1, 12) });
    expect(selection.at).to.equal(1);
    expect(selection.decision).to.include({ ownership: "committed", matchedBlocks: 3 });
  });

  it("asks the events about the workers that are healthy", () => {
    const bench = events();
    bench.stored(0, tokens(1, 16));
    bench.stored(1, tokens(1, 12));
    bench.registry.recordHealth(url(0), false);
    const selection = bench.chosen({ prompt: tokens(1, 16) });
    expect(selection.at).to.equal(1);
    expect(selection.decision).to.include({ ownership: "events", matchedBlocks: 3 });
  });

  it("asks the committed index only about text, and where ownership is committed", () => {
    const bench = new Bench({ workers: 4, ownership: "committed" });
    bench.stored(2, tokens(1, 16));
    expect(bench.where({ prompt: tokens(1, 16) })).to.match(/no_owner$/);
    const published = events();
    published.own(PROMPT, 3);
    expect(published.where({ prompt: PROMPT })).to.equal("w3 owner_match");
  });
});
