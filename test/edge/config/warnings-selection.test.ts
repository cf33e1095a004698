import { expect } from "chai";
import { warningsOf, WORKER } from "./support.js";

const CACHE_AWARE = "models: { m: { policy: cache_aware } }\n";

const fleet = (workers: readonly string[], model: string, more = ""): string =>
  `workers:\n${workers
    .map(
      (fields, i) =>
        `  - { url: "http://h:${String(i + 1)}", cluster: c${String(i)}, ${fields} }\n`,
    )
    .join("")}models: { m: { ${model} } }\n${more}`;

const feed = (port: number): string => `kv_events: { endpoint: "tcp://h:${String(port)}" }`;
const EVENTS = "policy: cache_aware, ownership: events";

describe("warnings about the choice of workers", () => {
  it("name each knob that nothing reads while no model is cache_aware", () => {
    const knobs: readonly (readonly [string, string])[] = [
      ["cache_threshold", "0.5"],
      ["balance_abs_threshold", "32"],
      ["balance_reserved_threshold", "4096"],
      ["balance_rel_threshold", "1.1"],
      ["balance_token_usage_threshold", "0.5"],
      ["overload_token_usage_threshold", "0.9"],
      ["engine_load", "true"],
      ["max_cached_owners_per_prefix", "8"],
      ["max_tree_size", "1048576"],
      ["eviction_interval_secs", "30"],
      ["committed_ttl_s", "60"],
      ["block_chars", "128"],
      ["block_size", "32"],
      ["max_prefix_blocks", "64"],
    ];
    for (const [key, value] of knobs) {
      for (const models of ["", "models: { m: { policy: least_load } }\n"]) {
        expect(warningsOf(`${WORKER}${models}selection: { ${key}: ${value} }\n`)).to.deep.equal([
          `selection.${key}: without effect while no model has the policy cache_aware`,
        ]);
      }
      if (key === "max_cached_owners_per_prefix") continue;
      const read = `${WORKER}${CACHE_AWARE}selection: { ${key}: ${value} }\n`;
      expect(warningsOf(read), key).to.deep.equal([]);
    }
    const two = "selection: { block_chars: 1, engine_load: true }\n";
    expect(warningsOf(`${WORKER}${two}`)).to.deep.equal([
      "selection.engine_load, selection.block_chars: without effect while no model has the policy " +
        "cache_aware",
    ]);
  });

  it("are silent about the estimate, which every policy reads, and about what applies anyway", () => {
    const same = "cache_threshold: 0.3, block_size: 16, fallback_output_token_estimate: 100";
    expect(warningsOf(`${WORKER}selection: { ${same} }\n`)).to.deep.equal([]);
  });

  it("are silent about engine load and usage thresholds while admission does not follow the engines", () => {
    const knobs =
      "engine_load: true, balance_token_usage_threshold: 0.3, overload_token_usage_threshold: 0.9";
    const text = `${WORKER}${CACHE_AWARE}adaptive_admission: { mode: off }\nselection: { ${knobs} }\n`;
    expect(warningsOf(text)).to.deep.equal([]);
  });

  it("say that prefixes spread unthrottled with a number of owners and no cooldown", () => {
    const text = (fields: string): string => `${WORKER}${CACHE_AWARE}selection: { ${fields} }\n`;
    expect(warningsOf(text("max_cached_owners_per_prefix: 8"))).to.deep.equal([
      "selection.max_cached_owners_per_prefix: 8 while selection.cache_owner_spill_cooldown_secs is 0, " +
        "so a burst can spread one prefix over that many workers at once",
    ]);
    const slow = "max_cached_owners_per_prefix: 8, cache_owner_spill_cooldown_secs: 5";
    expect(warningsOf(text(slow))).to.deep.equal([]);
  });

  it("say that consistent_hash without trust in the key has nothing to hash", () => {
    const text = (trust: string): string =>
      `${WORKER}models: { m: { policy: consistent_hash } }\ntrust: { ${trust} }\n`;
    expect(warningsOf(text(""))).to.deep.equal([
      "models.m.policy: consistent_hash while trust.routing_key is false, so no request has a key and " +
        "workers are chosen as by power_of_two",
    ]);
    expect(warningsOf(text("routing_key: true, peers: [10.0.0.1]"))).to.deep.equal([]);
  });

  it("say that every client may send the routing key while no peer is named", () => {
    expect(warningsOf(`${WORKER}trust: { routing_key: true }\n`)).to.deep.equal([
      "trust.routing_key: on while trust.peers is empty, so every client that reaches Envoy may send " +
        "these headers",
    ]);
  });

  it("say that ownership by events needs a policy that reads ownership", () => {
    for (const policy of ["power_of_two", "least_load", "round_robin"]) {
      const text = fleet([`models: [m], ${feed(5557)}`], `policy: ${policy}, ownership: events`);
      expect(warningsOf(text)).to.deep.equal([
        `models.m.ownership: events has no effect while models.m.policy is ${policy}; ` +
          "only cache_aware asks who holds a prefix",
      ]);
    }
    expect(warningsOf(fleet([`models: [m], ${feed(5557)}`], EVENTS))).to.deep.equal([]);
  });

  it("name the workers of such a model whose caches no event tells of", () => {
    const text = fleet([`models: [m], ${feed(5557)}`, "models: [m]", "models: [n]"], EVENTS);
    expect(warningsOf(text)).to.deep.equal([
      "models.m.ownership: events, but none tell of workers[1], so what is cached there counts only " +
        "where no other worker's events match",
    ]);
    const many = Array.from({ length: 7 }, () => "models: [m]");
    expect(warningsOf(fleet([`models: [m], ${feed(5557)}`, ...many], EVENTS))[0]).to.contain(
      "tell of workers[1], workers[2], workers[3], workers[4], workers[5] and 2 more, so",
    );
  });

  it("say that nobody reads the events of a worker whose first model goes by answers", () => {
    const unread = (index: number, model: string): string =>
      `workers[${String(index)}].kv_events: nobody reads them while models.${model}.ownership is ` +
      "committed; they tell of the worker's first model";
    expect(warningsOf(fleet([`models: [m], ${feed(5557)}`], ""))).to.deep.equal([unread(0, "m")]);
    const two = [`models: [m, n], ${feed(5557)}`, `models: [n, m], ${feed(5558)}`];
    expect(warningsOf(fleet(two, EVENTS))).to.deep.equal([
      "models.m.ownership: events, but none tell of workers[1], so what is cached there counts only " +
        "where no other worker's events match",
      unread(1, "n"),
    ]);
  });
});
