import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { expect } from "chai";
import { HealthProber } from "../../../extproc/edge/engines/health-prober.js";
import { HEALTH } from "../../support/workers.js";

describe("HealthProber", () => {
  let server: Server;
  let url: string;
  let status = 200;
  let paths: string[] = [];
  let probers: HealthProber[] = [];

  before(async () => {
    server = createServer((request, response) => {
      paths.push(request.url ?? "");
      if (status === 0) return;
      response.writeHead(status, status === 302 ? { location: "/elsewhere" } : {}).end("x");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    url = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
  });
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  beforeEach(() => {
    status = 200;
    paths = [];
  });
  afterEach(() => {
    for (const prober of probers) prober.stop();
    probers = [];
  });

  /** Runs probes until so many results are in. */
  function results(
    count: number,
    urls: readonly string[],
    over: Partial<typeof HEALTH> = {},
  ): Promise<{ readonly seen: (readonly [string, boolean])[]; readonly allChecked: number }> {
    return new Promise((resolve) => {
      const seen: (readonly [string, boolean])[] = [];
      let allChecked = 0;
      const prober = new HealthProber({
        health: { ...HEALTH, timeout_secs: 0.2, interval_secs: 0.05, ...over },
        urls,
        onResult: (probed, passed) => {
          seen.push([probed, passed]);
          // The turn goes on, so that onAllChecked of the same result is counted too.
          if (seen.length === count)
            setImmediate(() => {
              resolve({ seen, allChecked });
            });
        },
        onAllChecked: () => {
          allChecked += 1;
        },
      });
      probers.push(prober);
      prober.start();
    });
  }

  it("passes on 2xx at the configured path, again and again, and says once that all were checked", async () => {
    const { seen, allChecked } = await results(3, [url], { path: "/ready?x=1" });
    expect(seen).to.deep.equal([
      [url, true],
      [url, true],
      [url, true],
    ]);
    expect(paths.slice(0, 3)).to.deep.equal(["/ready?x=1", "/ready?x=1", "/ready?x=1"]);
    expect(allChecked).to.equal(1);
  });

  for (const [title, answer] of [
    ["503", 503],
    ["404", 404],
    ["a redirect, which it does not follow", 302],
    ["no answer in time", 0],
  ] as const) {
    it(`fails on ${title}`, async () => {
      status = answer;
      expect((await results(1, [url])).seen).to.deep.equal([[url, false]]);
      expect(paths).to.not.include("/elsewhere");
    });
  }

  it("fails on a refused connection, and counts all workers as checked only when each one was", async () => {
    const dead = "http://127.0.0.1:1";
    const { seen, allChecked } = await results(2, [url, dead], { interval_secs: 60 });
    expect(new Map(seen)).to.deep.equal(
      new Map([
        [url, true],
        [dead, false],
      ]),
    );
    expect(allChecked).to.equal(1);
  });

  it("reports nothing after it was stopped, also of a probe under way", async () => {
    status = 0;
    const heard: boolean[] = [];
    const prober = new HealthProber({
      health: HEALTH,
      urls: [url],
      onResult: (_url, passed) => heard.push(passed),
      onAllChecked: () => undefined,
    });
    prober.start();
    while (paths.length === 0) await new Promise((resolve) => setImmediate(resolve));
    prober.stop();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(heard).to.deep.equal([]);
  });
});
