// Goal: the bans on code in extproc/core fire there, and only there. Method: the rules that ESLint
// computes for a file of core and for a file of an edge are applied to planted snippets. Rules that
// need types are left out: the compiler's own tests cover those.
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "chai";
import { ESLint, Linter } from "eslint";
import tseslint from "typescript-eslint";

type RuleTable = NonNullable<Linter.Config["rules"]>;

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const IN_CORE = "extproc/core/model/time.ts";
const IN_INVARIANT = "extproc/core/model/invariant.ts";
const IN_EDGE = "extproc/edge/runtime/clock.ts";

/** Code that core must not hold, and the rule that says so. */
const IMPURE: readonly (readonly [code: string, rule: string])[] = [
  ["export const now = Date.now();", "no-restricted-globals"],
  ["export const now = performance.now();", "no-restricted-globals"],
  ["setTimeout(() => undefined, 1);", "no-restricted-globals"],
  ["queueMicrotask(() => undefined);", "no-restricted-globals"],
  ["export const port = process.env['PORT'];", "no-restricted-globals"],
  ["export const bytes = Buffer.alloc(1);", "no-restricted-globals"],
  ["console.log(1);", "no-restricted-globals"],
  ["export const chance = Math.random();", "no-restricted-properties"],
  ["export async function later() {}", "no-restricted-syntax"],
  ["export const later = async () => 1;", "no-restricted-syntax"],
  ["export const later = new Promise(() => undefined);", "no-restricted-syntax"],
  ["export function fail() { throw new Error('no'); }", "no-restricted-syntax"],
];
const SHAPELESS: readonly string[] = ["export default 1;", 'export * from "./time.js";'];

describe("lint rules", function () {
  this.timeout(30_000);
  const eslint = new ESLint({
    cwd: REPOSITORY,
    overrideConfigFile: join(REPOSITORY, "test/arch/eslint.config.js"),
  });

  /** The rules that find something in `code` when it stands in the file `path`. */
  async function findings(path: string, code: string): Promise<readonly (string | null)[]> {
    const config = (await eslint.calculateConfigForFile(path)) as { readonly rules: RuleTable };
    const rules = Object.fromEntries(
      Object.entries(config.rules).filter(([name]) => name.startsWith("no-restricted-")),
    );
    const languageOptions = { parser: tseslint.parser as Linter.Parser };
    const found = new Linter().verify(code, [{ files: ["**/*.ts"], languageOptions, rules }], {
      filename: "planted.ts",
    });
    return found.map((message) => message.ruleId);
  }

  for (const [code, rule] of IMPURE) {
    it(`refuse in core: ${code}`, async () => {
      expect(await findings(IN_CORE, code)).to.deep.equal([rule]);
      expect(await findings(IN_EDGE, code)).to.deep.equal([]);
    });
  }

  it("let invariant.ts throw, and nothing else of the bans", async () => {
    expect(await findings(IN_INVARIANT, "throw new Error('bug');")).to.deep.equal([]);
    expect(await findings(IN_INVARIANT, "export async function later() {}")).to.deep.equal([
      "no-restricted-syntax",
    ]);
  });

  for (const code of SHAPELESS) {
    it(`refuse everywhere: ${code}`, async () => {
      for (const path of [IN_CORE, IN_EDGE, "envoy/mock-worker/main.ts"]) {
        expect(await findings(path, code), path).to.deep.equal(["no-restricted-syntax"]);
      }
    });
  }
});
