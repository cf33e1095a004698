// Goal: every architecture rule fires on its fault and on nothing that is allowed. Method: two small
// trees are written to a temporary folder and cruised with the real rules: one holds a fault for each
// rule, the other what the rules allow.
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "chai";

interface Rules {
  readonly forbidden: readonly { readonly name: string }[];
}
interface Violation {
  readonly rule: { readonly name: string };
  readonly from: string;
}
/** A file that imports another, or a package, by its specifier. */
type Import = readonly [from: string, specifier: string];

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const CONFIG = join(REPOSITORY, "test/arch/dependency-cruiser.cjs");
const CRUISE = join(REPOSITORY, "node_modules/dependency-cruiser/bin/dependency-cruise.mjs");
const RULES = createRequire(import.meta.url)(CONFIG) as Rules;
const PACKAGES = [
  ...["@grpc/grpc-js", "google-protobuf", "grpc-health-check", "prom-client", "pino"],
  ...["zod", "yaml"],
];
const DEVELOPMENT_PACKAGE = "chai";

/** For each rule the imports that it must refuse. */
const FAULTS: Readonly<Record<string, readonly Import[]>> = {
  "core-is-pure": [
    ["extproc/core/model/reads-files.ts", "node:fs"],
    ["extproc/core/model/uses-package.ts", "zod"],
    ["extproc/core/request/uses-edge.ts", "../../edge/runtime/target.js"],
  ],
  "core-has-no-other-room": [["extproc/core/attic/unlisted.ts", "../model/target.js"]],
  "edges-do-not-know-each-other": [
    ["extproc/edge/envoy/asks-admin.ts", "../admin/target.js"],
    ["extproc/edge/telemetry/asks-config.ts", "../config/target.js"],
  ],
  "nothing-imports-the-roof": [
    ["extproc/edge/admin/asks-app.ts", "../../app.js"],
    ["extproc/core/request/asks-main.ts", "../../main.js"],
  ],
  "only-envoy-edge-touches-grpc": [
    ["extproc/edge/admin/speaks-grpc.ts", "@grpc/grpc-js"],
    ["extproc/edge/engines/speaks-protobuf.ts", "google-protobuf"],
    ["extproc/edge/admin/speaks-health.ts", "grpc-health-check"],
  ],
  "only-telemetry-touches-prom-and-pino": [
    ["extproc/edge/admin/counts.ts", "prom-client"],
    ["extproc/edge/envoy/logs.ts", "pino"],
  ],
  "only-config-and-admin-touch-zod": [["extproc/edge/engines/parses.ts", "zod"]],
  "only-config-and-bootstrap-touch-yaml": [
    ["extproc/edge/envoy/session-yaml.ts", "yaml"],
    ["extproc/edge/admin/writes-yaml.ts", "yaml"],
  ],
  "envoy-knows-nothing-of-extproc": [
    ["envoy/mock-worker/peeks.ts", "../../extproc/core/model/target.js"],
  ],
  "envoy-runs-on-node-alone": [["envoy/demo/needs-package.mjs", "yaml"]],
  "source-never-imports-tests": [
    ["extproc/core/model/asks-test.ts", "../../../test/support/target.js"],
    ["envoy/demo/asks-test.mjs", "../../test/support/plain.mjs"],
  ],
  "no-circular": [["extproc/core/model/circle-a.ts", "./circle-b.js"]],
  "no-unresolvable": [["extproc/core/model/leads-nowhere.ts", "./not-there.js"]],
  "no-dev-dep-in-source": [["extproc/edge/runtime/needs-tool.ts", DEVELOPMENT_PACKAGE]],
  "model-imports-only-rooms-above": [["extproc/core/model/below.ts", "../identity/target.js"]],
  "identity-imports-only-rooms-above": [["extproc/core/identity/below.ts", "../workers/target.js"]],
  "workers-imports-only-rooms-above": [["extproc/core/workers/below.ts", "../capacity/target.js"]],
  "capacity-imports-only-rooms-above": [
    ["extproc/core/capacity/below.ts", "../fairshare/target.js"],
  ],
  "fairshare-imports-only-rooms-above": [
    ["extproc/core/fairshare/below.ts", "../scheduler/target.js"],
  ],
  "scheduler-imports-only-rooms-above": [
    ["extproc/core/scheduler/below.ts", "../prefixes/target.js"],
  ],
  "prefixes-imports-only-rooms-above": [
    ["extproc/core/prefixes/below.ts", "../selection/target.js"],
  ],
  "selection-imports-only-rooms-above": [
    ["extproc/core/selection/below.ts", "../seeding/target.js"],
  ],
  "seeding-imports-only-rooms-above": [
    ["extproc/core/seeding/below.ts", "../settlement/target.js"],
  ],
  "settlement-imports-only-rooms-above": [
    ["extproc/core/settlement/below.ts", "../request/target.js"],
  ],
};

/** The way back of the planted circle, which is reported once. */
const WAY_BACK: Import = ["extproc/core/model/circle-b.ts", "./circle-a.js"];

/** Imports that no rule may refuse. */
const ALLOWED: readonly Import[] = [
  ["extproc/core/request/meets.ts", "../settlement/target.js"],
  ["extproc/core/workers/names.ts", "../model/target.js"],
  ["extproc/edge/envoy/serves.ts", "@grpc/grpc-js"],
  ["extproc/edge/envoy/bootstrap-clusters.ts", "yaml"],
  ["extproc/edge/envoy/counts.ts", "../telemetry/target.js"],
  ["extproc/edge/envoy/waits.ts", "../runtime/target.js"],
  ["extproc/edge/envoy/asks.ts", "../../core/request/target.js"],
  ["extproc/edge/telemetry/logs.ts", "pino"],
  ["extproc/edge/telemetry/counts.ts", "prom-client"],
  ["extproc/edge/config/reads.ts", "yaml"],
  ["extproc/edge/config/checks.ts", "zod"],
  ["extproc/edge/admin/checks.ts", "zod"],
  ["extproc/edge/admin/serves.ts", "node:http"],
  ["extproc/composes.ts", "./edge/admin/target.js"],
  ["envoy/mock-worker/serves.ts", "node:http"],
  ["test/core/model/asserts.ts", DEVELOPMENT_PACKAGE],
  ["test/e2e/sees-all.ts", "../../extproc/edge/envoy/target.js"],
  ["test/e2e/sees-packages.ts", "@grpc/grpc-js"],
];

describe("architecture rules", function () {
  this.timeout(60_000);
  const folders: string[] = [];
  after(async () => {
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  });

  /** Writes a tree with these imports, cruises it and gives back "rule: file" lines, sorted. */
  async function violations(imports: readonly Import[]): Promise<readonly string[]> {
    const root = await realpath(await mkdtemp(join(tmpdir(), "weir-arch-")));
    folders.push(root);
    const write = async (path: string, text: string): Promise<void> => {
      await mkdir(dirname(join(root, path)), { recursive: true });
      await writeFile(join(root, path), text);
    };
    for (const name of [...PACKAGES, DEVELOPMENT_PACKAGE]) {
      await write(
        `node_modules/${name}/package.json`,
        JSON.stringify({ name, version: "1.0.0", main: "index.js" }),
      );
      await write(`node_modules/${name}/index.js`, "module.exports = {};");
    }
    const versions = (names: readonly string[]): Record<string, string> =>
      Object.fromEntries(names.map((name) => [name, "1.0.0"]));
    await write(
      "package.json",
      JSON.stringify({
        type: "module",
        dependencies: versions(PACKAGES),
        devDependencies: versions([DEVELOPMENT_PACKAGE]),
      }),
    );
    const compilerOptions = { module: "NodeNext", moduleResolution: "NodeNext", target: "ES2023" };
    await write("tsconfig.json", JSON.stringify({ compilerOptions }));
    for (const target of targets(imports)) await write(target, "export const target = 1;");
    for (const [from, specifier] of imports) await write(from, `import "${specifier}";\n`);
    const args = [CRUISE, "--config", CONFIG, "--output-type", "json", "extproc", "envoy", "test"];
    const json = await new Promise<string>((done) => {
      execFile(process.execPath, args, { cwd: root, maxBuffer: 1e8 }, (_error, stdout) => {
        done(stdout);
      });
    });
    const { summary } = JSON.parse(json) as { summary: { violations: readonly Violation[] } };
    const lines = summary.violations.map(({ rule, from }) => `${rule.name}: ${from}`);
    return [...new Set(lines)].sort();
  }

  /** The files that the relative imports lead to, as far as they are to exist. */
  function targets(imports: readonly Import[]): readonly string[] {
    return imports
      .filter(([, specifier]) => specifier.startsWith("."))
      .map(([from, specifier]) => join(dirname(from), specifier).replace(/\.js$/, ".ts"))
      .filter((path) => !/not-there|circle-/.test(path))
      .concat(["extproc/core/model/target.ts", "envoy/target.ts", "test/target.ts"]);
  }

  it("have a planted fault each", () => {
    const names = RULES.forbidden.map((rule) => rule.name);
    expect(Object.keys(FAULTS).sort()).to.deep.equal([...names].sort());
  });

  it("each refuse their fault", async () => {
    const wanted = Object.entries(FAULTS).flatMap(([rule, imports]) =>
      imports.map(([from]) => `${rule}: ${from}`),
    );
    const seen = await violations([...Object.values(FAULTS).flat(), WAY_BACK]);
    expect(seen).to.include.members(wanted);
  });

  it("refuse nothing that is allowed", async () => {
    expect(await violations(ALLOWED)).to.deep.equal([]);
  });
});
