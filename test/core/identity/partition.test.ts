import { expect } from "chai";
import {
  choosePartition,
  partitionOfWorker,
  partitionRules,
} from "../../../extproc/core/identity/partition.js";
import { modelId, partitionName } from "../../../extproc/core/model/ids.js";

const POOL = {
  max_concurrent_requests: 6,
  max_concurrent_requests_per_healthy_replica: undefined,
  queue_size: 10,
};
const RULES = partitionRules({
  admission_partitions: new Map(
    ["default", "kimi", "batch"].map((name) => [partitionName(name), POOL]),
  ),
  default_admission_partition: partitionName("default"),
});
const BARE = partitionRules({
  admission_partitions: new Map(),
  default_admission_partition: partitionName("default"),
});
const KIMI = modelId("kimi");
const OTHER = modelId("other");

const choose = (hint: string | undefined, model = OTHER): unknown =>
  choosePartition(RULES, hint, model);
const labelled = (label: string | undefined, model = OTHER): string =>
  partitionOfWorker(
    RULES,
    { admission_partition: label === undefined ? undefined : partitionName(label) },
    model,
  );

describe("identity/partition", () => {
  it("I-4 an unknown partition header sends a model without its own partition to the default one", () => {
    expect(choose("nowhere")).to.deep.equal({ partition: "default", unknownHeader: true });
  });

  it("takes a trusted header that names a partition, exactly and with its case", () => {
    expect(choose("batch")).to.deep.equal({ partition: "batch", unknownHeader: false });
    expect(choose("batch", KIMI)).to.deep.equal({ partition: "batch", unknownHeader: false });
    for (const hint of ["Batch", "batch ", "batc", "", "__proto__", "constructor"]) {
      expect(choose(hint), hint).to.deep.equal({ partition: "default", unknownHeader: true });
    }
  });

  it("falls back to the partition named like the model, with an unknown header counted", () => {
    expect(choose(undefined, KIMI)).to.deep.equal({ partition: "kimi", unknownHeader: false });
    expect(choose("nowhere", KIMI)).to.deep.equal({ partition: "kimi", unknownHeader: true });
  });

  it("falls back to the default partition for a model without one, or without a model", () => {
    expect(choose(undefined)).to.deep.equal({ partition: "default", unknownHeader: false });
    expect(choosePartition(RULES, undefined, undefined).partition).to.equal("default");
  });

  it("puts a worker where its label says, else where its model's requests go", () => {
    expect(labelled("batch", KIMI)).to.equal("batch");
    expect(labelled(" batch ", KIMI)).to.equal("batch");
    expect(labelled(undefined, KIMI)).to.equal("kimi");
    expect(labelled("", KIMI)).to.equal("kimi");
    expect(labelled("  ", KIMI)).to.equal("kimi");
    expect(labelled(undefined)).to.equal("default");
  });

  it("puts a worker with an unknown label into the default partition, not into its model's", () => {
    expect(labelled("nowhere", KIMI)).to.equal("default");
    expect(labelled("Batch", KIMI)).to.equal("default");
  });

  it("has one partition named global when none are configured", () => {
    expect(choosePartition(BARE, undefined, KIMI)).to.deep.equal({
      partition: "global",
      unknownHeader: false,
    });
    expect(choosePartition(BARE, "kimi", KIMI)).to.deep.equal({
      partition: "global",
      unknownHeader: true,
    });
    expect(choosePartition(BARE, "global", KIMI).unknownHeader).to.equal(false);
    const label = { admission_partition: partitionName("batch") };
    expect(partitionOfWorker(BARE, label, KIMI)).to.equal("global");
  });

  it("sends a request and an unlabelled worker of the same model to the same partition", () => {
    for (const model of [KIMI, OTHER, modelId("batch"), modelId("default")]) {
      for (const rules of [RULES, BARE]) {
        const request = choosePartition(rules, undefined, model).partition;
        const worker = partitionOfWorker(rules, { admission_partition: undefined }, model);
        expect(worker).to.equal(request);
      }
    }
  });
});
