// Each fault, seen from a client: what arrives, what does not, and what the worker counts.
import { expect } from "chai";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import { readFaultHeader, readFaults } from "../../envoy/mock-worker/faults.js";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import { chatBody, dataOf, post, until, withWorker, type Data } from "./with-worker.js";

const PATH = "/v1/chat/completions";
const STREAM = { stream: true, stream_options: { include_usage: true } };

interface Raw {
  readonly status: number | undefined;
  readonly headers: IncomingMessage["headers"];
  readonly trailers: IncomingMessage["trailers"];
  readonly body: Buffer;
  readonly error: string | undefined;
}

/** One request without decoding, redirects or retries; a cut connection is a result, not a throw. */
function raw(worker: MockWorker, mock: string, body: Data): Promise<Raw> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let answer: IncomingMessage | undefined;
    const done = (error?: NodeJS.ErrnoException): void => {
      resolve({
        status: answer?.statusCode,
        headers: answer?.headers ?? {},
        trailers: answer?.trailers ?? {},
        body: Buffer.concat(parts),
        error: error?.code,
      });
    };
    const options = {
      method: "POST",
      headers: { "x-mock": mock, "content-type": "application/json" },
    };
    const call = httpRequest(worker.url + PATH, options, (response) => {
      answer = response;
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("error", done);
      response.on("end", () => {
        done();
      });
    });
    call.on("error", done);
    call.end(JSON.stringify(body));
  });
}

describe("mock worker, faults of an answer", () => {
  it("status: answers an error body and never runs the request", async () => {
    await withWorker({}, async (worker) => {
      for (const status of [200, 429, 503]) {
        const answer = await post(worker, {
          path: PATH,
          body: chatBody("hi"),
          mock: `status=${String(status)}`,
        });
        expect(answer.status).to.equal(status);
        expect(((await answer.json()) as { error: Data }).error["code"]).to.equal(status);
      }
      const empty = await post(worker, { path: PATH, body: chatBody("hi"), mock: "status=204" });
      expect(await empty.text()).to.equal("");
      expect(worker.state()).to.include({ served: 0, faulted: 4, peak_running: 0 });
    });
  });

  it("status: speaks the dialect of the path", async () => {
    await withWorker({}, async (worker) => {
      const body = chatBody("hi", { max_tokens: 5 });
      const answer = await post(worker, { path: "/v1/messages", body, mock: "status=503" });
      expect(await answer.json()).to.deep.equal({
        type: "error",
        error: { type: "overloaded_error", message: "Injected fault." },
      });
    });
  });

  it("delay_ms: stays silent in its slot for that long", async () => {
    await withWorker({ clock: "manual" }, async (worker) => {
      let hasAnswer = false;
      const call = post(worker, { path: PATH, body: chatBody("hi"), mock: "delay_ms=200" });
      void call.then(() => {
        hasAnswer = true;
      });
      await until(() => worker.state().running === 1);
      worker.advance(199);
      await new Promise((resolve) => setImmediate(resolve));
      expect(hasAnswer).to.equal(false);
      expect(worker.state().tokens.prompt).to.equal(0);
      worker.advance(1);
      expect((await call).status).to.equal(200);
    });
  });

  it("delay_ms with status: the error comes late, and a client that left is not answered", async () => {
    await withWorker({ clock: "manual" }, async (worker) => {
      const leaving = new AbortController();
      const call = post(worker, {
        path: PATH,
        body: chatBody("hi"),
        mock: "delay_ms=200,status=500",
        signal: leaving.signal,
      });
      const outcome = call.catch(() => "left");
      const bytes = JSON.stringify(chatBody("hi")).length;
      await until(() => worker.state().last_requests[0]?.body_bytes === bytes);
      // The end of the body comes a turn after its last bytes.
      for (let i = 0; i < 3; i += 1) await new Promise((resolve) => setImmediate(resolve));
      leaving.abort();
      expect(await outcome).to.equal("left");
      await until(() => worker.state().cancelled === 1);
      worker.advance(200);
      expect(worker.state().faulted).to.equal(0);
    });
  });

  it("reset=before: cuts the connection before any byte", async () => {
    await withWorker({}, async (worker) => {
      const seen = await raw(worker, "reset=before", chatBody("hi"));
      expect(seen.status).to.equal(undefined);
      expect(seen.error).to.equal("ECONNRESET");
      expect(worker.state()).to.include({ served: 0, faulted: 1 });
    });
  });

  it("reset=after: cuts a JSON answer after half of its body", async () => {
    await withWorker({}, async (worker) => {
      const seen = await raw(worker, "reset=after", chatBody("hi"));
      expect(seen.status).to.equal(200);
      expect(seen.error).to.equal("ECONNRESET");
      expect(seen.body.length).to.equal(Math.floor(Number(seen.headers["content-length"]) / 2));
    });
  });

  it("reset=after: cuts a stream after half of its tokens and frees the slot", async () => {
    await withWorker({}, async (worker) => {
      const seen = await raw(worker, "reset=after,tokens=10", chatBody("hi", STREAM));
      expect(seen.error).to.equal("ECONNRESET");
      const chunks = dataOf(seen.body.toString());
      // The role and five tokens.
      expect(chunks).to.have.length(6);
      expect(worker.state()).to.include({ running: 0, faulted: 1, served: 0, cancelled: 0 });
    });
  });

  it("usage: leaves it out, writes null, or writes counts as texts", async () => {
    await withWorker({}, async (worker) => {
      const usage = async (mock: string): Promise<unknown> => {
        const answer = await post(worker, { path: PATH, body: chatBody("hi"), mock });
        return ((await answer.json()) as Data)["usage"];
      };
      expect(await usage("usage=none")).to.equal(undefined);
      expect(await usage("usage=null")).to.equal(null);
      expect(await usage("usage=wrong")).to.deep.equal({
        prompt_tokens: "2",
        completion_tokens: "16",
        total_tokens: "18",
        prompt_tokens_details: { cached_tokens: "0" },
      });
    });
  });

  it("usage: reaches streams of every dialect", async () => {
    await withWorker({}, async (worker) => {
      const bodies: [string, Data][] = [
        [PATH, chatBody("hi", STREAM)],
        ["/v1/completions", { model: "demo", prompt: "hi", ...STREAM }],
        ["/v1/responses", { model: "demo", input: "hi", stream: true }],
        ["/v1/messages", chatBody("hi", { max_tokens: 9, stream: true })],
        ["/generate", { text: "hi", stream: true }],
      ];
      for (const [path, body] of bodies) {
        const normal = await (await post(worker, { path, body })).text();
        const none = await (await post(worker, { path, body, mock: "usage=none" })).text();
        expect(normal, path).to.match(/"(completion|output)_tokens":\d/);
        expect(none, path).not.to.match(/"(completion|output)_tokens":/);
      }
    });
  });

  it("encoding: compresses whole answers and streams", async () => {
    const decoders = { gzip: gunzipSync, deflate: inflateSync, br: brotliDecompressSync };
    await withWorker({}, async (worker) => {
      for (const [name, decode] of Object.entries(decoders)) {
        const json = await raw(worker, `encoding=${name}`, chatBody("hi"));
        expect(json.headers["content-encoding"]).to.equal(name);
        expect(Number(json.headers["content-length"])).to.equal(json.body.length);
        const answer = JSON.parse(decode(json.body).toString()) as Data;
        expect(answer["object"]).to.equal("chat.completion");
        const stream = await raw(worker, `encoding=${name}`, chatBody("hi", STREAM));
        expect(stream.headers["content-encoding"]).to.equal(name);
        expect(dataOf(decode(stream.body).toString()).at(-1)).to.equal("[DONE]");
      }
    });
  });

  it("encoding: every event of a stream leaves at once", async () => {
    await withWorker({ clock: "manual", msPerToken: 10 }, async (worker) => {
      const answer = await post(worker, {
        path: PATH,
        body: chatBody("hi", STREAM),
        mock: "encoding=gzip,headers=early",
      });
      const reader = answer.body?.getReader();
      await until(() => worker.state().tokens.prompt === 2);
      worker.advance(10);
      const first = await reader?.read();
      expect(first?.done).to.equal(false);
      expect(worker.state().tokens.completion).to.equal(1);
      await reader?.cancel();
    });
  });

  it("hang: takes a slot, never answers, and counts as cancelled when the client leaves", async () => {
    await withWorker({}, async (worker) => {
      const leaving = new AbortController();
      const body = chatBody("hi");
      const call = post(worker, { path: PATH, body, mock: "hang", signal: leaving.signal });
      const outcome = call.catch(() => "left");
      await until(() => worker.state().running === 1);
      leaving.abort();
      expect(await outcome).to.equal("left");
      await until(() => worker.state().running === 0);
      expect(worker.state()).to.include({ cancelled: 1, served: 0 });
    });
  });

  it("headers: come with the first token, or early when asked", async () => {
    await withWorker({ clock: "manual", msPerToken: 10 }, async (worker) => {
      const body = chatBody("hi", STREAM);
      const early = await post(worker, { path: PATH, body, mock: "headers=early,tokens=1" });
      expect(early.status).to.equal(200);
      expect(worker.state().tokens.completion).to.equal(0);
      let hasHeaders = false;
      const late = post(worker, { path: PATH, body, mock: "tokens=1" });
      void late.then(() => {
        hasHeaders = true;
      });
      await until(() => worker.state().tokens.prompt === 4);
      expect(hasHeaders).to.equal(false);
      worker.advance(10);
      expect(dataOf(await (await late).text()).at(-1)).to.equal("[DONE]");
      expect(dataOf(await early.text()).at(-1)).to.equal("[DONE]");
    });
  });

  it("tokens and text: exact length whatever the limit, any text, also one that looks like an end", async () => {
    await withWorker({}, async (worker) => {
      const body = chatBody("hi", { max_tokens: 5 });
      const mock = "tokens=37,text=data%3A%20%5BDONE%5D%0A%0A";
      const answer = await post(worker, { path: PATH, body, mock });
      const { usage, choices } = (await answer.json()) as { usage: Data; choices: Data[] };
      expect(usage["completion_tokens"]).to.equal(37);
      expect(choices[0]?.["finish_reason"]).to.equal("stop");
      const { content } = choices[0]?.["message"] as { content: string };
      expect(content).to.equal("data: [DONE]\n\n".repeat(37));
    });
  });

  it("truncate: ends the HTTP answer in good order with half of the JSON", async () => {
    await withWorker({}, async (worker) => {
      const seen = await raw(worker, "truncate", chatBody("hi"));
      expect(seen.error).to.equal(undefined);
      expect(Number(seen.headers["content-length"])).to.equal(seen.body.length);
      expect(() => JSON.parse(seen.body.toString()) as unknown).to.throw(SyntaxError);
      const stream = await raw(worker, "truncate", chatBody("hi", STREAM));
      expect(stream.error).to.equal(undefined);
      expect(stream.body.toString()).not.to.contain("[DONE]");
      expect(stream.body.toString()).not.to.contain("completion_tokens");
    });
  });

  it("error_event: breaks a stream by an error in its dialect", async () => {
    await withWorker({}, async (worker) => {
      const chat = await raw(worker, "error_event", chatBody("hi", STREAM));
      const events = dataOf(chat.body.toString());
      expect(events.at(-1)).to.equal("[DONE]");
      expect((events.at(-2) as { error: Data }).error["code"]).to.equal(500);
      // The role, eight of sixteen tokens, the error, the end.
      expect(events).to.have.length(11);
      const messages = await post(worker, {
        path: "/v1/messages",
        body: chatBody("hi", { stream: true, max_tokens: 20 }),
        mock: "error_event",
      });
      expect(await messages.text()).to.contain('event: error\ndata: {"type":"error","error":');
      expect(worker.state()).to.include({ faulted: 2, running: 0 });
    });
  });

  it("usage_split: writes the last events of a stream in chunks of one byte", async () => {
    await withWorker({}, async (worker) => {
      const body = JSON.stringify(chatBody("hi", STREAM));
      const text = await new Promise<string>((resolve) => {
        let all = "";
        const socket = connect(worker.port, "127.0.0.1", () => {
          socket.write(
            `POST ${PATH} HTTP/1.1\r\nhost: x\r\nx-mock: usage_split\r\n` +
              `connection: close\r\ncontent-length: ${String(body.length)}\r\n\r\n${body}`,
          );
        });
        socket.on("data", (part) => (all += part.toString()));
        socket.on("close", () => {
          resolve(all);
        });
      });
      const single = text.match(/(?<=\r\n)1\r\n.\r\n/gs)?.map((chunk) => chunk[3]) ?? [];
      expect(single.join("")).to.contain('"completion_tokens":16');
      expect(single.join("").endsWith("data: [DONE]\n\n")).to.equal(true);
    });
  });

  it("usage_split: leaves the bytes of a JSON answer as they are", async () => {
    await withWorker({}, async (worker) => {
      const seen = await raw(worker, "usage_split", chatBody("hi"));
      expect(Number(seen.headers["content-length"])).to.equal(seen.body.length);
      const answer = JSON.parse(seen.body.toString()) as { usage: Data };
      expect(answer.usage["completion_tokens"]).to.equal(16);
    });
  });

  it("trailers: close whole answers and streams", async () => {
    await withWorker({}, async (worker) => {
      for (const body of [chatBody("hi"), chatBody("hi", STREAM)]) {
        const seen = await raw(worker, "trailers", body);
        expect(seen.headers["transfer-encoding"]).to.equal("chunked");
        expect(seen.trailers["x-mock-trailer"]).to.equal("end");
      }
    });
  });
});

describe("mock worker, asking for faults", () => {
  it("keeps posted faults for all following requests until they are deleted", async () => {
    await withWorker({}, async (worker) => {
      const control = `${worker.url}/mock/faults`;
      const set = await fetch(control, { method: "POST", body: '{"status":503}' });
      expect(set.status).to.equal(200);
      const status = async (mock?: string): Promise<number> => {
        const call = { path: PATH, body: chatBody("hi"), ...(mock === undefined ? {} : { mock }) };
        return (await post(worker, call)).status;
      };
      expect(await status()).to.equal(503);
      expect(await status("status=429")).to.equal(429);
      expect((await fetch(`${worker.url}/v1/models`)).status).to.equal(503);
      await fetch(control, { method: "DELETE" });
      expect(await status()).to.equal(200);
    });
  });

  it("refuses an unknown fault, a bad value and worker faults in a header, naming them", async () => {
    const message = (text: string): string => {
      const result = readFaultHeader(text);
      return result.kind === "error" ? result.message : "";
    };
    expect(message("statsu=503")).to.contain('unknown fault "statsu"').and.contain("delay_ms");
    expect(message("status=600")).to.contain("status is 600").and.contain("from 200 to 599");
    expect(message("status=199")).to.contain("status is 199");
    expect(message("usage=some")).to.contain("one of none, null, wrong");
    expect(message("hang=maybe")).to.contain("true or false");
    expect(message("stale_metrics")).to.contain("unknown fault");
    expect(message("status=200")).to.equal("");
    expect(message("status=599, hang")).to.equal("");
    expect(readFaults([]).kind).to.equal("error");
    await withWorker({}, async (worker) => {
      const answer = await post(worker, { path: PATH, body: chatBody("hi"), mock: "nope" });
      expect(answer.status).to.equal(400);
      const set = await fetch(`${worker.url}/mock/faults`, { method: "POST", body: "[]" });
      expect(set.status).to.equal(400);
    });
  });
});
