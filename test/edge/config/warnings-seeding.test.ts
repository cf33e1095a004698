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
    // What an engine of unknown kind reports is found out by asking.
    expect(warningsOf(seeding({ workers: ["id: x", "id: y"] }))).to.deep.equal([]);
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
