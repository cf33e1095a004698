// Goal: the judge of the replayed incident sees two seeds at once where there are two, its picture shows
// what was measured, and its command refuses what it does not understand. Method: runs made by hand.

import { expect } from "chai";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { incidentSvg } from "./incident-chart.js";
import { mostAtOnce } from "./incident-seeds.js";
import { variedTokens } from "./incident-load.js";
import type { IncidentRun, Visit } from "./incident.js";
import { startProcess } from "./process.js";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

const visit = (fromMs: number, untilMs: number | undefined): Visit => ({
  worker: 0,
  requestId: String(fromMs),
  fromMs,
  untilMs,
});

describe("the replayed incident", () => {
  it("counts how many visits overlap at most; who leaves when another comes is gone", () => {
    expect(mostAtOnce([])).to.equal(0);
    expect(mostAtOnce([visit(0, 10), visit(10, 20), visit(25, 30)])).to.equal(1);
    expect(mostAtOnce([visit(0, 11), visit(10, 20), visit(25, 30)])).to.equal(2);
    expect(mostAtOnce([visit(10, 20), visit(0, undefined), visit(5, 15)])).to.equal(3);
  });

  it("varies the lengths of answers around the wanted one, so that they do not end together", () => {
    const lengths = Array.from({ length: 17 }, (_, index) => variedTokens(64, index));
    expect([Math.min(...lengths), Math.max(...lengths)]).to.deep.equal([48, 80]);
    expect(new Set(lengths)).to.have.length(17);
    expect(lengths.reduce((sum, length) => sum + length, 0) / 17).to.equal(64);
  });

  it("is drawn with a row for each engine and a column for each run", async () => {
    const loads = [
      { running: 38, waiting: 102 },
      { running: 0, waiting: 0 },
    ];
    const run = (seeding: boolean): IncidentRun => ({
      ...{ seeding, hot: 0, urls: ["a", "b"], visits: [], records: [], burstStatuses: [] },
      served: [1, 0],
      samples: [0, 1_000, 2_000].map((atMs) => ({ atMs, loads, answered: 1, refused: 2 })),
    });
    const svg = await incidentSvg([run(false), run(true)]);
    for (const text of ["seeding off", "seeding on", "owner", "peer 1", "refused"]) {
      expect(svg).to.contain(`>${text}<`);
    }
    expect(svg).to.not.contain("peer 2").and.to.not.contain("NaN");
  });

  it("is refused by its command with exit code 2 for a length out of range", async () => {
    const args = ["--import", "tsx", "test/support/incident-command.ts", "--seconds", "301"];
    const child = startProcess(process.execPath, args, { name: "incident", cwd: REPOSITORY });
    expect(await child.ended, child.describe()).to.deep.equal({ code: 2, signal: null });
    expect(child.stderr).to.contain("a whole number from 10 to 300, got 301");
  }).timeout(30_000);
});
