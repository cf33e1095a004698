// The command line as a user meets it: what it prints, where, and its exit codes.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { configYaml } from "../support/config.js";
import { creditSketch } from "../support/credit-desk.js";
import { freePorts } from "../support/ports.js";
import { startProcess, type RunningProcess } from "../support/process.js";

describe("the weir command", function () {
  // Each command starts a process of its own.
  this.timeout(60_000);
  let folder: string;
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "weir-cli-"));
  });
  after(() => {
    rmSync(folder, { recursive: true });
  });

  const weir = (...args: readonly string[]): RunningProcess =>
    startProcess(process.execPath, ["--import", "tsx", "extproc/main.ts", ...args]);

  async function run(...args: readonly string[]): Promise<[number | null, string, string]> {
    const process = weir(...args);
    const { code } = await process.ended;
    return [code, process.stdout, process.stderr];
  }

  function file(name: string, text: string): string {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  }

  it("prints its usage on request, and on stderr with exit code 2 for wrong arguments", async () => {
    const [code, stdout] = await run("help");
    expect([code, stdout.startsWith("usage: weir")]).to.deep.equal([0, true]);
    for (const [args, complaint] of [
      [["frobnicate"], "unknown command frobnicate"],
      [["serve"], "serve needs --config FILE"],
      [["check", "-c"], "-c needs a value"],
      [["demo", "--port-base", "x"], "--port-base must be a whole number from 1 to 65522, got x"],
    ] as const) {
      const [wrong, out, err] = await run(...args);
      expect([wrong, out, err.split("\n")[0]]).to.deep.equal([2, "", complaint]);
    }
  });

  it("checks a configuration, and prints every problem with exit code 1", async () => {
    const good = file("good.yaml", configYaml());
    expect(await run("check", "--config", good)).to.deep.equal([
      0,
      "the configuration is valid\n",
      "",
    ]);
    const bad = file("bad.yaml", `${configYaml()}surprise: 1\nadmin: 3\n`);
    const [code, stdout, stderr] = await run("check", "-c", bad);
    expect([code, stdout]).to.deep.equal([1, ""]);
    expect(stderr.trim().split("\n")).to.have.length(2);
    expect(stderr).to.match(/bad\.yaml:\d+:1 surprise: /);
  });

  it("shows a value that contains itself, and refuses the demo's flag elsewhere", async () => {
    const cyclic = file("cyclic.yaml", "listen: &a { ext_proc: *a }\n");
    const [code, , stderr] = await run("check", "-c", cyclic);
    expect(code).to.equal(1);
    expect(stderr).to.include("got a value that contains itself").and.to.not.include("TypeError");
    const good = file("flag.yaml", configYaml());
    const [flagged, , complaint] = await run("check", "-c", good, "--port-base", "5");
    expect(flagged).to.equal(1);
    expect(complaint).to.include("flag --port-base");
  });

  it("names a configuration file that cannot be read", async () => {
    const missing = join(folder, "missing.yaml");
    const [code, , stderr] = await run("check", "-c", missing);
    expect(code).to.equal(1);
    expect(stderr).to.include(missing);
  });

  it("names every API key that cannot be read: an error at the start, a warning of a check", async () => {
    const workers = [
      {
        url: "http://127.0.0.1:1",
        cluster: "a",
        models: ["demo"],
        api_key_env: "NO_SUCH_WEIR_KEY",
      },
      {
        url: "http://127.0.0.1:2",
        cluster: "b",
        models: ["demo"],
        api_key_file: `${folder}/no-key`,
      },
    ];
    const config = file("keys.yaml", configYaml({ workers }));
    const lines = [
      "workers[0].api_key_env: the API key in environment variable NO_SUCH_WEIR_KEY is not set",
      `workers[1].api_key_file: the API key in file ${folder}/no-key cannot be read (ENOENT)`,
    ];
    const problems = lines.map((line) => `${line}\n`).join("");
    expect(await run("serve", "-c", config)).to.deep.equal([1, "", problems]);
    const warnings = lines.map((line) => `warning: ${line}\n`).join("");
    const valid = "the configuration is valid\n";
    expect(await run("check", "-c", config)).to.deep.equal([0, valid, warnings]);
  });

  it("does not start without the allocator's key, and warns of it in a check", async () => {
    const credits = { generation: "g1", service_key_env: "NO_SUCH_SERVICE_KEY" };
    const config = file("credits.yaml", configYaml(creditSketch(4, { credits })));
    const line =
      "credits.service_key_env: the API key in environment variable NO_SUCH_SERVICE_KEY is not set\n";
    const [served, , problems] = await run("serve", "-c", config);
    expect([served, problems.endsWith(line)]).to.deep.equal([1, true]);
    const [checked, , warnings] = await run("check", "-c", config);
    expect([checked, warnings.endsWith(`warning: ${line}`)]).to.deep.equal([0, true]);
  });

  it("takes keys from flags", async () => {
    const good = file("flags.yaml", configYaml());
    const [code, , stderr] = await run("check", "-c", good, "--scheduler.queue_size=-1");
    expect([code, stderr]).to.deep.equal([
      1,
      "flag --scheduler.queue_size scheduler.queue_size: must be a whole number from 0 to 1000000, got -1\n",
    ]);
  });

  it("prints the schema, the demo configuration and the bootstrap that belongs to it", async () => {
    const [, schema] = await run("check", "--schema");
    expect((JSON.parse(schema) as { type: string }).type).to.equal("object");
    const [, demo] = await run("demo");
    expect(demo).to.equal(readFileSync("envoy/demo.weir.yaml", "utf8"));
    const [, bootstrap] = await run("bootstrap", "-c", "envoy/demo.weir.yaml");
    expect(bootstrap).to.equal(readFileSync("envoy/demo.envoy.yaml", "utf8"));
  });

  it("serves until SIGTERM and exits 0; a port in use is exit code 1 with the reason", async () => {
    const [extProc, admin] = await freePorts(2);
    const config = file(
      "serve.yaml",
      configYaml({
        listen: { ext_proc: `127.0.0.1:${String(extProc)}` },
        admin: { listen: `127.0.0.1:${String(admin)}` },
      }),
    );
    const first = weir("serve", "--config", config);
    await first.waitForOutput(/"serving"/);
    const second = weir("serve", "--config", config);
    expect((await second.ended).code).to.equal(1);
    expect(second.stdout).to.include("EADDRINUSE");
    first.signal("SIGTERM");
    expect((await first.ended).code).to.equal(0);
    expect(first.stdout).to.include('"draining"').and.to.include('"stopped"');
  });
});
