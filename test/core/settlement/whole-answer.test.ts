import { expect } from "chai";
import type { Endpoint } from "../../../extproc/core/identity/paths.js";
import { WholeAnswer } from "../../../extproc/core/settlement/whole-answer.js";
import { bytes } from "../../support/desk.js";

const LIMIT_BYTES = 4 * 1024;

function flawOf(endpoint: Endpoint, body: unknown, maxBytes = LIMIT_BYTES): string | undefined {
  const answer = new WholeAnswer(endpoint, maxBytes);
  answer.push(bytes(body));
  return answer.finish();
}

const usage = { prompt_tokens: 9, completion_tokens: 2 };
const chat = { usage, object: "chat.completion", choices: [{ index: 0, finish_reason: "stop" }] };
const completions = {
  usage,
  object: "text_completion",
  choices: [{ index: 0, finish_reason: "length" }],
};
const responses = {
  usage: { output_tokens: 2 },
  object: "response",
  status: "completed",
  output: [],
};
const messages = {
  usage: { output_tokens: 2 },
  type: "message",
  content: [],
  stop_reason: "end_turn",
};
const generate = {
  text: "a",
  meta_info: { finish_reason: { type: "stop" }, completion_tokens: 2 },
};

const GOOD: readonly (readonly [Endpoint, object])[] = [
  ["chat", chat],
  ["completions", completions],
  ["responses", responses],
  ["messages", messages],
  ["generate", generate],
];

describe("settlement/whole-answer", () => {
  it("takes the answer of each endpoint for exactly that endpoint", () => {
    for (const [endpoint] of GOOD) {
      for (const [kind, body] of GOOD) {
        const expected = endpoint === kind ? undefined : "wrong_kind";
        expect(flawOf(endpoint, body), `${kind} at ${endpoint}`).to.equal(expected);
      }
    }
  });

  it("knows no answer of an endpoint that generates nothing", () => {
    for (const endpoint of ["embeddings", "rerank", "score"] as const) {
      for (const [, body] of GOOD) expect(flawOf(endpoint, body), endpoint).to.equal("wrong_kind");
    }
  });

  it("takes no error, no batch, no stream, no broken JSON and no empty body for an answer", () => {
    for (const body of [
      { ...chat, error: { message: "x" } },
      [chat],
      { ...chat, choices: [] },
      { ...chat, choices: [null] },
      { ...chat, choices: "stop" },
      `data: ${JSON.stringify(chat)}\n\n`,
      JSON.stringify(chat).slice(0, -1),
      "",
      "null",
    ]) {
      expect(flawOf("chat", body), JSON.stringify(body)).to.equal("wrong_kind");
    }
    expect(flawOf("chat", { ...chat, error: null })).to.equal(undefined);
  });

  it("tells a generation that came to its end from one that was given up or goes on", () => {
    const chatWith = (finish_reason: unknown): object => ({
      ...chat,
      choices: [{ finish_reason }],
    });
    for (const reason of ["stop", "length", "tool_calls", "content_filter"]) {
      expect(flawOf("chat", chatWith(reason)), reason).to.equal(undefined);
    }
    for (const reason of [null, undefined, "abort", "error", "cancelled", "", false, {}]) {
      expect(flawOf("chat", chatWith(reason)), JSON.stringify(reason)).to.equal("unfinished");
    }
    for (const status of ["failed", "cancelled", "in_progress", "queued", undefined]) {
      expect(flawOf("responses", { ...responses, status }), status).to.equal("unfinished");
    }
    expect(flawOf("responses", { ...responses, status: "incomplete" })).to.equal(undefined);
    expect(flawOf("messages", { ...messages, stop_reason: null })).to.equal("unfinished");
    const generated = (finish_reason: unknown): object => ({
      text: "",
      meta_info: { finish_reason, completion_tokens: 2 },
    });
    expect(flawOf("generate", generated({ type: "abort" }))).to.equal("unfinished");
    expect(flawOf("generate", generated(null))).to.equal("unfinished");
    expect(flawOf("generate", generated("stop"))).to.equal(undefined);
    expect(
      flawOf("generate", {
        output_ids: [1],
        meta_info: { finish_reason: "stop", completion_tokens: 2 },
      }),
    ).to.equal(undefined);
  });

  it("takes a body of exactly the limit, whatever its cuts, and not one byte more", () => {
    const text = JSON.stringify(chat);
    expect(flawOf("chat", text, text.length)).to.equal(undefined);
    expect(flawOf("chat", text, text.length - 1)).to.equal("too_large");
    const answer = new WholeAnswer("chat", text.length);
    const buffer = new Uint8Array(1);
    for (const byte of bytes(text)) {
      buffer[0] = byte;
      answer.push(buffer);
    }
    expect(answer.finish()).to.equal(undefined);
  });
});
