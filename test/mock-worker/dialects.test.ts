// Every dialect, whole and as a stream, checked field by field; the official clients read what they
// have clients for. Token counts are worked out by hand: a token is four characters, and a chat
// message is its role, a line feed, its content and a line feed.
import Anthropic from "@anthropic-ai/sdk";
import { expect } from "chai";
import OpenAI from "openai";
import type { MockWorker } from "../../envoy/mock-worker/server.js";
import { chatBody, dataOf, post, withWorker, type Data } from "./with-worker.js";

const openai = (worker: MockWorker, mock?: string): OpenAI =>
  new OpenAI({
    baseURL: `${worker.url}/v1`,
    apiKey: "none",
    maxRetries: 0,
    ...(mock === undefined ? {} : { defaultHeaders: { "x-mock": mock } }),
  });

const anthropic = (worker: MockWorker): Anthropic =>
  new Anthropic({ baseURL: worker.url, apiKey: "none", maxRetries: 0 });

const say = (content: string): { role: "user"; content: string }[] => [{ role: "user", content }];

describe("mock worker, chat completions", () => {
  it("answers whole with usage that counts the prompt by four characters", async () => {
    await withWorker({}, async (worker) => {
      // "user\nhello there\n" has 17 characters: 5 tokens.
      const answer = await openai(worker).chat.completions.create({
        model: "demo",
        messages: say("hello there"),
      });
      expect(answer.object).to.equal("chat.completion");
      expect(answer.id).to.match(/^chatcmpl-/);
      expect(answer.model).to.equal("demo");
      expect(answer.choices).to.have.length(1);
      const choice = answer.choices[0];
      expect(choice?.finish_reason).to.equal("stop");
      expect(choice?.message.role).to.equal("assistant");
      expect(choice?.message.content?.split(" ")).to.have.length(16);
      expect(answer.usage).to.deep.equal({
        prompt_tokens: 5,
        completion_tokens: 16,
        total_tokens: 21,
        prompt_tokens_details: { cached_tokens: 0 },
      });
    });
  });

  it("stops at the limit with finish reason length and counts all choices of n", async () => {
    await withWorker({}, async (worker) => {
      const answer = await openai(worker).chat.completions.create({
        model: "demo",
        messages: say("hi"),
        max_completion_tokens: 5,
        n: 3,
      });
      expect(answer.choices.map((choice) => choice.index)).to.deep.equal([0, 1, 2]);
      for (const choice of answer.choices) {
        expect(choice.finish_reason).to.equal("length");
        expect(choice.message.content?.split(" ")).to.have.length(5);
      }
      expect(answer.usage?.completion_tokens).to.equal(15);
    });
  });

  it("gives equal prompts equal answers", async () => {
    await withWorker({}, async (worker) => {
      const ask = async (): Promise<string | null | undefined> =>
        (await openai(worker).chat.completions.create({ model: "demo", messages: say("again") }))
          .choices[0]?.message.content;
      expect(await ask()).to.equal(await ask());
    });
  });

  it("streams role, tokens, finish reason and DONE without usage when nobody asked", async () => {
    await withWorker({}, async (worker) => {
      const body = chatBody("hi", { stream: true, max_tokens: 2 });
      const answer = await post(worker, { path: "/v1/chat/completions", body });
      expect(answer.headers.get("content-type")).to.equal("text/event-stream; charset=utf-8");
      expect(answer.headers.get("transfer-encoding")).to.equal("chunked");
      const data = dataOf(await answer.text());
      expect(data.at(-1)).to.equal("[DONE]");
      const chunks = data.slice(0, -1) as Data[];
      const deltas = chunks.map((chunk) => (chunk["choices"] as Data[])[0] ?? {});
      expect(deltas.map((choice) => choice["finish_reason"])).to.deep.equal([
        null,
        null,
        null,
        "length",
      ]);
      expect(deltas[0]?.["delta"]).to.deep.equal({ role: "assistant", content: "" });
      for (const chunk of chunks) {
        expect(chunk["object"]).to.equal("chat.completion.chunk");
        expect(chunk).not.to.have.property("usage");
      }
    });
  });

  it("sends usage in one last chunk without choices for include_usage, null before", async () => {
    await withWorker({}, async (worker) => {
      const stream = await openai(worker).chat.completions.create({
        model: "demo",
        messages: say("hi"),
        stream: true,
        n: 2,
        max_completion_tokens: 3,
        stream_options: { include_usage: true },
      });
      const chunks: OpenAI.ChatCompletionChunk[] = [];
      for await (const chunk of stream) chunks.push(chunk);
      const last = chunks.pop();
      expect(last?.choices).to.deep.equal([]);
      // "user\nhi\n" has 8 characters: 2 tokens. Two choices of three tokens: 6.
      expect(last?.usage).to.deep.equal({
        prompt_tokens: 2,
        completion_tokens: 6,
        total_tokens: 8,
        prompt_tokens_details: { cached_tokens: 0 },
      });
      for (const chunk of chunks) expect(chunk.usage).to.equal(null);
    });
  });

  it("counts up on every chunk for continuous_usage_stats", async () => {
    await withWorker({}, async (worker) => {
      const body = chatBody("hi", {
        stream: true,
        max_tokens: 3,
        stream_options: { continuous_usage_stats: true },
      });
      const answer = await post(worker, { path: "/v1/chat/completions", body });
      const chunks = dataOf(await answer.text()).slice(0, -1) as Data[];
      const counts = chunks.map((chunk) => (chunk["usage"] as Data)["completion_tokens"]);
      expect(counts).to.deep.equal([0, 1, 2, 3, 3]);
    });
  });

  it("refuses stream_options without stream, bad JSON, bad limits and no messages", async () => {
    await withWorker({}, async (worker) => {
      const path = "/v1/chat/completions";
      const bodies: unknown[] = [
        chatBody("hi", { stream_options: { include_usage: true } }),
        "{nonsense",
        chatBody("hi", { max_tokens: 0 }),
        chatBody("hi", { n: "two" }),
        { model: "demo", messages: [] },
      ];
      for (const body of bodies) {
        const answer = await post(worker, { path, body });
        expect(answer.status).to.equal(400);
        const { error } = (await answer.json()) as { error: Data };
        expect(error).to.include({ type: "BadRequestError", code: 400 });
        expect(error["message"]).to.be.a("string").and.not.equal("");
      }
      expect(worker.state().served).to.equal(0);
    });
  });

  it("answers an unknown model with 404 and the error the client turns into NotFoundError", async () => {
    await withWorker({ models: ["demo", "other"] }, async (worker) => {
      const ask = openai(worker).chat.completions.create({ model: "nope", messages: say("hi") });
      const error = await ask.then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).to.be.instanceOf(OpenAI.NotFoundError);
      expect((error as { error: unknown }).error).to.deep.equal({
        message: "The model `nope` does not exist.",
        type: "NotFoundError",
        param: "model",
        code: 404,
      });
    });
  });

  it("goes on to the limit when the request says ignore_eos", async () => {
    await withWorker({}, async (worker) => {
      const body = chatBody("hi", { max_tokens: 40, ignore_eos: true });
      const answer = await post(worker, { path: "/v1/chat/completions", body });
      const { usage, choices } = (await answer.json()) as { usage: Data; choices: Data[] };
      expect(usage["completion_tokens"]).to.equal(40);
      expect(choices[0]?.["finish_reason"]).to.equal("length");
    });
  });
});

describe("mock worker, completions", () => {
  it("numbers choices over a batch of prompts", async () => {
    await withWorker({}, async (worker) => {
      // Prompts of 8 and 5 characters: 2 + 2 tokens; four choices of 2 tokens.
      const answer = await openai(worker).completions.create({
        model: "demo",
        prompt: ["12345678", "12345"],
        n: 2,
        max_tokens: 2,
      });
      expect(answer.object).to.equal("text_completion");
      expect(answer.choices.map((choice) => choice.index)).to.deep.equal([0, 1, 2, 3]);
      expect(answer.choices[0]?.finish_reason).to.equal("length");
      expect(answer.usage).to.deep.equal({
        prompt_tokens: 4,
        completion_tokens: 8,
        total_tokens: 12,
        prompt_tokens_details: { cached_tokens: 0 },
      });
    });
  });

  it("counts one token for each token id", async () => {
    await withWorker({}, async (worker) => {
      const answer = await openai(worker).completions.create({
        model: "demo",
        prompt: [1, 151_000, 3],
      });
      expect(answer.usage?.prompt_tokens).to.equal(3);
    });
  });

  it("streams text, then the finish reason, then usage", async () => {
    await withWorker({}, async (worker) => {
      const stream = await openai(worker).completions.create({
        model: "demo",
        prompt: "12345678",
        max_tokens: 3,
        stream: true,
        stream_options: { include_usage: true },
      });
      const chunks: OpenAI.Completion[] = [];
      for await (const chunk of stream) chunks.push(chunk);
      expect(chunks).to.have.length(5);
      expect(chunks.map((chunk) => chunk.choices[0]?.finish_reason ?? null)).to.deep.equal([
        null,
        null,
        null,
        "length",
        null,
      ]);
      expect(chunks[4]?.choices).to.deep.equal([]);
      expect(chunks[4]?.usage?.completion_tokens).to.equal(3);
    });
  });
});

describe("mock worker, responses", () => {
  it("answers whole with input and output tokens", async () => {
    await withWorker({}, async (worker) => {
      // "user\nhello there\n" has 17 characters: 5 tokens.
      const answer = await openai(worker).responses.create({ model: "demo", input: "hello there" });
      expect(answer.object).to.equal("response");
      expect(answer.status).to.equal("completed");
      expect(answer.incomplete_details).to.equal(null);
      expect(answer.output[0]?.type).to.equal("message");
      expect(answer.output_text.split(" ")).to.have.length(16);
      expect(answer.usage).to.deep.equal({
        input_tokens: 5,
        input_tokens_details: { cached_tokens: 0 },
        output_tokens: 16,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 21,
      });
    });
  });

  it("is incomplete at the token limit", async () => {
    await withWorker({}, async (worker) => {
      const answer = await openai(worker).responses.create({
        model: "demo",
        input: [{ role: "user", content: [{ type: "input_text", text: "hi" }] }],
        max_output_tokens: 4,
      });
      expect(answer.status).to.equal("incomplete");
      expect(answer.incomplete_details).to.deep.equal({ reason: "max_output_tokens" });
      expect(answer.usage?.output_tokens).to.equal(4);
    });
  });

  it("streams the ladder of events in sequence with usage only in the last", async () => {
    await withWorker({}, async (worker) => {
      const stream = await openai(worker).responses.create(
        { model: "demo", input: "hi", stream: true },
        { headers: { "x-mock": "tokens=2" } },
      );
      const events: OpenAI.Responses.ResponseStreamEvent[] = [];
      for await (const event of stream) events.push(event);
      expect(events.map((event) => event.type)).to.deep.equal([
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
      ]);
      expect(events.map((event) => event.sequence_number)).to.deep.equal([
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
      ]);
      const [first] = events;
      const last = events.at(-1);
      if (first?.type !== "response.created") throw new Error("not created");
      if (last?.type !== "response.completed") throw new Error("not completed");
      expect(first.response.usage).to.equal(null);
      expect(last.response.usage?.output_tokens).to.equal(2);
      expect(last.response.usage?.input_tokens).to.equal(2);
    });
  });
});

describe("mock worker, Anthropic messages", () => {
  it("answers whole and leaves cached tokens out of input_tokens", async () => {
    await withWorker({ blockChars: 16 }, async (worker) => {
      // "user\n" + 40 + "\n" = 46 characters: 12 tokens, two full blocks of 4 tokens.
      const ask = (): Promise<Anthropic.Message> =>
        anthropic(worker).messages.create({
          model: "demo",
          max_tokens: 100,
          messages: say("a".repeat(40)),
        });
      const first = await ask();
      expect(first.type).to.equal("message");
      expect(first.role).to.equal("assistant");
      expect(first.stop_reason).to.equal("end_turn");
      expect(first.content[0]?.type).to.equal("text");
      expect(first.usage).to.deep.equal({
        input_tokens: 12,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
        output_tokens: 16,
      });
      const second = await ask();
      expect(second.usage.input_tokens).to.equal(4);
      expect(second.usage.cache_read_input_tokens).to.equal(8);
    });
  });

  it("streams message_start with input and message_delta with output tokens", async () => {
    await withWorker({}, async (worker) => {
      const stream = await anthropic(worker).messages.create({
        model: "demo",
        max_tokens: 2,
        system: "be brief",
        messages: say("hi"),
        stream: true,
      });
      const events: Anthropic.RawMessageStreamEvent[] = [];
      for await (const event of stream) events.push(event);
      expect(events.map((event) => event.type)).to.deep.equal([
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
      ]);
      const start = events[0];
      const delta = events[5];
      if (start?.type !== "message_start") throw new Error("no start");
      if (delta?.type !== "message_delta") throw new Error("no delta");
      // "system\nbe brief\n" and "user\nhi\n": 16 + 8 characters, 6 tokens.
      expect(start.message.usage.input_tokens).to.equal(6);
      expect(start.message.usage.output_tokens).to.equal(0);
      expect(delta.delta.stop_reason).to.equal("max_tokens");
      expect(delta.usage.output_tokens).to.equal(2);
    });
  });

  it("reads as a whole message through the client's own stream helper", async () => {
    await withWorker({}, async (worker) => {
      const stream = anthropic(worker).messages.stream({
        model: "demo",
        max_tokens: 100,
        messages: say("hi"),
      });
      const message = await stream.finalMessage();
      expect(message.usage.output_tokens).to.equal(16);
      expect(message.stop_reason).to.equal("end_turn");
    });
  });

  it("requires max_tokens and names models it does not know in its own error shape", async () => {
    await withWorker({}, async (worker) => {
      const missing = await post(worker, { path: "/v1/messages", body: chatBody("hi") });
      expect(missing.status).to.equal(400);
      expect(await missing.json()).to.deep.equal({
        type: "error",
        error: { type: "invalid_request_error", message: "max_tokens: Field required" },
      });
      const unknown = await post(worker, {
        path: "/v1/messages",
        body: chatBody("hi", { model: "nope", max_tokens: 3 }),
      });
      expect(unknown.status).to.equal(404);
      expect(((await unknown.json()) as { error: Data }).error["type"]).to.equal("not_found_error");
    });
  });
});

describe("mock worker, SGLang generate", () => {
  it("answers one text with its counts in meta_info", async () => {
    await withWorker({ engine: "sglang" }, async (worker) => {
      const body = { text: "12345678", sampling_params: { max_new_tokens: 3 }, rid: "mine" };
      const answer = await post(worker, { path: "/generate", body });
      const { text, meta_info } = (await answer.json()) as { text: string; meta_info: Data };
      expect(text.split(" ")).to.have.length(3);
      expect(meta_info).to.deep.equal({
        id: "mine",
        finish_reason: { type: "length", length: 3 },
        weight_version: "default",
        prompt_tokens: 2,
        completion_tokens: 3,
        cached_tokens: 0,
      });
    });
  });

  it("answers a batch as a list, each with its own counts", async () => {
    await withWorker({ engine: "sglang" }, async (worker) => {
      const body = { input_ids: [[1, 2, 3], [4]], sampling_params: { max_new_tokens: 2 } };
      const answer = await post(worker, { path: "/generate", body });
      const list = (await answer.json()) as { meta_info: Data }[];
      expect(list.map((item) => item.meta_info["prompt_tokens"])).to.deep.equal([3, 1]);
      expect(list.map((item) => item.meta_info["completion_tokens"])).to.deep.equal([2, 2]);
    });
  });

  it("repeats the whole text in every event and ends with DONE", async () => {
    await withWorker({ engine: "sglang" }, async (worker) => {
      const body = { text: "x", stream: true, sampling_params: { max_new_tokens: 2 } };
      const answer = await post(worker, { path: "/generate", body });
      const data = dataOf(await answer.text());
      expect(data.pop()).to.equal("[DONE]");
      const events = data as { text: string; meta_info: Data }[];
      const counts = events.map((event) => event.meta_info["completion_tokens"]);
      expect(counts).to.deep.equal([1, 2, 2]);
      expect(events[1]?.text.startsWith(events[0]?.text ?? "none")).to.equal(true);
      expect(events[2]?.text).to.equal(events[1]?.text);
      const reasons = events.map((event) => event.meta_info["finish_reason"]);
      expect(reasons).to.deep.equal([null, null, { type: "length", length: 2 }]);
    });
  });

  it("stops at 128 tokens without a limit and at none for a limit of 0", async () => {
    await withWorker({ engine: "sglang" }, async (worker) => {
      const count = async (sampling_params: Data): Promise<unknown> => {
        const answer = await post(worker, {
          path: "/generate",
          body: { text: "x", sampling_params },
        });
        return ((await answer.json()) as { meta_info: Data }).meta_info["completion_tokens"];
      };
      expect(await count({ ignore_eos: true })).to.equal(128);
      expect(await count({ max_new_tokens: 0 })).to.equal(0);
    });
  });
});

describe("mock worker, paths that generate nothing", () => {
  it("embeds as floats and as the base64 the official client asks for", async () => {
    await withWorker({}, async (worker) => {
      const client = openai(worker);
      const input = ["12345678", "x"];
      const plain = await client.embeddings.create({
        model: "demo",
        input,
        encoding_format: "float",
      });
      const packed = await client.embeddings.create({ model: "demo", input });
      const body = { model: "demo", input, encoding_format: "base64" };
      const raw = await post(worker, { path: "/v1/embeddings", body });
      // Eight floats of four bytes: 32 bytes, 44 characters of base64.
      const { data } = (await raw.json()) as { data: Data[] };
      expect(data[0]?.["embedding"]).to.be.a("string").with.length(44);
      expect(plain.data.map((item) => item.index)).to.deep.equal([0, 1]);
      expect(plain.data[0]?.embedding).to.have.length(8);
      expect(packed.data[0]?.embedding).to.deep.equal(plain.data[0]?.embedding);
      expect(plain.usage).to.deep.equal({ prompt_tokens: 3, total_tokens: 3 });
      expect(worker.state().tokens).to.deep.equal({ prompt: 9, completion: 0 });
    });
  });

  it("reranks best first and scores each pair", async () => {
    await withWorker({}, async (worker) => {
      const ranked = await post(worker, {
        path: "/v1/rerank",
        body: { model: "demo", query: "q", documents: ["a", "b", "c"], top_n: 2 },
      });
      const { results } = (await ranked.json()) as { results: { relevance_score: number }[] };
      expect(results).to.have.length(2);
      expect(results[0]?.relevance_score).to.be.at.least(results[1]?.relevance_score ?? 2);
      const scored = await post(worker, {
        path: "/v1/score",
        body: { model: "demo", text_1: "q", text_2: ["a", "b"] },
      });
      const { data, usage } = (await scored.json()) as { data: Data[]; usage: Data };
      expect(data.map((item) => item["index"])).to.deep.equal([0, 1]);
      expect(usage).not.to.have.property("completion_tokens");
    });
  });
});
