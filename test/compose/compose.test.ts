// Goal: docker-compose.yml is sound and says the same as the configuration it mounts. Method: the
// rules of compose-rules.ts, each seen to fire on a planted fault, and comparisons of the ports,
// hosts, models and times in the two files.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "chai";
import { parse } from "yaml";
import { ENVOY_VERSION } from "../../envoy/demo/envoy-binary.mjs";
import type { WeirConfig } from "../../extproc/core/model/config.js";
import { loadConfig } from "../../extproc/edge/config/load.js";
import {
  composeProblems,
  dockerStages,
  durationSecs,
  readCompose,
  type Surroundings,
} from "./compose-rules.js";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

function read(path: string): string {
  return readFileSync(join(REPOSITORY, path), "utf8");
}

function weirConfig(): WeirConfig {
  const file = "envoy/compose.weir.yaml";
  const loaded = loadConfig({ text: read(file), file, env: {}, flags: [] });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problems));
  return loaded.config;
}

const TEXT = read("docker-compose.yml");
const DOCKERFILE = read("Dockerfile");
const AROUND: Surroundings = {
  exists: (path) => existsSync(join(REPOSITORY, path)),
  stages: dockerStages(DOCKERFILE),
};

describe("docker-compose.yml", () => {
  it("has no problem", () => {
    expect(composeProblems(readCompose(TEXT), AROUND)).to.deep.equal([]);
  });

  const faults: readonly (readonly [from: string, to: string, problem: string])[] = [
    ["stop_grace_period: 11m", "stop_grace_perriod: 11m", "weir: unknown key stop_grace_perriod"],
    [
      "stop_grace_period: 11m",
      "stop_grace_period: long",
      "weir: stop_grace_period long is no duration",
    ],
    ["name: weir", "nome: weir", "the file: unknown key nome"],
    ["retries: 6", "retrys: 6", "envoy.healthcheck: unknown key retrys"],
    [
      "envoy/prometheus.yml:",
      "envoy/missing.yml:",
      "prometheus: ./envoy/missing.yml does not exist",
    ],
    [
      "/etc/weir/weir.yaml:ro",
      "/etc/weir/weir.yaml",
      "weir: ./envoy/compose.weir.yaml is not mounted read-only",
    ],
    ['"127.0.0.1:9190:9190"', '"9190:9190"', "weir: port 9190:9190 is not on loopback"],
    ["target: weir", "target: wier", "weir: the Dockerfile has no stage wier"],
    ["envoy:v1.40.0", "envoy:latest", "envoy: image envoyproxy/envoy:latest has no whole version"],
    ["condition: service_started", "condition: started", "prometheus: unknown condition started"],
    [
      "weir: { condition: service_healthy }",
      "wier: { condition: service_healthy }",
      "envoy: depends on wier, which is no service",
    ],
  ];
  for (const [from, to, problem] of faults) {
    it(`would not pass with: ${problem}`, () => {
      expect(TEXT).to.include(from);
      const seen = composeProblems(readCompose(TEXT.replace(from, to)), AROUND);
      expect(seen).to.include(problem);
    });
  }

  it("would not pass when it waited for the health of a service without a check", () => {
    const around = { ...AROUND, stages: new Map([...AROUND.stages, ["weir", false] as const]) };
    expect(composeProblems(readCompose(TEXT), around)).to.deep.equal([
      "envoy: waits for the health of weir, which has no health check",
    ]);
  });

  it("runs the Envoy release that the configuration is written for", () => {
    const { services } = readCompose(TEXT);
    expect(services["envoy"]?.image).to.equal(`envoyproxy/envoy:v${ENVOY_VERSION}`);
  });

  it("publishes the ports that the configuration listens on", () => {
    const { services } = readCompose(TEXT);
    const { envoy, admin } = weirConfig();
    const port = String(envoy.port);
    expect(services["envoy"]?.ports).to.deep.equal([`127.0.0.1:${port}:${port}`]);
    const adminPort = /:(\d+)/.exec(JSON.stringify(admin.listen))?.[1] ?? "none";
    expect(services["weir"]?.ports).to.deep.equal([`127.0.0.1:${adminPort}:${adminPort}`]);
  });

  it("runs each configured worker under its host name with its port, model and slots", () => {
    const { services } = readCompose(TEXT);
    const { workers, models } = weirConfig();
    const hosts = workers.map((worker) => new URL(worker.url).hostname);
    expect(Object.keys(services).filter((name) => name.startsWith("worker-"))).to.deep.equal(hosts);
    for (const worker of workers) {
      const { hostname, port } = new URL(worker.url);
      const flags = services[hostname]?.command ?? [];
      const valueOf = (flag: string): string | undefined => flags[flags.indexOf(flag) + 1];
      expect(valueOf("--port"), hostname).to.equal(port);
      expect(valueOf("--host"), hostname).to.equal("0.0.0.0");
      // A worker serves its models and their aliases, since a body reaches it unchanged.
      const names = worker.models.flatMap((model) => [
        model,
        ...(models.get(model)?.aliases ?? []),
      ]);
      expect(valueOf("--model"), hostname).to.equal(names.join(","));
      expect(valueOf("--engine"), hostname).to.equal(worker.engine);
      expect(Number(valueOf("--slots")), hostname).to.equal(worker.labels.max_running_requests);
      expect(services[hostname]?.healthcheck?.test.join(" "), hostname).to.include(
        `:${port}/health`,
      );
    }
  });

  it("gives Weir more time to stop than a drain may take", () => {
    const { limits } = weirConfig();
    const drainSecs = limits.drain_timeout_secs + limits.shutdown_grace_period_secs;
    const grace = readCompose(TEXT).services["weir"]?.stop_grace_period ?? "";
    expect(durationSecs(grace)).to.be.greaterThan(drainSecs);
  });

  it("lets Prometheus read Weir and each worker where they listen", () => {
    const { scrape_configs: jobs } = parse(read("envoy/prometheus.yml")) as {
      readonly scrape_configs: readonly {
        readonly static_configs: readonly { readonly targets: readonly string[] }[];
      }[];
    };
    const targets = jobs.flatMap((job) => job.static_configs.flatMap((entry) => entry.targets));
    const workers = weirConfig().workers.map((worker) => new URL(worker.url).host);
    expect(targets).to.deep.equal(["weir:9190", ...workers]);
  });

  it("reads durations as Compose does", () => {
    expect(durationSecs("11m")).to.equal(660);
    expect(durationSecs("1h1m1s")).to.equal(3661);
    expect(durationSecs("30")).to.equal(undefined);
    expect(durationSecs("")).to.equal(undefined);
  });
});

describe("Dockerfile", () => {
  it("copies only what is there, from stages that are there", () => {
    const copies = DOCKERFILE.split("\n").filter((line) => line.startsWith("COPY "));
    expect(copies.length).to.be.greaterThan(0);
    for (const line of copies) {
      const words = line.split(" ").slice(1);
      const stage = /^--from=(.*)$/.exec(words[0] ?? "")?.[1];
      if (stage !== undefined) expect([...AROUND.stages.keys()], line).to.include(stage);
      else
        for (const source of words.slice(0, -1)) expect(AROUND.exists(source), line).to.equal(true);
    }
  });

  it("starts programs that the build makes", () => {
    const programs = [...DOCKERFILE.matchAll(/^ENTRYPOINT \["node", "dist\/(.*)\.js"\]$/gm)];
    expect(programs.map((match) => match[1])).to.deep.equal([
      "envoy/mock-worker/main",
      "extproc/main",
    ]);
    for (const [, program] of programs) {
      expect(AROUND.exists(`${program ?? ""}.ts`), program).to.equal(true);
    }
  });

  it("runs no image of ours as root", () => {
    for (const stage of ["mock", "weir"]) {
      const text = DOCKERFILE.split(/^FROM /m).find((part) => part.includes(`AS ${stage}\n`));
      expect(text, stage).to.match(/^USER node$/m);
    }
  });
});
