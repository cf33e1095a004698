// Runs every scenario of fair sharing in `npm run simulate` briefly, so that none of them rots, and looks at what it says.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { startProcess } from "../../support/process.js";
import { runSimulate } from "../command/command.js";
import { simulatePool, type PoolReport } from "./report.js";
import { SCENARIOS } from "./scenarios.js";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const LISTED = Object.keys(SCENARIOS);

async function run(...args: string[]): Promise<{ code: number; out: string; errors: string }> {
  const out: string[] = [];
  const errors: string[] = [];
  const code = await runSimulate(args, {
    print: (text) => out.push(text),
    complain: (text) => errors.push(text),
  });
  return { code, out: out.join("\n"), errors: errors.join("\n") };
}

/** What follows `node` in the script of that name. */
async function scriptArgs(): Promise<string[]> {
  const { scripts } = JSON.parse(await readFile("package.json", "utf8")) as {
    scripts: Record<string, string>;
  };
  const [node, ...args] = scripts["simulate"]?.split(" ") ?? [];
  expect(node).to.equal("node");
  return args;
}

function poolsOf(name: string, lengthMs = HOUR_MS): PoolReport[] {
  return (SCENARIOS[name]?.pools(lengthMs) ?? []).map((plan) => simulatePool(plan, 3, lengthMs));
}

/** Got over due, by contestant. */
function gains(report: PoolReport | undefined): Record<string, number> {
  const { contestants = [] } = report?.tally ?? {};
  return Object.fromEntries(
    contestants.map(({ name, servedTokens, dueTokens }) => [name, servedTokens / dueTokens]),
  );
}

describe("npm run simulate", function () {
  this.timeout(60_000);
  let folder = "";

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "weir-simulate-"));
  });

  after(async () => {
    await rm(folder, { recursive: true });
  });

  for (const name of LISTED) {
    it(`prints and draws ${name}, without a slot that idles while somebody waits`, async () => {
      const file = join(folder, `${name}.svg`);
      const { code, out, errors } = await run("--scenario", name, "--minutes", "5", "--out", file);
      expect({ code, errors }).to.deep.equal({ code: 0, errors: "" });
      const pools = SCENARIOS[name]?.pools(5 * MINUTE_MS) ?? [];
      expect(out).to.include("5 virtual minutes, seed 1");
      for (const figure of [/^Jain index of S\/w +[01]\.\d{4}$/gm, /^largest gap +/gm]) {
        expect(out.match(figure)).to.have.length(pools.length);
      }
      expect(out.match(/^idle slots meanwhile +0 ms/gm)).to.have.length(pools.length);
      expect(out).not.to.match(/[1-9]\d* violations/);
      const svg = await readFile(file, "utf8");
      expect(svg)
        .to.match(/^<svg /)
        .and.to.include("</svg>");
      for (const { contestants, tenants, title } of pools) {
        expect(svg).to.include(title);
        for (const tenant of tenants) expect(out).to.match(new RegExp(`^${tenant.name} `, "m"));
        for (const one of contestants)
          expect(svg).to.include(`${one.name} (${String(one.weight)})`);
      }
      for (const axis of ["time (seconds)", "output tokens", "output tokens per weight"]) {
        expect(svg).to.include(`>${axis}<`);
      }
    });
  }

  it("says the same for the same seed, and something else for another", async () => {
    const of = async (seed: string): Promise<string> =>
      (await run("--scenario", "two-to-one", "--minutes", "5", "--seed", seed)).out;
    expect(await of("7")).to.equal(await of("7"));
    expect((await of("7")).split("\n").slice(3)).not.to.deep.equal(
      (await of("8")).split("\n").slice(3),
    );
  });

  it("lists the scenarios when none is named", async () => {
    const { code, out } = await run();
    expect(code).to.equal(0);
    for (const name of LISTED) expect(out).to.match(new RegExp(`^  ${name} `, "m"));
  });

  for (const [args, reason] of [
    [["--scenario", "three-to-one"], '--scenario: "three-to-one" is unknown'],
    [["--scenario", "toString"], '--scenario: "toString" is unknown'],
    [
      ["--scenario", "two-to-one", "--minutes", "0"],
      '--minutes: a number from 1 to 10080, got "0"',
    ],
    [["--scenario", "two-to-one", "--seed", "1.5"], "--seed: a whole number from 0 to 4294967295"],
    [["--scenario", "two-to-one", "--seed", ""], "--seed: a whole number from 0 to 4294967295"],
    [["--weights", "2:1"], "Unknown option '--weights'"],
    [
      ["--scenario", "two-to-one", "--minutes", "-1"],
      '--minutes: a number from 1 to 10080, got "-1"',
    ],
    [
      ["--scenario", "two-to-one", "--minutes", "-.5"],
      '--minutes: a number from 1 to 10080, got "-.5"',
    ],
    [["--seed", "-1", "--scenario", "two-to-one"], "--seed: a whole number from 0 to 4294967295"],
    [
      ["--scenario", "two-to-one", "--minutes", "--seed", "1"],
      "Option '--minutes' argument is ambiguous",
    ],
    [
      ["--seed", "1", "--scenario", "two-to-one", "--seed=2"],
      "--seed: given twice; keep one of them",
    ],
    [
      ["--scenario", "two-to-one", "--scenario", "two-to-one"],
      "--scenario: given twice; keep one of them",
    ],
  ] as const) {
    it(`refuses ${args.join(" ")} with the reason and the list, exit code 2`, async () => {
      const { code, errors } = await run(...args);
      expect(code).to.equal(2);
      expect(errors).to.include(reason);
      for (const name of LISTED) expect(errors).to.include(name);
    });
  }

  it("looks before the run whether the drawing can be written, and says why not in one line, exit code 1", async () => {
    const missing = join(folder, "missing");
    const present = join(folder, "present");
    await writeFile(present, "");
    for (const [file, reason] of [
      [join(missing, "a.svg"), `the folder ${missing} does not exist`],
      [join(present, "a.svg"), `${present} is not a folder`],
      [folder, "it is a folder"],
      ["", "the name is empty"],
    ] as const) {
      const result = await run("--scenario", "two-to-one", "--out", file);
      const errors = `--out: cannot write "${file}": ${reason}`;
      expect(result).to.deep.equal({ code: 1, out: "", errors });
    }
  });

  it("ends quietly when nobody reads on, and draws all the same", async () => {
    const file = join(folder, "unread.svg");
    const child = spawn(
      process.execPath,
      [...(await scriptArgs()), "--scenario", "two-to-one", "--minutes", "1", "--out", file],
      { stdio: ["ignore", "pipe", "pipe"] },
    );
    child.stdout.destroy();
    let errors = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (errors += text));
    const [code] = (await once(child, "close")) as [number];
    expect({ code, errors }).to.deep.equal({ code: 0, errors: "" });
    expect(await readFile(file, "utf8")).to.include("</svg>");
  });

  it("is the script of that name, and ends with the exit code", async () => {
    const args = await scriptArgs();
    const wrong = startProcess(process.execPath, [...args, "--scenario", "nothing"]);
    expect((await wrong.ended).code, wrong.describe()).to.equal(2);
    expect(wrong.stderr).to.include("two-to-one");
  });
});

describe("what the scenarios show", () => {
  for (const name of ["two-to-one", "four-weights", "long-context", "disconnect-storm"]) {
    it(`${name}: in an hour each tenant gets its due within 5 %`, () => {
      for (const report of poolsOf(name)) {
        for (const gain of Object.values(gains(report))) expect(gain).to.be.within(0.95, 1.05);
      }
    });
  }

  it("disconnect-storm: clients that hang up pay no less than what was produced for them", () => {
    const [report] = poolsOf("disconnect-storm");
    for (const { name, producedTokens, chargedTokens } of report?.tally.tenants ?? []) {
      expect(chargedTokens, name).to.be.at.least(producedTokens);
    }
  });

  it("identity-flood: invented names gain nothing against named tenants of a profile", () => {
    const [profile] = poolsOf("identity-flood");
    for (const gain of Object.values(gains(profile))) expect(gain).to.be.within(0.95, 1.05);
  });

  it("identity-flood: with flat weights each name counts as a tenant, so a flood does gain", () => {
    const [, flat] = poolsOf("identity-flood");
    expect(gains(flat)["flood"]).to.be.greaterThan(3);
  });

  it("batch-and-interactive: conversations pass batch work, and a tenant's two kinds make one share", () => {
    const [report] = poolsOf("batch-and-interactive");
    expect(gains(report)["chatty"]).to.be.within(0.95, 1.05);
    const median = (name: string): number => {
      const { waitsMs = [] } = report?.tally.tenants.find((one) => one.name === name) ?? {};
      return [...waitsMs].sort((one, other) => one - other)[Math.floor(waitsMs.length / 2)] ?? 0;
    };
    expect(median("chatty, chat")).to.be.lessThan(median("chatty, batch") / 5);
  });

  it("held-clock: who comes while a waiter elsewhere is never served gets its share, and no more", () => {
    for (const report of poolsOf("held-clock")) {
      const { ada, ben, newcomer } = gains(report);
      for (const gain of [ada, ben, newcomer]) expect(gain).to.be.within(0.95, 1.05);
    }
  });

  it("model-and-flat: who has flat weights gets its turns beside a profile with debtors", () => {
    const [report] = poolsOf("model-and-flat");
    for (const gain of Object.values(gains(report))) expect(gain).to.be.within(0.85, 1.15);
  });

  it("leave-and-return: who was away gets its share again, and nothing for the time it was away", () => {
    const [report] = poolsOf("leave-and-return");
    const { samples, contestants } = report?.tally ?? { samples: [], contestants: [] };
    const servedAt = (ms: number): readonly number[] =>
      samples.findLast(({ atMs }) => atMs <= ms)?.servedTokens ?? [];
    const index = contestants.findIndex(({ name }) => name === "traveller");
    const steady = contestants.findIndex(({ name }) => name === "steady");
    const [back, end] = [servedAt((HOUR_MS * 2) / 3), servedAt(HOUR_MS)];
    const since = (at: number): number => (end[at] ?? 0) - (back[at] ?? 0);
    expect(since(index) / since(steady)).to.be.closeTo(5 / 3, 0.15);
  });
});
