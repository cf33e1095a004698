import { readFileSync } from "node:fs";
import { expect } from "chai";
import { partitionSettings } from "../../../extproc/core/scheduler/partition-settings.js";
import { classReservations } from "../../../extproc/core/scheduler/reservations.js";
import { demoConfigYaml } from "../../../extproc/edge/config/demo-config.js";
import { configOf, warningsOf } from "./support.js";

describe("the demonstration configuration", () => {
  it("is sound, without warnings, and says three workers, 24 slots and a queue of 100", () => {
    const config = configOf(demoConfigYaml(undefined));
    expect(warningsOf(demoConfigYaml(undefined))).to.deep.equal([]);
    expect(config.listen.ext_proc).to.deep.equal({ kind: "tcp", host: "127.0.0.1", port: 9002 });
    expect([config.envoy.port, config.envoy.admin_port]).to.deep.equal([10000, 9901]);
    expect(config.admin.listen).to.deep.equal({ kind: "tcp", host: "127.0.0.1", port: 9190 });
    expect(config.workers.map(({ url, cluster }) => `${cluster} ${url}`)).to.deep.equal([
      "worker_1 http://127.0.0.1:8101",
      "worker_2 http://127.0.0.1:8102",
      "worker_3 http://127.0.0.1:8103",
    ]);
    expect(config.workers.map(({ labels }) => labels.max_running_requests)).to.deep.equal([
      8, 8, 8,
    ]);
    expect([...config.models.entries()]).to.deep.equal([
      ["demo", { aliases: ["demo-latest"], policy: "cache_aware", ownership: "committed" }],
    ]);
    expect(config.scheduler.max_concurrent_requests).to.equal(24);
    expect(config.scheduler.queue_size).to.equal(100);
  });

  it("leaves class default half of its 24 slots when idle", () => {
    const { scheduler } = configOf(demoConfigYaml(undefined));
    const [pool] = partitionSettings(scheduler, new Map(), 24);
    if (pool === undefined) throw new Error("no pool");
    // System wants 32 and gets what reserved_share_max leaves: 12. Nothing is left to reserve below.
    expect(classReservations(pool.reservations, 24, pool.reservedShareMax)).to.deep.equal([
      0, 0, 0, 12,
    ]);
  });

  it("moves every port into one block behind a base", () => {
    const config = configOf(demoConfigYaml(20000));
    expect([config.envoy.port, config.envoy.admin_port]).to.deep.equal([20000, 20001]);
    expect(config.admin.listen).to.deep.include({ port: 20002 });
    expect(config.listen.ext_proc).to.deep.include({ port: 20003 });
    expect(config.workers.map(({ url }) => url)).to.deep.equal([
      "http://127.0.0.1:20011",
      "http://127.0.0.1:20012",
      "http://127.0.0.1:20013",
    ]);
  });

  it("is the file that is shipped as envoy/demo.weir.yaml", () => {
    const shipped = new URL("../../../envoy/demo.weir.yaml", import.meta.url);
    expect(readFileSync(shipped, "utf8")).to.equal(demoConfigYaml(undefined));
  });
});
