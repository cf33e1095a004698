import { expect } from "chai";
import { warningsOf, WORKER } from "./support.js";

interface Sketch {
  readonly workers: readonly string[];
  readonly models?: string;
  readonly scheduler?: string;
  readonly selection?: string;
  readonly partitions?: string;
}

const SPREADS = "max_cached_owners_per_prefix: 2, cache_owner_spill_cooldown_secs: 5";

const seeding = ({ workers, models, scheduler, selection, partitions }: Sketch): string => `workers:
${workers
  .map(
    (fields, i) =>
      `  - { url: "http://h:${String(i + 1)}", cluster: c${String(i)}, models: [m], ${fields} }\n`,
  )
  .join("")}models: { ${models ?? "m: { policy: cache_aware }"} }
scheduler: { ${scheduler ?? ""} }
adaptive_admission: { mode: enforce }
selection: { ${selection ?? SPREADS} }
seeding: { partitions: [${partitions ?? "global"}], seed_cap: 1, proof_source: scheduler }
`;

const SGLANG = "engine: sglang";
const LABELLED = "engine: vllm, labels: { max_running_requests: 8 }";

describe("warnings about seeding", () => {
  it("are silent about a fleet that can seed", () => {
    const triton = "engine: triton";
    expect(warningsOf(seeding({ workers: [SGLANG, LABELLED, triton] }))).to.deep.equal([]);
    // What an engine of unknown kind reports does not matter beside the label.
    const labelled = "labels: { max_running_requests: 8 }";
    expect(warningsOf(seeding({ workers: [labelled, labelled, SGLANG] }))).to.deep.equal([]);
  });

  it("name each key that nothing reads while the cap is 0", () => {
    for (const [key, value] of [
      ["partitions", "[global]"],
      ["proof_source", "scheduler"],
      ["seed_response_max_bytes", "2048"],
    ] as const) {
      expect(warningsOf(`${WORKER}seeding: { ${key}: ${value} }\n`)).to.deep.equal([
        `seeding.${key}: without effect while seeding.seed_cap is 0`,
      ]);
    }
    const all = "partitions: [a], proof_source: scheduler, seed_response_max_bytes: 2048";
    expect(warningsOf(`${WORKER}seeding: { ${all} }\n`)).to.deep.equal([
      "seeding.partitions, seeding.proof_source, seeding.seed_response_max_bytes: without effect while " +
        "seeding.seed_cap is 0",
    ]);
    const same = "partitions: [], proof_source: credits, seed_response_max_bytes: 4194304";
    expect(warningsOf(`${WORKER}seeding: { ${same} }\n`)).to.deep.equal([]);
  });

  it("name workers whose engines never say how many requests they run at once", () => {
    const never =
      "so it is not known when they are full, and neither they nor what they hold is ever seeded";
    const workers = ["engine: vllm", LABELLED, "engine: trtllm", SGLANG, "engine: vllm"];
    expect(warningsOf(seeding({ workers }))).to.deep.equal([
      "labels.max_running_requests: missing at workers[0], workers[2], workers[4], whose engines report " +
        `no ceiling of running requests, ${never}`,
    ]);
    const many = Array.from({ length: 7 }, () => "engine: vllm");
    expect(warningsOf(seeding({ workers: many }))[0]).to.contain("workers[4] and 2 more, whose");
  });

  it("name workers of such engines with several ranks, for which the label does not stand in", () => {
    const ranks = (engine: string, count: number, port: number): string =>
      `engine: ${engine}, labels: { max_running_requests: 8 }, ` +
      `kv_events: { endpoint: "tcp://h:${String(port)}", ranks: ${String(count)} }`;
    const bare = ranks("vllm", 2, 5000).replace("labels: { max_running_requests: 8 }, ", "");
    const workers = [bare, ranks("vllm", 1, 5010), ranks("sglang", 2, 5020)];
    const models = "m: { policy: cache_aware, ownership: events }";
    expect(warningsOf(seeding({ workers, models }))).to.deep.equal([
      "kv_events.ranks: more than one at workers[0], whose engines report no ceiling for each rank, so it " +
        "is not known when they are full, and neither they nor what they hold is ever seeded",
    ]);
  });

  it("name workers whose engines may turn out to be such, and say that it depends", () => {
    const workers = [
      "id: a",
      SGLANG,
      `id: b, kv_events: { endpoint: "tcp://h:5000", ranks: 2 }, labels: { max_running_requests: 8 }`,
    ];
    const models = "m: { policy: cache_aware, ownership: events }";
    const warnings = warningsOf(seeding({ workers, models }));
    expect(warnings.filter((line) => line.includes("without engine"))).to.deep.equal([
      "labels.max_running_requests: missing at workers[0], without engine; if that is vllm or trtllm, which " +
        "report no ceiling of running requests, neither they nor what they hold is ever seeded",
      "kv_events.ranks: more than one at workers[2], without engine; if that is vllm or trtllm, which report " +
        "no ceiling for each rank, neither they nor what they hold is ever seeded",
    ]);
  });

  describe("of slots", () => {
    const about = (slots: number, more = "", waiting = 2): readonly string[] =>
      warningsOf(
        seeding({
          workers: [64, 64, 8].map(
            (ceiling) => `engine: vllm, labels: { max_running_requests: ${String(ceiling)} }`,
          ),
          scheduler: `max_concurrent_requests: ${String(slots)}${more}`,
        }).replace(
          "mode: enforce",
          `mode: enforce, feedback_max_waiting_requests_per_healthy_replica: ${String(waiting)}`,
        ),
      ).filter((line) => line.startsWith("seeding."));
    const few = (reachable: number, slots: number): string =>
      `seeding.partitions: class default reaches ${String(reachable)} of the ${String(slots)} slots of the ` +
      'partition "global", but workers[0] runs 64 and 6 may wait (2 for each of 3 workers) before ' +
      "engine_waiting refuses anybody, so with fewer than 71 slots nothing that it holds alone is ever " +
      "seeded for that reason";

    it("say when class default gets no more than one worker runs and may keep waiting", () => {
      // 64 + 2 x 3 = 70 are taken without pressure.
      expect(about(70, ", reserved_share_max: 0")).to.deep.equal([few(70, 70)]);
      expect(about(71, ", reserved_share_max: 0")).to.deep.equal([]);
    });

    it("count what the shipped classes keep back", () => {
      // Half of the slots is kept for interactive and system: 128 + 32 are wanted.
      expect(about(136)).to.deep.equal([few(68, 136)]);
      // The slots are at most what the labels add up to, 136.
      expect(about(10_000)).to.deep.equal([few(68, 136)]);
      expect(about(136, ", reserved_share_max: 0.4")).to.deep.equal([]);
    });

    it("count how many may wait", () => {
      expect(about(70, ", reserved_share_max: 0", 1)).to.deep.equal([]);
      expect(about(65, ", reserved_share_max: 0", 0)).to.deep.equal([]);
      expect(about(64, ", reserved_share_max: 0", 0)).to.have.length(1);
    });

    it("speak of each partition that seeds, with its own workers", () => {
      const scheduler =
        "reserved_share_max: 0, admission_partitions: { p: { max_concurrent_requests: 20, queue_size: 1 }, " +
        "q: { max_concurrent_requests: 20, queue_size: 1 } }, default_admission_partition: q";
      const label = (ceiling: number, partition: string): string =>
        `engine: vllm, labels: { max_running_requests: ${String(ceiling)}, admission_partition: ${partition} }`;
      const workers = [label(10, "p"), label(10, "p"), label(16, "q"), label(16, "q")];
      const slots = (partitions: string): readonly string[] =>
        warningsOf(seeding({ workers, scheduler, partitions })).filter((line) =>
          line.includes("class default"),
        );
      expect(slots("p")).to.deep.equal([]);
      expect(slots("p, q")).to.have.length(1);
      expect(slots("p, q")[0]).to.contain(
        'reaches 20 of the 20 slots of the partition "q", but workers[2] runs 16 and 4 may wait',
      );
    });
  });

  it("say when nobody can ever be an owner", () => {
    const workers = [SGLANG, SGLANG];
    const spreads = (part: number): string => `${SPREADS}, cache_threshold: ${String(part)}`;
    expect(warningsOf(seeding({ workers, selection: spreads(1) }))).to.deep.equal([
      "selection.cache_threshold: 1 must be exceeded, and nobody holds more of a prompt than all of it, so " +
        "with models.m.ownership committed no worker is ever an owner and nothing seeds",
    ]);
    expect(warningsOf(seeding({ workers, selection: spreads(0.999) }))).to.deep.equal([]);
    // What events tell is not compared with it.
    const fed = [1, 2].map(
      (port) => `${SGLANG}, kv_events: { endpoint: "tcp://h:500${String(port)}" }`,
    );
    const models = "m: { policy: cache_aware, ownership: events }";
    expect(warningsOf(seeding({ workers: fed, models, selection: spreads(1) }))).to.deep.equal([]);
  });

  it("say when a failed seed keeps its prompt from new owners for more than a minute", () => {
    const about = (cooldown: number): readonly string[] =>
      warningsOf(
        seeding({
          workers: [SGLANG, SGLANG],
          selection: `max_cached_owners_per_prefix: 2, cache_owner_spill_cooldown_secs: ${String(cooldown)}`,
        }),
      );
    expect(about(60)).to.deep.equal([]);
    expect(about(61)).to.deep.equal([
      "selection.cache_owner_spill_cooldown_secs: 61 while seeding.seed_cap is 1, so one seed that fails " +
        "keeps its prompt from new owners for 61 s; above 60 that is long for a prompt whose owner drowns",
    ]);
  });

  it("say when owners are forgotten at once", () => {
    const about = (more: string): readonly string[] =>
      warningsOf(seeding({ workers: [SGLANG, SGLANG], selection: `${SPREADS}, ${more}` }));
    expect(about("max_tree_size: 65536")).to.deep.equal([]);
    expect(about("max_tree_size: 65535")).to.deep.equal([
      "selection.max_tree_size: 65535 bytes for the prefixes of one worker, while one prompt takes up to " +
        "18432 (selection.max_prefix_blocks 256, 72 bytes each), so owners are forgotten at once and little " +
        "or nothing seeds; below 65536 it is too small",
    ]);
    // 1024 blocks of 72 bytes are one prompt of 73728.
    expect(about("max_prefix_blocks: 1024, max_tree_size: 73728")).to.deep.equal([]);
    expect(about("max_prefix_blocks: 1024, max_tree_size: 73727")).to.have.length(1);
  });

  it("say where there is nobody to spread to", () => {
    const scheduler =
      "admission_partitions: { p: { max_concurrent_requests: 200, queue_size: 1 }, " +
      "q: { max_concurrent_requests: 200, queue_size: 1 }, r: { max_concurrent_requests: 200, queue_size: 1 } }, " +
      "default_admission_partition: q";
    const workers = [
      `${SGLANG}, labels: { admission_partition: p }`,
      `${SGLANG}, labels: { admission_partition: q }`,
      `${SGLANG}, labels: { admission_partition: q }`,
    ];
    const warnings = warningsOf(seeding({ workers, scheduler, partitions: "p, q, r" }));
    expect(warnings.filter((line) => line.startsWith("seeding."))).to.deep.equal([
      'seeding.partitions: no worker is in "r", so nothing seeds there',
      'seeding.partitions: workers[0] is the only worker of model m in the partition "p", so there is ' +
        "nobody else to seed",
    ]);
  });

  it("say where no owner can be proven", () => {
    const scheduler =
      "admission_partitions: { p: { max_concurrent_requests: 200, queue_size: 1 }, " +
      "q: { max_concurrent_requests: 200, queue_size: 1 } }, default_admission_partition: q";
    const feed = 'kv_events: { endpoint: "tcp://h:5000" }';
    const workers = [
      `${SGLANG}, labels: { admission_partition: p }`,
      `${SGLANG}, labels: { admission_partition: p }`,
      `${SGLANG}, ${feed}`,
      SGLANG,
    ];
    const models = "m: { policy: cache_aware, ownership: events }";
    const warnings = warningsOf(seeding({ workers, models, scheduler, partitions: "p, q" }));
    expect(warnings.filter((line) => line.includes("proven"))).to.deep.equal([
      'models.m.ownership: events, but no worker of model m in the partition "p" has kv_events that tell ' +
        "of it, so no owner can be proven and nothing seeds there",
    ]);
  });

  it("say when no prefix may get a new owner", () => {
    const only =
      "so no prefix gets a new owner by a seed; refused requests only go to owners that have room after all";
    const about = (selection: string): readonly string[] =>
      warningsOf(seeding({ workers: [SGLANG, SGLANG], selection })).filter((line) =>
        line.includes("seeding.seed_cap"),
      );
    const owners = (count: number): string[] => [
      `selection.max_cached_owners_per_prefix: ${String(count)} while seeding.seed_cap is 1, ${only}`,
    ];
    expect(about("")).to.deep.equal(owners(0));
    expect(
      about("max_cached_owners_per_prefix: 1, cache_owner_spill_cooldown_secs: 5"),
    ).to.deep.equal(owners(1));
    expect(about("max_cached_owners_per_prefix: 2")).to.deep.equal([
      `selection.cache_owner_spill_cooldown_secs: 0 while seeding.seed_cap is 1, ${only}`,
    ]);
    expect(about(SPREADS)).to.deep.equal([]);
  });
});
