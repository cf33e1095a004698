import { expect } from "chai";
import { configOf, warningsOf, WORKER } from "./support.js";

const worker = (models: string, more = ""): string =>
  `workers: [{ url: "http://h:1", cluster: a, models: [${models}]${more} }]\n`;
const part = (slots: number): string =>
  `{ max_concurrent_requests: ${String(slots)}, queue_size: 0 }`;

describe("warnings about slots", () => {
  // At 2 slots: interactive wants ceil(0.25 x 2) = 1, system ceil(1 x 2 / 10) = 1, nothing is left.
  // At 8: interactive 2, system 1, default 1, and 4 are free.
  const small = (
    share: string,
  ): string => `${worker("kimi, m", ", labels: { admission_partition: default }")}scheduler:
  max_concurrent_requests: 10
  reserved_share_max: ${share}
  classes:
    interactive: { reserved_floor: 0, reserved_per_slot: 0.25, queue_size: 1, queue_timeout_secs: 9, starvation_threshold_secs: 9, can_preempt: true }
    system: { reserved_floor: 1, queue_size: 1, queue_timeout_secs: 9, starvation_threshold_secs: 9, can_preempt: true }
  admission_partitions: { kimi: ${part(2)}, default: ${part(8)} }
`;

  it("name each class that has no slot in an idle partition, with the figures", () => {
    const figures = "has no slot when idle (capacity 2, reserved interactive 1, system 1)";
    expect(warningsOf(small("1"))).to.deep.equal([
      `partition kimi: class bulk ${figures}`,
      `partition kimi: class default ${figures}`,
    ]);
  });

  it("are silent at the shipped share, which leaves half of the slots to everybody", () => {
    expect(warningsOf(small("0.5"))).to.deep.equal([]);
    for (const slots of [1, 2, 3, 24, 100, 65_535]) {
      const text = `${WORKER}scheduler: { max_concurrent_requests: ${String(slots)} }\n`;
      expect(warningsOf(text), String(slots)).to.deep.equal([]);
    }
  });

  it("look at the slots that all configured workers report together, when they set the capacity", () => {
    const text = `${worker("m", ", labels: { max_running_requests: 3 }")}scheduler: { reserved_share_max: 1 }\n`;
    // System wants 32 and gets all 3.
    expect(warningsOf(text)).to.deep.equal(
      ["bulk", "default", "interactive"].map(
        (name) =>
          `partition global: class ${name} has no slot when idle (capacity 3, reserved system 3)`,
      ),
    );
  });

  it("name a partition that no configured worker gives a slot to", () => {
    const follows = "{ capacity_from_healthy_replicas: true, queue_size: 0 }";
    const text = `${WORKER}scheduler: { admission_partitions: { default: ${follows}, ghost: ${follows} } }\n`;
    expect(warningsOf(text)).to.deep.equal([
      "partition ghost: no class has a slot (capacity 0 with every worker healthy)",
    ]);
  });

  it("say where the slots of a worker count whose models belong to different partitions", () => {
    const partitions = `scheduler: { admission_partitions: { kimi: ${part(2)}, default: ${part(8)} } }\n`;
    expect(warningsOf(worker("kimi, m, n") + partitions)).to.deep.equal([
      "workers[0].models: they belong to different partitions (kimi to kimi, m to default); the slots of " +
        "the worker count for kimi, the partition of its first model, unless " +
        "labels.admission_partition says otherwise",
    ]);
    expect(warningsOf(worker("m, n") + partitions)).to.deep.equal([]);
    const labelled = worker("kimi, m", ", labels: { admission_partition: kimi }");
    expect(warningsOf(labelled + partitions)).to.deep.equal([]);
    expect(warningsOf(worker("kimi, m"))).to.deep.equal([]);
  });
});

describe("warnings about the limiter", () => {
  it("name keys without effect, labels without effect, and a limiter that limits nothing", () => {
    const labelled = worker("m", ", labels: { admission_partition: default }");
    const text = `${labelled}scheduler:
  enabled: false
  tenant_policies: { anonymous: { max_class: bulk } }
  admission_partitions: { default: ${part(8)} }
`;
    expect(configOf(text).scheduler.enabled).to.equal(false);
    expect(warningsOf(text)).to.deep.equal([
      'workers[0].labels.admission_partition "default": scheduler.enabled is false, so the label has ' +
        "no effect",
      "scheduler.tenant_policies, scheduler.admission_partitions: without effect while " +
        "scheduler.enabled is false",
      "scheduler.max_concurrent_requests: -1 while scheduler.enabled is false, so nothing limits the " +
        "requests in flight",
    ]);
    const plain = `${WORKER}scheduler: { enabled: false, max_concurrent_requests: 8 }\n`;
    expect(warningsOf(plain)).to.deep.equal([]);
  });
});
