import { mkdir, mkdtemp, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import {
  ensureBuild,
  ensurePackages,
  npmCommand,
  packagesMatch,
  requireNode,
} from "../../envoy/demo/setup.mjs";

const LOCK = {
  packages: {
    "": { name: "root" },
    "node_modules/a": { version: "1.0.0", integrity: "sha512-a" },
    "node_modules/other-system": { version: "1.0.0", integrity: "sha512-o", optional: true },
  },
};
const INSTALLED = { packages: { "node_modules/a": { version: "1.0.0", integrity: "sha512-a" } } };

async function problemOf(promise: Promise<unknown>): Promise<string> {
  return await promise.then(
    () => "no problem",
    (error: unknown) => (error as Error).message,
  );
}

describe("set-up", () => {
  let root = "";
  let lines: string[] = [];
  const log = (line: string): void => {
    lines.push(line);
  };
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "weir-setup-"));
    lines = [];
  });
  afterEach(async () => {
    await rm(root, { recursive: true, force: true });
  });

  describe("node", () => {
    it("accepts 20.19 and later", () => {
      for (const version of ["20.19.0", "20.20.2", "22.0.0"]) {
        expect(() => {
          requireNode(version);
        }, version).to.not.throw();
      }
    });

    it("refuses what is older, naming both versions", () => {
      for (const version of ["20.18.3", "18.20.0"]) {
        expect(() => {
          requireNode(version);
        }).to.throw(`Node 20.19 or newer is needed, this is ${version}`);
      }
    });
  });

  describe("packages", () => {
    const cases: readonly (readonly [string, unknown, boolean])[] = [
      ["the same packages", INSTALLED, true],
      ["nothing", undefined, false],
      ["an empty tree", { packages: {} }, false],
      [
        "another version",
        { packages: { "node_modules/a": { version: "1.0.1", integrity: "sha512-a" } } },
        false,
      ],
      [
        "another content",
        { packages: { "node_modules/a": { version: "1.0.0", integrity: "sha512-b" } } },
        false,
      ],
      [
        "a package too many",
        { packages: { ...INSTALLED.packages, "node_modules/b": { version: "1.0.0" } } },
        false,
      ],
    ];
    for (const [what, installed, matches] of cases) {
      it(`${matches ? "accept" : "do not accept"} ${what}`, () => {
        expect(packagesMatch(LOCK, installed)).to.equal(matches);
      });
    }

    it("are left alone when only the dates differ", async () => {
      await mkdir(join(root, "node_modules"));
      await writeFile(join(root, "node_modules/.package-lock.json"), JSON.stringify(INSTALLED));
      await writeFile(join(root, "package-lock.json"), JSON.stringify(LOCK));
      await utimes(join(root, "node_modules/.package-lock.json"), new Date(0), new Date(0));
      const install = (): Promise<void> => Promise.reject(new Error("npm ci must not run"));
      expect(await ensurePackages({ root, log, install })).to.equal(false);
      expect(lines).to.deep.equal(["packages: up to date"]);
    });

    it("are installed when node_modules is not there", async () => {
      await writeFile(join(root, "package-lock.json"), JSON.stringify(LOCK));
      const roots: string[] = [];
      const install = (where: string): Promise<void> => {
        roots.push(where);
        return Promise.resolve();
      };
      expect(await ensurePackages({ root, log, install })).to.equal(true);
      expect(roots).to.deep.equal([root]);
    });
  });

  describe("build", () => {
    let compiled = 0;
    const compile = (): Promise<void> => {
      compiled += 1;
      return Promise.resolve();
    };
    beforeEach(async () => {
      compiled = 0;
      await mkdir(join(root, "extproc/core"), { recursive: true });
      await writeFile(join(root, "extproc/core/a.ts"), "export {};");
      await writeFile(join(root, "tsconfig.json"), "{}");
    });

    it("runs once for one state of the sources", async () => {
      expect(await ensureBuild({ root, log, compile })).to.equal(true);
      expect(await ensureBuild({ root, log, compile })).to.equal(false);
      expect(compiled).to.equal(1);
    });

    it("runs again for a source that changed, came or went", async () => {
      await ensureBuild({ root, log, compile });
      await writeFile(join(root, "extproc/core/a.ts"), "export const changed = 1;");
      expect(await ensureBuild({ root, log, compile }), "changed").to.equal(true);
      await writeFile(join(root, "extproc/core/b.ts"), "export {};");
      expect(await ensureBuild({ root, log, compile }), "came").to.equal(true);
      await rm(join(root, "extproc/core/b.ts"));
      expect(await ensureBuild({ root, log, compile }), "went").to.equal(true);
    });

    it("runs again after a build that failed", async () => {
      const failing = (): Promise<void> => Promise.reject(new Error("tsc failed (exit 2)"));
      const problem = await problemOf(ensureBuild({ root, log, compile: failing }));
      expect(problem).to.equal("tsc failed (exit 2)");
      expect(await ensureBuild({ root, log, compile })).to.equal(true);
    });
  });

  describe("npm", () => {
    it("is the npm that started us, when one did", () => {
      const npm = npmCommand(root, {
        npm_execpath: "/usr/lib/npm/bin/npm-cli.js",
        HOME: "/home/u",
      });
      expect(npm.command).to.equal(process.execPath);
      expect(npm.args).to.deep.equal(["/usr/lib/npm/bin/npm-cli.js"]);
      expect(npm.env).to.not.have.property("npm_config_cache");
    });

    it("is the one on PATH otherwise, also when another package manager started us", () => {
      expect(npmCommand(root, { npm_execpath: "/usr/lib/yarn.js" }).command).to.equal("npm");
      expect(npmCommand(root, {}).command).to.equal("npm");
    });

    it("gets a cache folder of our own when HOME is empty", () => {
      const { env } = npmCommand(root, { HOME: "" });
      expect(env["npm_config_cache"]).to.equal(join(root, ".cache/npm"));
    });
  });
});
