import { readdirSync, readFileSync } from "node:fs";
import { expect } from "chai";
import { loadConfig } from "../../../extproc/edge/config/load.js";
import { formatProblem } from "../../../extproc/edge/config/problem.js";
import { bootstrapYaml } from "../../../extproc/edge/envoy/bootstrap.js";

const folder = new URL("../../../envoy/", import.meta.url);
const read = (name: string): string => readFileSync(new URL(name, folder), "utf8");
const names = readdirSync(folder)
  .filter((file) => file.endsWith(".weir.yaml"))
  .map((file) => file.slice(0, -".weir.yaml".length));

describe("the shipped Envoy configurations", () => {
  it("are pairs: no bootstrap without its weir.yaml", () => {
    expect(names).to.include.members([
      ...["demo", "compose", "unix-socket", "trusted-gateway", "jwt", "mtls"],
    ]);
    const bootstraps = readdirSync(folder).filter((file) => file.endsWith(".envoy.yaml"));
    expect(bootstraps.sort()).to.deep.equal(names.map((name) => `${name}.envoy.yaml`).sort());
  });

  it("are explained in the README", () => {
    for (const name of names) expect(read("README.md")).to.contain(`| \`${name}\``);
  });

  for (const name of names) {
    it(`envoy/${name}.envoy.yaml is what Weir writes from envoy/${name}.weir.yaml`, () => {
      const file = `envoy/${name}.weir.yaml`;
      const loaded = loadConfig({ text: read(`${name}.weir.yaml`), file, env: {}, flags: [] });
      if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join("\n"));
      expect(loaded.warnings).to.deep.equal([]);
      expect(read(`${name}.envoy.yaml`)).to.equal(bootstrapYaml(loaded.config, file));
    });
  }
});
