// The section `selection`, how a model's workers are chosen and where engines publish, from the file to
// the core. A title that begins with a letter and a number is a row of the acceptance table.

import { readFileSync } from "node:fs";
import { expect } from "chai";
import { configOf, load, problemsOf, warningsOf, WORKER } from "./support.js";

const section = (fields: string): string => `${WORKER}selection: { ${fields} }\n`;

const POLICIES = "cache_aware, power_of_two, least_load, round_robin, consistent_hash";

describe("selection", () => {
  it("keeps what the file says, frozen", () => {
    const { selection } = configOf(
      section(
        "cache_threshold: 0.5, balance_abs_threshold: 32, balance_reserved_threshold: 9000, " +
          "balance_rel_threshold: 1.1, " +
          "balance_token_usage_threshold: 0.2, overload_token_usage_threshold: 0.95, " +
          "engine_load: true, fallback_output_token_estimate: 512, " +
          "max_cached_owners_per_prefix: 3, cache_owner_spill_cooldown_secs: 7, " +
          "max_tree_size: 1048576, eviction_interval_secs: 30, committed_ttl_s: 120, " +
          "block_chars: 64, block_size: 32, max_prefix_blocks: 512",
      ),
    );
    expect(Object.isFrozen(selection)).to.equal(true);
    expect(selection).to.deep.equal({
      cache_threshold: 0.5,
      balance_abs_threshold: 32,
      balance_reserved_threshold: 9_000,
      balance_rel_threshold: 1.1,
      balance_token_usage_threshold: 0.2,
      overload_token_usage_threshold: 0.95,
      engine_load: true,
      fallback_output_token_estimate: 512,
      max_cached_owners_per_prefix: 3,
      cache_owner_spill_cooldown_secs: 7,
      max_tree_size: 1_048_576,
      eviction_interval_secs: 30,
      committed_ttl_s: 120,
      block_chars: 64,
      block_size: 32,
      max_prefix_blocks: 512,
    });
  });

  it("bounds the characters of a prompt that are looked at, at 256 Ki", () => {
    expect(configOf(section("block_chars: 1024, max_prefix_blocks: 256"))).to.be.an("object");
    expect(problemsOf(section("block_chars: 1024, max_prefix_blocks: 257"))).to.deep.equal([
      "weir.yaml:3:33 selection.max_prefix_blocks: times selection.block_chars (1024) must be at " +
        "most 262144 characters, got 257",
    ]);
  });

  it("V-3 a cooldown without a number of owners is refused, and the problem is the cooldown's", () => {
    const refused = (column: number): string[] => [
      `weir.yaml:3:${String(column)} selection.cache_owner_spill_cooldown_secs: must be 0 while ` +
        "selection.max_cached_owners_per_prefix is 0, because nothing spreads then, got 5",
    ];
    expect(problemsOf(section("cache_owner_spill_cooldown_secs: 5"))).to.deep.equal(refused(14));
    expect(
      problemsOf(section("max_cached_owners_per_prefix: 0, cache_owner_spill_cooldown_secs: 5")),
    ).to.deep.equal(refused(47));
    for (const sound of [
      "max_cached_owners_per_prefix: 1, cache_owner_spill_cooldown_secs: 5",
      "max_cached_owners_per_prefix: 0, cache_owner_spill_cooldown_secs: 0",
      "max_cached_owners_per_prefix: 8, cache_owner_spill_cooldown_secs: 0",
    ]) {
      configOf(section(sound));
    }
  });

  it("a cooldown beside a refused number of owners says nothing twice", () => {
    expect(
      problemsOf(section("max_cached_owners_per_prefix: -1, cache_owner_spill_cooldown_secs: 5")),
    ).to.deep.equal([
      "weir.yaml:3:14 selection.max_cached_owners_per_prefix: must be a whole number from 0 to 1000, got -1",
    ]);
  });

  it("V-5 owners and cooldown are read from flags and from the environment; both are 0 otherwise", () => {
    const flags = [
      "--selection.max_cached_owners_per_prefix=8",
      "--selection.cache_owner_spill_cooldown_secs=5",
    ];
    const apart = flags.flatMap((flag) => flag.split("="));
    const env = {
      WEIR_SELECTION__MAX_CACHED_OWNERS_PER_PREFIX: "8",
      WEIR_SELECTION__CACHE_OWNER_SPILL_COOLDOWN_SECS: "5",
    };
    for (const outside of [{ flags }, { flags: apart }, { env }]) {
      const { selection } = configOf(WORKER, outside);
      expect(selection.max_cached_owners_per_prefix).to.equal(8);
      expect(selection.cache_owner_spill_cooldown_secs).to.equal(5);
    }
    const { selection } = configOf(WORKER);
    expect(selection.max_cached_owners_per_prefix).to.equal(0);
    expect(selection.cache_owner_spill_cooldown_secs).to.equal(0);
  });

  it("shows every broken value at once", () => {
    const text = `${WORKER}selection:
  cache_threshold: 1.5
  balance_rel_threshold: 0.5
  eviction_interval_secs: 0
  max_tree_size: 0
  block_size: 0
  fallback_output_token_estimate: 0
  balance_token_usage_threshold: 0
  overload_token_usage_threshold: -1
  cache_owner_spill_cooldown_secs: 5
`;
    const at = (line: number, key: string, sentence: string): string =>
      `weir.yaml:${String(line)}:3 selection.${key}: ${sentence}`;
    const usage = "must be a number above 0 and up to 1";
    expect(problemsOf(text)).to.deep.equal([
      at(4, "cache_threshold", "must be a number from 0 to 1, got 1.5"),
      at(5, "balance_rel_threshold", "must be a finite number of 1 or more, got 0.5"),
      at(6, "eviction_interval_secs", "must be a whole number from 1 to 3600, got 0"),
      at(7, "max_tree_size", "must be a whole number from 1 to 4294967296, got 0"),
      at(8, "block_size", "must be a whole number from 1 to 4096, got 0"),
      at(9, "fallback_output_token_estimate", "must be a whole number from 1 to 4294967295, got 0"),
      at(10, "balance_token_usage_threshold", `${usage}, got 0`),
      at(11, "overload_token_usage_threshold", `${usage}, got -1`),
      at(
        12,
        "cache_owner_spill_cooldown_secs",
        "must be 0 while selection.max_cached_owners_per_prefix is 0, because nothing spreads then, got 5",
      ),
    ]);
  });

  it("names the nearest known key of its own", () => {
    expect(problemsOf(section("cache_treshold: 1"))).to.deep.equal([
      "weir.yaml:3:14 selection.cache_treshold: is not a known key; did you mean cache_threshold?",
    ]);
  });
});

describe("models.*.policy", () => {
  const model = (fields: string): string => `${WORKER}models: { m: { ${fields} } }\n`;

  it("takes each policy, from all three places, and power_of_two when none is named", () => {
    for (const policy of POLICIES.split(", ")) {
      const policyOf = (text: string, outside = {}): unknown =>
        [...configOf(text, outside).models.values()][0]?.policy;
      expect(policyOf(model(`policy: ${policy}`))).to.equal(policy);
      expect(policyOf(WORKER, { env: { WEIR_MODELS__M__POLICY: policy } })).to.equal(policy);
      expect(policyOf(WORKER, { flags: ["--models.m.policy", policy] })).to.equal(policy);
    }
    expect([...configOf(model("")).models]).to.deep.equal([
      ["m", { aliases: [], policy: "power_of_two", ownership: "committed" }],
    ]);
  });

  it("refuses any other word and names the policies there are", () => {
    for (const [written, shown] of [
      ["random", '"random"'],
      ["least_loaded", '"least_loaded"'],
      ["Cache_Aware", '"Cache_Aware"'],
      ["null", "nothing"],
      ["5", "5"],
    ] as const) {
      expect(problemsOf(model(`policy: ${written}`))).to.deep.equal([
        `weir.yaml:3:16 models.m.policy: must be one of ${POLICIES}, got ${shown}`,
      ]);
    }
  });

  it("is assigned once: a model that stands twice is refused, in whatever spelling", () => {
    const twice = "this key stands twice in one mapping; keep one of them";
    for (const second of ["m", '"m"']) {
      expect(
        problemsOf(`${WORKER}models:\n  m: { policy: cache_aware }\n  ${second}: {}\n`),
      ).to.deep.equal([`weir.yaml:5:3 ${twice}`]);
    }
    expect(
      problemsOf(`${WORKER}models:\n  m: { policy: cache_aware, policy: cache_aware }\n`),
    ).to.deep.equal([`weir.yaml:4:29 ${twice}`]);
  });

  it("is assigned once: an alias with an assignment of its own is refused", () => {
    expect(
      problemsOf(
        `${WORKER}models:\n  m: { aliases: [n], policy: cache_aware }\n  n: { policy: least_load }\n`,
      ),
    ).to.deep.equal([
      'weir.yaml:4:18 models.m.aliases[0]: must not be the canonical name of a model, got "n"',
    ]);
  });

  it("is assigned once: a flag that stands twice is refused", () => {
    const flags = ["--models.m.policy=cache_aware", "--models.m.policy=least_load"];
    expect(problemsOf(WORKER, { flags })).to.deep.equal([
      "flag --models.m.policy is given twice; keep one of them",
    ]);
  });
});

/** Workers from line 2 on, and below them the models. */
const fleet = (workers: readonly string[], models = ""): string =>
  `workers:\n${workers
    .map(
      (fields, i) =>
        `  - { url: "http://h:${String(i + 1)}", cluster: c${String(i)}, ${fields} }\n`,
    )
    .join("")}${models}`;

const FEED = 'kv_events: { endpoint: "tcp://h:5557" }';

describe("models.*.ownership", () => {
  const EVENTS = "models: { m: { policy: cache_aware, ownership: events } }\n";
  const needs =
    'events needs kv_events at a worker whose first model is "m", the one its events tell of';

  it("takes committed, and events where a worker of the model publishes", () => {
    const ownership = (text: string): unknown => [...configOf(text).models.values()][0]?.ownership;
    expect(ownership(`${WORKER}models: { m: { ownership: committed } }\n`)).to.equal("committed");
    expect(ownership(fleet([`models: [m], ${FEED}`], EVENTS))).to.equal("events");
    expect(ownership(fleet(["models: [m]", `models: [m, n], ${FEED}`], EVENTS))).to.equal("events");
  });

  it("refuses any other word", () => {
    expect(problemsOf(`${WORKER}models: { m: { ownership: trees } }\n`)).to.deep.equal([
      'weir.yaml:3:16 models.m.ownership: must be one of committed, events, got "trees"',
    ]);
  });

  it("events without a worker that publishes for the model names both keys and the workers", () => {
    expect(
      problemsOf(fleet(["models: [m]", "models: [n]", "models: [n, m]"], EVENTS)),
    ).to.deep.equal([
      `weir.yaml:5:37 models.m.ownership: ${needs}; none of those that serve it (workers[0], workers[2]) is one`,
    ]);
    expect(problemsOf(fleet([`models: [n], ${FEED}`], EVENTS))).to.deep.equal([
      `weir.yaml:3:37 models.m.ownership: ${needs}; no worker serves the model`,
    ]);
    const ten = Array.from({ length: 10 }, () => "models: [m]");
    expect(problemsOf(fleet(ten, EVENTS))[0]).to.contain("workers[7] and 2 more) is one");
  });

  it("events of a worker tell of its first model, so those of another one do not do", () => {
    expect(problemsOf(fleet([`models: [n, m], ${FEED}`], EVENTS))).to.deep.equal([
      `weir.yaml:3:37 models.m.ownership: ${needs}; none of those that serve it (workers[0]) is one`,
    ]);
  });

  it("events beside a refused worker, feed or list of models says nothing twice", () => {
    for (const fields of [
      "models: [m], kv_events: {}",
      "models: [m], kv_events: 5",
      `models: [], ${FEED}`,
    ]) {
      const problems = problemsOf(fleet([fields], EVENTS));
      expect(problems, fields).to.have.length(1);
      expect(problems[0]).to.match(/^weir\.yaml:2:/);
    }
    expect(problemsOf(`workers:\n  - 5\n${EVENTS}`)).to.deep.equal([
      "weir.yaml:2:5 workers[0]: must be a mapping of keys, got 5",
    ]);
    const alias = "models: { m: { aliases: [n], ownership: events } }\n";
    expect(problemsOf(fleet([`models: [n], ${FEED}`], alias))).to.deep.equal([
      'weir.yaml:2:48 workers[0].models[0]: must be a canonical name, but "n" is an alias of m',
    ]);
  });
});

describe("workers[].kv_events", () => {
  const feed = (fields: string, engine = ""): string =>
    fleet([`models: [m], ${engine}kv_events: { ${fields} }`]);

  it("is absent, or filled in and brought into one spelling", () => {
    expect(configOf(WORKER).workers[0]?.kv_events).to.equal(undefined);
    expect(configOf(feed('endpoint: "TCP://Engine-1:05557"')).workers[0]?.kv_events).to.deep.equal({
      endpoint: "tcp://engine-1:5557",
      replay_endpoint: undefined,
      topic: "",
      ranks: 1,
    });
    const whole =
      'endpoint: "tcp://[0::1]:5557", replay_endpoint: "tcp://10.0.0.5:6557", topic: kv@a, ranks: 4';
    expect(configOf(feed(whole)).workers[0]?.kv_events).to.deep.equal({
      endpoint: "tcp://[::1]:5557",
      replay_endpoint: "tcp://10.0.0.5:6557",
      topic: "kv@a",
      ranks: 4,
    });
  });

  it("endpoints are tcp, a host, a port and nothing else", () => {
    const allowed = "tcp://host:port that Weir can connect to (IPv6 in brackets, port 1 to 65535)";
    for (const bad of ["tcp://*:5557", "tcp://h", "tcp://h:0", "tcp://h:65536", "h:5557", ""]) {
      expect(problemsOf(feed(`endpoint: "${bad}"`))).to.deep.equal([
        `weir.yaml:2:65 workers[0].kv_events.endpoint: must be ${allowed}, got "${bad}"`,
      ]);
    }
    for (const bad of ["ipc:///run/kv", "http://h:5557", "tcp://h:5557/", "tcp://::1:5557"]) {
      const fields = `endpoint: "tcp://h:5557", replay_endpoint: "${bad}"`;
      expect(problemsOf(feed(fields))).to.deep.equal([
        `weir.yaml:2:91 workers[0].kv_events.replay_endpoint: must be ${allowed}, got "${bad}"`,
      ]);
    }
    expect(problemsOf(feed("topic: a"))).to.deep.equal([
      `weir.yaml:2:52 workers[0].kv_events.endpoint: is missing; it must be ${allowed}`,
    ]);
  });

  it("takes topic and ranks at their limits and refuses what is past them", () => {
    const ENDPOINT = 'endpoint: "tcp://h:5557", ';
    for (const topic of ["", "kv@10.0.0.5:8000@meta/llama", "x".repeat(256)]) {
      const { workers } = configOf(feed(`${ENDPOINT}topic: "${topic}"`));
      expect(workers[0]?.kv_events?.topic).to.equal(topic);
    }
    for (const topic of ['"a\\u0007"', "x".repeat(257), "5", "null"]) {
      expect(problemsOf(feed(`${ENDPOINT}topic: ${topic}`))[0]).to.contain(
        "workers[0].kv_events.topic: must be at most 256 characters without controls, got ",
      );
    }
    for (const ranks of [1, 512]) {
      const { workers } = configOf(feed(`${ENDPOINT}ranks: ${String(ranks)}`));
      expect(workers[0]?.kv_events?.ranks).to.equal(ranks);
    }
    for (const ranks of ["0", "513", "1.5", '"2"']) {
      expect(problemsOf(feed(`${ENDPOINT}ranks: ${ranks}`))[0]).to.contain(
        "workers[0].kv_events.ranks: must be a whole number from 1 to 512, got ",
      );
    }
  });

  it("leaves a port for each rank, of both endpoints", () => {
    configOf(feed('endpoint: "tcp://h:65534", ranks: 2'));
    configOf(feed('endpoint: "tcp://h:65535"'));
    expect(problemsOf(feed('endpoint: "tcp://h:65535", ranks: 2'))).to.deep.equal([
      "weir.yaml:2:65 workers[0].kv_events.endpoint: must have a port of at most 65534, because each " +
        'of 2 ranks has one of its own, got "tcp://h:65535"',
    ]);
    const both = 'endpoint: "tcp://h:1", replay_endpoint: "tcp://h:65533", ranks: 4';
    expect(problemsOf(feed(both))).to.deep.equal([
      "weir.yaml:2:88 workers[0].kv_events.replay_endpoint: must have a port of at most 65532, because " +
        'each of 4 ranks has one of its own, got "tcp://h:65533"',
    ]);
    expect(problemsOf(feed('endpoint: "tcp://h:65535", ranks: 0'))).to.have.length(1);
  });

  it("has ports that belong to no other feed, those of its own replay included", () => {
    configOf(feed('endpoint: "tcp://h:5557", replay_endpoint: "tcp://h:5559", ranks: 2'));
    expect(
      problemsOf(feed('endpoint: "tcp://h:5557", replay_endpoint: "tcp://H:5558", ranks: 2')),
    ).to.deep.equal([
      "weir.yaml:2:91 workers[0].kv_events.replay_endpoint: must be unique, but port 5558 of h is also " +
        "one of workers[0].kv_events.endpoint",
    ]);
    const two = (first: string, second: string): string =>
      fleet([`models: [m], kv_events: { ${first} }`, `models: [m], kv_events: { ${second} }`]);
    configOf(two('endpoint: "tcp://h:5557", ranks: 2', 'endpoint: "tcp://h:5559"'));
    configOf(two('endpoint: "tcp://h:5557"', 'endpoint: "tcp://other:5557"'));
    expect(
      problemsOf(two('endpoint: "tcp://h:5557", ranks: 3', 'endpoint: "tcp://h:5559"')),
    ).to.deep.equal([
      "weir.yaml:3:65 workers[1].kv_events.endpoint: must be unique, but port 5559 of h is also one of " +
        "workers[0].kv_events.endpoint",
    ]);
  });

  it("shares a port with another feed only when topics keep them apart", () => {
    const two = (a: string, b: string, more = ""): string =>
      fleet([
        `models: [m], kv_events: { endpoint: "tcp://relay:5557", topic: "${a}"${more} }`,
        `models: [m], kv_events: { endpoint: "tcp://relay:5557", topic: "${b}"${more} }`,
      ]);
    configOf(two("kv@a@m", "kv@b@m"));
    for (const [a, b] of [
      ["kv@a", "kv@a"],
      ["kv@a", "kv@a1"],
      ["", "kv@a"],
    ] as const) {
      expect(problemsOf(two(a, b)), `${a} ${b}`).to.have.length(1);
    }
    // A replay has no topics.
    const replay = ', replay_endpoint: "tcp://relay:5600"';
    expect(problemsOf(two("kv@a@m", "kv@b@m", replay))).to.deep.equal([
      "weir.yaml:3:112 workers[1].kv_events.replay_endpoint: must be unique, but port 5600 of relay is " +
        "also one of workers[0].kv_events.replay_endpoint",
    ]);
  });

  it("belongs to vllm, to sglang or to an engine of unknown kind", () => {
    for (const engine of ["", "engine: vllm, ", "engine: sglang, "]) {
      expect(load(feed('endpoint: "tcp://h:5557"', engine)).ok).to.equal(true);
    }
    for (const engine of ["trtllm", "triton"]) {
      expect(problemsOf(feed('endpoint: "tcp://h:5557"', `engine: ${engine}, `))).to.deep.equal([
        `weir.yaml:2:68 workers[0].kv_events: must be absent while engine is ${engine}; ` +
          "only events of vllm and sglang can be read",
      ]);
    }
    expect(problemsOf(feed('endpoint: "tcp://h:5557"', "engine: llama, "))).to.have.length(1);
  });
});

describe("the example of selection in docs/configuration.md", () => {
  it("is a sound configuration whose workers publish for a model that listens, without a warning", () => {
    const page = readFileSync(new URL("../../../docs/configuration.md", import.meta.url), "utf8");
    const text = page.slice(page.indexOf("\n## selection\n"));
    const example = /```yaml\n([\s\S]*?)```/.exec(text)?.[1] ?? "";
    const { models, selection, workers } = configOf(example);
    expect([...models.values()].map(({ ownership }) => ownership)).to.deep.equal(["events"]);
    expect(workers.map(({ kv_events }) => kv_events?.endpoint)).to.deep.equal([
      "tcp://10.0.0.5:5557",
      "tcp://10.0.0.6:5557",
    ]);
    expect(selection.max_cached_owners_per_prefix).to.equal(4);
    expect(warningsOf(example)).to.deep.equal([]);
  });
});
