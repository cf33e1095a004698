// The worker as a server: slots under load, clients that leave, the log of requests, the small paths
// of an engine, its control paths, its flags, and the program that tests and demos start.
import { expect } from "chai";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { DEFAULT_OPTIONS, readFlags } from "../../envoy/mock-worker/options.js";
import { startMockWorker, type MockWorker } from "../../envoy/mock-worker/server.js";
import { chatBody, post, until, withWorker, type Data } from "./with-worker.js";

const PATH = "/v1/chat/completions";
const statusOf = async (worker: MockWorker, path: string, method = "GET"): Promise<number> =>
  (await fetch(worker.url + path, { method })).status;

describe("mock worker under load", () => {
  it("never runs more than its slots and answers everybody", async () => {
    await withWorker({ slots: 3 }, async (worker) => {
      const calls = Array.from({ length: 40 }, (_, i) =>
        post(worker, { path: PATH, body: chatBody(`n ${String(i)}`, { stream: i % 2 === 0 }) }),
      );
      const answers = await Promise.all(calls);
      await Promise.all(answers.map((answer) => answer.text()));
      expect(answers.every((answer) => answer.status === 200)).to.equal(true);
      await until(() => worker.state().served === 40);
      expect(worker.state()).to.include({ peak_running: 3, running: 0, waiting: 0 });
    });
  });

  it("frees the slot of a client that leaves in the middle of a stream", async () => {
    await withWorker({ slots: 1, clock: "manual", msPerToken: 10 }, async (worker) => {
      const leaving = new AbortController();
      const body = chatBody("hi", { stream: true });
      const mock = "headers=early";
      const answer = await post(worker, { path: PATH, body, mock, signal: leaving.signal });
      const second = post(worker, { path: PATH, body: chatBody("next") });
      await until(() => worker.state().waiting === 1);
      leaving.abort();
      await answer.text().catch(() => "cut");
      await until(() => worker.state().cancelled === 1);
      // The second one takes the free slot and ends.
      await until(() => worker.state().running === 1 && worker.state().tokens.prompt > 2);
      worker.advance(160);
      expect((await second).status).to.equal(200);
      expect(worker.state()).to.include({ served: 1, cancelled: 1, running: 0 });
    });
  });

  it("forgets a client that leaves while it waits for a slot", async () => {
    await withWorker({ slots: 1 }, async (worker) => {
      const holding = new AbortController();
      const waiting = new AbortController();
      const body = chatBody("hi");
      const first = post(worker, { path: PATH, body, mock: "hang", signal: holding.signal });
      await until(() => worker.state().running === 1);
      const second = post(worker, { path: PATH, body, signal: waiting.signal });
      await until(() => worker.state().waiting === 1);
      const outcomes = [first, second].map((call) => call.catch(() => "left"));
      waiting.abort();
      await until(() => worker.state().waiting === 0);
      expect(worker.state()).to.include({ running: 1, cancelled: 1 });
      holding.abort();
      await Promise.all(outcomes);
    });
  });
});

describe("mock worker, what reached it", () => {
  it("shows method, path, headers and body bytes, but no polls", async () => {
    await withWorker({}, async (worker) => {
      const body = JSON.stringify(chatBody("hi"));
      await statusOf(worker, "/health");
      await statusOf(worker, "/metrics");
      const answer = await fetch(`${worker.url}${PATH}?a=1`, {
        method: "POST",
        headers: { authorization: "Bearer secret", "x-own": "v" },
        body,
      });
      expect(answer.headers.get("x-mock-worker")).to.equal(String(worker.port));
      expect(Number(answer.headers.get("content-length"))).to.equal((await answer.text()).length);
      const seen = worker.state().last_requests;
      expect(seen).to.have.length(1);
      expect(seen[0]).to.include({
        method: "POST",
        path: `${PATH}?a=1`,
        body_bytes: Buffer.byteLength(body),
      });
      expect(seen[0]?.headers).to.include({ authorization: "Bearer secret", "x-own": "v" });
    });
  });

  it("says from when to when each was there, by the worker's clock", async () => {
    await withWorker({ clock: "manual", msPerToken: 100 }, async (worker) => {
      const [body, leaving] = [chatBody("hi", { max_tokens: 2 }), new AbortController()];
      const answered = post(worker, { path: PATH, body });
      await until(() => worker.state().running === 1);
      const [here] = worker.state().last_requests;
      expect(here?.left_at_ms).to.equal(null);
      // Prefill ends in a later turn, and tokens count from there.
      await until(() => worker.state().tokens.prompt > 0);
      worker.advance(200);
      await answered;
      const gone = post(worker, { path: PATH, body, signal: leaving.signal }).catch(() => "left");
      await until(() => worker.state().running === 1);
      worker.advance(30);
      leaving.abort();
      await until(() => worker.state().cancelled === 1);
      await gone;
      const start = here?.arrived_at_ms ?? NaN;
      const visits = worker
        .state()
        .last_requests.map((seen) => [
          seen.arrived_at_ms - start,
          (seen.left_at_ms ?? NaN) - start,
        ]);
      expect(visits).to.deep.equal([
        [0, 200],
        [200, 230],
      ]);
    });
  });

  it("keeps the last 50 and drops the one before them", async () => {
    await withWorker({}, async (worker) => {
      for (let i = 0; i < 51; i += 1) await statusOf(worker, `/v1/models?i=${String(i)}`);
      const seen = worker.state().last_requests;
      expect(seen).to.have.length(50);
      expect(seen[0]?.path).to.equal("/v1/models?i=1");
    });
  });

  it("takes a body of 20 MB and refuses one past 64 MB without cutting the upload", async () => {
    await withWorker({}, async (worker) => {
      const mib = 1024 * 1024;
      const large = await post(worker, { path: PATH, body: chatBody("a".repeat(20 * mib)) });
      expect(large.status).to.equal(200);
      const huge = await post(worker, { path: PATH, body: " ".repeat(64 * mib + 1) });
      expect(huge.status).to.equal(413);
      const limit = await post(worker, { path: PATH, body: " ".repeat(64 * mib) });
      expect(limit.status).to.equal(400);
    });
  }).timeout(10_000);
});

describe("mock worker, paths of an engine", () => {
  it("lists its models, and knows one by name", async () => {
    await withWorker({ models: ["demo", "org/other"] }, async (worker) => {
      const list = (await (await fetch(`${worker.url}/v1/models`)).json()) as { data: Data[] };
      expect(list.data.map((model) => model["id"])).to.deep.equal(["demo", "org/other"]);
      expect(list.data[0]).to.include({ object: "model", owned_by: "vllm" });
      expect(await statusOf(worker, "/v1/models/org%2Fother")).to.equal(200);
      expect(await statusOf(worker, "/v1/models/org/other", "HEAD")).to.equal(200);
      expect(await statusOf(worker, "/v1/models/nope")).to.equal(404);
      expect(await statusOf(worker, "/v1/models/%zz")).to.equal(404);
      expect(await statusOf(worker, "/version")).to.equal(200);
    });
  });

  it("answers 404 and 405 as its kind of server does, also to odd paths", async () => {
    await withWorker({}, async (worker) => {
      expect(await statusOf(worker, "/nope")).to.equal(404);
      expect(await statusOf(worker, "//")).to.equal(404);
      expect(await statusOf(worker, "/mock/nope")).to.equal(404);
      expect(await statusOf(worker, PATH)).to.equal(405);
    });
  });

  it("flushes its cache and aborts requests on its administration paths", async () => {
    await withWorker({ engine: "sglang", blockChars: 4, slots: 1 }, async (worker) => {
      await post(worker, { path: "/generate", body: { text: "aaaabbbbc" } });
      expect(worker.state().cache.blocks).to.equal(2);
      expect(await statusOf(worker, "/flush_cache", "POST")).to.equal(200);
      expect(worker.state().cache.blocks).to.equal(0);
      const body = { text: "x", rid: "one" };
      const hanging = post(worker, { path: "/generate", body, mock: "hang" });
      const waiting = post(worker, { path: "/generate", body: { text: "y", rid: "two" } });
      await until(() => worker.state().waiting === 1);
      await post(worker, { path: "/abort_request", body: { abort_all: true } });
      for (const call of [hanging, waiting]) {
        const answer = (await (await call).json()) as { meta_info: Data };
        expect(answer.meta_info["finish_reason"]).to.include({ type: "abort" });
      }
    });
  });

  it("keeps counting where it was after a reset of its counters", async () => {
    await withWorker({}, async (worker) => {
      await post(worker, { path: PATH, body: chatBody("hi") });
      const reset = await fetch(`${worker.url}/mock/reset`, { method: "POST" });
      expect(await reset.json()).to.deep.equal({
        running: 0,
        waiting: 0,
        peak_running: 0,
        served: 0,
        cancelled: 0,
        faulted: 0,
        cache: { hits: 0, queries: 0, blocks: 0, evictions: 0 },
        tokens: { prompt: 0, completion: 0 },
        last_requests: [],
      });
      await post(worker, { path: PATH, body: chatBody("hi") });
      const state = (await (await fetch(`${worker.url}/mock/state`)).json()) as Data;
      expect(state).to.include({ served: 1, peak_running: 1 });
    });
  });

  it("advances a manual clock over HTTP, and refuses on a real one", async () => {
    const advance = (worker: MockWorker, ms: unknown): Promise<Response> =>
      fetch(`${worker.url}/mock/advance`, { method: "POST", body: JSON.stringify({ ms }) });
    await withWorker({ clock: "manual" }, async (worker) => {
      expect(await (await advance(worker, 70)).json()).to.deep.equal({ now_ms: 70 });
      expect((await advance(worker, -1)).status).to.equal(400);
    });
    await withWorker({}, async (worker) => {
      expect((await advance(worker, 1)).status).to.equal(409);
      expect(() => {
        worker.advance(1);
      }).to.throw("real clock");
    });
  });
});

describe("mock worker, start and end", () => {
  it("rejects a port that is taken", async () => {
    await withWorker({}, async (worker) => {
      const error = await startMockWorker({ port: worker.port }).catch((why: unknown) => why);
      expect((error as NodeJS.ErrnoException).code).to.equal("EADDRINUSE");
    });
  });

  it("reads every flag, in both spellings", () => {
    const words =
      "--host 127.0.0.2 --port=0 --model a,b --model c --engine sglang --slots 4 --ms-per-token 0.5 " +
      "--prefill-ms-per-block 3 --kv-blocks 10 --block-chars 64 --clock manual";
    expect(readFlags(words.split(" "))).to.deep.equal({
      kind: "options",
      options: {
        host: "127.0.0.2",
        port: 0,
        models: ["a", "b", "c"],
        engine: "sglang",
        slots: 4,
        msPerToken: 0.5,
        prefillMsPerBlock: 3,
        kvBlocks: 10,
        blockChars: 64,
        clock: "manual",
      },
    });
    expect(readFlags([])).to.deep.equal({ kind: "options", options: DEFAULT_OPTIONS });
  });

  it("names the flag, the value and what is allowed", () => {
    const message = (...words: string[]): string => {
      const result = readFlags(words);
      return result.kind === "error" ? result.message : "";
    };
    expect(message("--slot", "4")).to.contain('unknown flag "--slot"').and.contain("--slots");
    expect(message("--slots", "0")).to.contain("--slots").and.contain("from 1 to 100000");
    expect(message("--slots", "1")).to.equal("");
    expect(message("--slots", "100000")).to.equal("");
    expect(message("--slots", "100001")).to.contain('"100001"');
    expect(message("--slots", "1.5")).to.contain("a whole number");
    expect(message("--port", "65536")).to.contain("from 0 to 65535");
    expect(message("--port", "65535")).to.equal("");
    expect(message("--engine", "tgi")).to.contain("one of vllm, sglang");
    expect(message("--block-chars", "6")).to.contain("a multiple of 4");
    expect(message("--model", "a,,b")).to.contain("comma list");
    expect(message("--port")).to.contain("needs a value");
    expect(message("constructor")).to.contain("unknown flag");
  });

  const program = ["--import", "tsx", "envoy/mock-worker/main.ts"];

  it("ends the program with code 2 on a bad flag", async () => {
    const child = spawn(process.execPath, [...program, "--nope"], { stdio: "pipe" });
    let text = "";
    child.stderr.on("data", (part: Buffer) => (text += part.toString()));
    const [code] = (await once(child, "close")) as [number];
    expect(code).to.equal(2);
    expect(text).to.contain('mock-worker: unknown flag "--nope"');
  }).timeout(20_000);

  it("says where it listens, and ends on SIGTERM although a stream is open", async () => {
    const child = spawn(process.execPath, [...program, "--port", "0"], { stdio: "pipe" });
    try {
      const [line] = (await once(child.stdout, "data")) as [Buffer];
      const url = /http:\/\/127\.0\.0\.1:\d+/.exec(line.toString())?.[0] ?? "";
      expect(line.toString()).to.equal(`mock worker (vllm, demo) on ${url}\n`);
      const answer = await fetch(url + PATH, {
        method: "POST",
        headers: { "x-mock": "headers=early,hang" },
        body: JSON.stringify(chatBody("hi", { stream: true })),
      });
      child.kill("SIGTERM");
      const [code] = (await once(child, "close")) as [number];
      expect(code).to.equal(0);
      expect(await answer.text().catch(() => "cut")).to.equal("cut");
    } finally {
      child.kill("SIGKILL");
    }
  }).timeout(20_000);
});
