// Answers as they pass through the stream, cut at every place. Goal: the same settlement however the
// bytes are cut, compressed or ended; what cannot be read keeps the estimate; memory stays bounded.

import { execFileSync } from "node:child_process";
import { closeSync, constants, open, openSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { expect } from "chai";
import type { SettlementRecord } from "../../extproc/core/request/settlement-record.js";
import { USAGE_ANSWERS, type UsageAnswer } from "../fixtures/usage/answers.js";
import {
  describeTransports,
  inParallel,
  requestBody,
  requestHeaders,
  responseBody,
  responseHeaders,
  within,
  type ExtProcClient,
  type ProcessStream,
  type ResponseSketch,
  type WeirUnderTest,
} from "../support/ext-proc-client.js";

/** Tokens charged while nothing better is known. */
const ESTIMATE = 256;
const JSON_ANSWER = '{"id":"x","usage":{"prompt_tokens":21,"completion_tokens":37}}';
const SSE: ResponseSketch = { contentType: "text/event-stream" };

const PATHS: readonly (readonly [prefix: string, path: string])[] = [
  ["anthropic", "/v1/messages"],
  ["embeddings", "/v1/embeddings"],
  ["openai-chat", "/v1/chat/completions"],
  ["openai-completions", "/v1/completions"],
  ["openai-responses", "/v1/responses"],
  ["sglang", "/generate"],
];

const pathOf = (file: string): string =>
  PATHS.find(([prefix]) => file.startsWith(prefix))?.[1] ?? "no path";

/** What the spec says of an answer that was seen whole. */
function expectedCharge({ file, reading }: UsageAnswer): object {
  const observed = file === "embeddings.json" ? 0 : reading.outputTokens;
  if (observed !== undefined) {
    return { kind: "observed", tokens: observed, clockTokens: Math.max(1, observed) };
  }
  return { kind: "missing_usage", tokens: ESTIMATE, clockTokens: ESTIMATE };
}

describeTransports("answers", (start) => {
  let weir: WeirUnderTest;
  let client: ExtProcClient;

  before(async () => {
    weir = await start();
    client = weir.client();
  });
  beforeEach(() => {
    weir.clear();
  });
  after(() => weir.stop());

  /** Sends a whole request with its answer in these pieces; the last one carries the end. */
  async function pass(
    head: ResponseSketch,
    pieces: readonly (Uint8Array | string)[],
    parts: { readonly id?: string; readonly path?: string } = {},
  ): Promise<ProcessStream> {
    const stream = client.open();
    stream.send(requestHeaders(parts));
    stream.send(requestBody('{"model":"demo"}'));
    stream.send(responseHeaders(head));
    for (const [index, piece] of pieces.entries()) {
      stream.send(responseBody(piece, index === pieces.length - 1));
    }
    stream.end();
    const status = await stream.ended;
    expect(status.code, status.details).to.equal(0);
    expect(stream.replies).to.have.length(3 + pieces.length);
    return stream;
  }

  async function settledAfter(
    head: ResponseSketch,
    pieces: readonly (Uint8Array | string)[],
    path?: string,
  ): Promise<SettlementRecord> {
    weir.clear();
    await pass(head, pieces, path === undefined ? {} : { path });
    await weir.settlements(1);
    expect(weir.settled).to.have.length(1);
    const [record] = weir.settled;
    if (record === undefined) throw new Error("no settlement");
    return record;
  }

  describe("cut at every byte offset", () => {
    for (const answer of USAGE_ANSWERS) {
      const { file, format, body, reading } = answer;
      it(`${file} gives the same settlement in two messages, wherever it is cut`, async () => {
        const head = format === "sse" ? SSE : {};
        await inParallel(body.length + 1, 16, async (offset) => {
          const id = String(offset);
          const pieces = [body.subarray(0, offset), body.subarray(offset)];
          await pass(head, pieces, { id, path: pathOf(file) });
        });
        await weir.settlements(body.length + 1);
        expect(weir.settled).to.have.length(body.length + 1);
        expect(new Set(weir.settled.map(({ requestId }) => requestId)).size).to.equal(
          body.length + 1,
        );
        for (const record of weir.settled) {
          const where = `cut at ${record.requestId}`;
          expect(record.outcome, where).to.equal("success");
          expect(record.charge, where).to.deep.equal(expectedCharge(answer));
          expect(record.promptTokens, where).to.equal(reading.promptTokens);
          expect(record.cachedTokens, where).to.equal(reading.cachedTokens);
        }
      });
    }

    it("single bytes give the same settlement too, with the end on the last byte or on an empty message", async () => {
      for (const answer of USAGE_ANSWERS) {
        const bytes = Array.from(answer.body, (byte) => Uint8Array.of(byte));
        const head = answer.format === "sse" ? SSE : {};
        for (const pieces of [bytes, [...bytes, ""]]) {
          const record = await settledAfter(head, pieces, pathOf(answer.file));
          expect(record.charge, answer.file).to.deep.equal(expectedCharge(answer));
          expect(record.promptTokens, answer.file).to.equal(answer.reading.promptTokens);
        }
      }
    });
  });

  describe("compressed", () => {
    const plain = Buffer.from(JSON_ANSWER);
    const codings: readonly (readonly [string, string, Buffer])[] = [
      ["gzip", "gzip", gzipSync(plain)],
      ["deflate", "deflate", deflateSync(plain)],
      ["raw deflate", "deflate", deflateRawSync(plain)],
      ["br", "br", brotliCompressSync(plain)],
    ];
    for (const [name, encoding, coded] of codings) {
      it(`${name} is read wherever it is cut`, async () => {
        await inParallel(coded.length + 1, 16, async (offset) => {
          const pieces = [coded.subarray(0, offset), coded.subarray(offset)];
          await pass({ encoding }, pieces, { id: String(offset) });
        });
        await weir.settlements(coded.length + 1);
        expect(weir.settled).to.have.length(coded.length + 1);
        for (const { requestId, charge, promptTokens } of weir.settled) {
          expect(charge, requestId).to.deep.include({ kind: "observed", tokens: 37 });
          expect(promptTokens, requestId).to.equal(21);
        }
      });
    }

    it("an SSE stream in gzip is read to its usage, with the end on an empty message", async () => {
      const [answer] = USAGE_ANSWERS.filter(({ file }) => file === "openai-chat-final-usage.sse");
      const coded = gzipSync(answer?.body ?? "");
      const record = await settledAfter({ ...SSE, encoding: "gzip" }, [coded, ""]);
      expect(record.charge).to.deep.include({ kind: "observed", tokens: 19 });
    });

    // Long enough that its usage is decoded before the checksum is seen to be wrong.
    const badChecksum = gzipSync(`${JSON_ANSWER.slice(0, -1)},"pad":"${"x".repeat(40_000)}"}`);
    badChecksum.writeUInt32LE(0, badChecksum.length - 8);
    const unreadable: readonly (readonly [string, string, readonly Uint8Array[]])[] = [
      ["corrupt gzip", "gzip", [Buffer.from("\x1f\x8b\x08nonsense and more of it")]],
      ["gzip with a wrong checksum", "gzip", [badChecksum]],
      ["gzip that stops half-way", "gzip", [gzipSync(plain).subarray(0, 40)]],
      ["an unknown coding", "x-snappy", [plain]],
      ["two codings", "gzip, br", [gzipSync(plain)]],
    ];
    for (const [name, encoding, pieces] of unreadable) {
      it(`${name} counts as missing usage and is settled once`, async () => {
        const record = await settledAfter({ encoding }, pieces);
        expect(record.outcome).to.equal("success");
        expect(record.charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
      });
    }

    it("an empty body with a content-encoding is no error (204, HEAD, empty end)", async () => {
      for (const pieces of [[""], ["", ""]]) {
        const record = await settledAfter({ encoding: "gzip" }, pieces);
        expect(record).to.include({ outcome: "success", status: 200 });
        expect(record.charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
      }
      weir.clear();
      const stream = client.open();
      await stream.askAll(requestHeaders(), requestBody());
      const noContent = { status: 204, encoding: "br", endOfStream: true };
      expect(await stream.ask(responseHeaders(noContent))).to.equal("response_headers");
      stream.end();
      await weir.settlements(1);
      expect(weir.settled[0]).to.include({ outcome: "success", status: 204 });
    });

    it("what a broken-off compressed stream has shown still counts", async () => {
      const events = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'.repeat(301);
      const stream = client.open();
      await stream.askAll(
        requestHeaders(),
        requestBody(),
        responseHeaders({ ...SSE, encoding: "gzip" }),
        responseBody(gzipSync(events)),
      );
      stream.cancel();
      await weir.settlements(1);
      expect(weir.settled[0]?.charge).to.deep.include({ kind: "interrupted", tokens: 300 });
    });

    it("a decoder that is still busy when the stream ends holds slot and load, and is given up after a second", async () => {
      await withBusyThreads(async () => {
        await pass({ encoding: "gzip" }, [gzipSync(plain)]);
        // The stream is over for Envoy; the worker's answer is not accounted for yet.
        expect(weir.settled).to.have.length(0);
        expect(weir.held()).to.deep.equal({ inFlight: 1, load: 1, live: 1, queued: 0 });
        await weir.settlements(1);
      });
      await weir.idle();
      expect(weir.settled).to.have.length(1);
      expect(weir.settled[0]?.outcome).to.equal("success");
      expect(weir.settled[0]?.charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
    });
  });

  describe("usage in the shapes that went wrong for others", () => {
    it("finds usage that an SSE event carries in the last message before [DONE] in the next (undercounted tokens)", async () => {
      const record = await settledAfter(SSE, [
        'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":8}}',
        "\n\ndata: [DONE]\n\n",
      ]);
      expect(record.charge).to.deep.include({ kind: "observed", tokens: 8 });
      expect(record.promptTokens).to.equal(4);
    });

    it("keeps the estimate when usage is null everywhere, and when there is none at all (zero charged)", async () => {
      for (const usage of ['"usage":null,', ""]) {
        const event = `data: {${usage}"choices":[{"delta":{"content":"a"}}]}\n\n`;
        const record = await settledAfter(SSE, [event, event, "data: [DONE]\n\n"]);
        expect(record.charge).to.deep.include({ kind: "missing_usage", tokens: ESTIMATE });
      }
    });

    it("reads usage from a chunk with empty choices and never changes a byte of the answer", async () => {
      const stream = await pass(SSE, [
        'data: {"choices":[],"usage":{"completion_tokens":6}}\n\n',
        "data: [DONE]\n\n",
      ]);
      expect(stream.replies.slice(3)).to.deep.equal([{ response_body: {} }, { response_body: {} }]);
      await weir.settlements(1);
      expect(weir.settled[0]?.charge).to.deep.include({ kind: "observed", tokens: 6 });
    });

    it("does not add the same numbers of message_start and message_delta (double counted cache tokens), nor let zeros of the delta win", async () => {
      const message = (over: object): string =>
        `event: message_start\ndata: ${JSON.stringify({ type: "message_start", message: { usage: { input_tokens: 25, cache_read_input_tokens: 10, output_tokens: 1 } } })}\n\n` +
        `event: message_delta\ndata: ${JSON.stringify({ type: "message_delta", usage: over })}\n\n` +
        'event: message_stop\ndata: {"type":"message_stop"}\n\n';
      const same = { input_tokens: 25, cache_read_input_tokens: 10, output_tokens: 15 };
      const zeros = { input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 15 };
      for (const delta of [same, zeros]) {
        const record = await settledAfter(SSE, [message(delta)], "/v1/messages");
        expect(record.charge).to.deep.include({ kind: "observed", tokens: 15 });
        expect([record.promptTokens, record.cachedTokens]).to.deep.equal([25, 10]);
      }
    });

    it("charges 1,000 streams without usage, so that stream: true is not free (budget evasion)", async () => {
      const event = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n';
      await inParallel(1_000, 32, async (index) => {
        await pass(SSE, [event.repeat(3), "data: [DONE]\n\n"], { id: String(index) });
      });
      await weir.settlements(1_000);
      const tokens = weir.settled.reduce((sum, { charge }) => sum + (charge?.tokens ?? 0), 0);
      expect(tokens).to.equal(1_000 * ESTIMATE);
      expect(weir.settled).to.have.length(1_000);
    });

    it("does not stop at [DONE] inside of content (truncated reply)", async () => {
      const inside = JSON.stringify({ choices: [{ delta: { content: "data: [DONE]\n\n" } }] });
      const record = await settledAfter(SSE, [
        `data: ${inside}\n\n`,
        'data: {"choices":[],"usage":{"completion_tokens":12}}\n\ndata: [DONE]\n\n',
      ]);
      expect(record.charge).to.deep.include({ kind: "observed", tokens: 12 });
    });

    it("reads a 100 MB event without a newline in bounded memory", async () => {
      const stream = client.open();
      await stream.askAll(requestHeaders(), requestBody(), responseHeaders(SSE));
      const chunk = Buffer.alloc(1_000_000, "x");
      await stream.ask(responseBody(Buffer.concat([Buffer.from("data: "), chunk])));
      const before = memoryBytes();
      for (let count = 0; count < 99; count += 1) await stream.ask(responseBody(chunk));
      expect(memoryBytes() - before).to.be.lessThan(16_000_000);
      await stream.ask(
        responseBody('\n\ndata: {"choices":[],"usage":{"completion_tokens":5}}\n\n', true),
      );
      await weir.settlements(1);
      expect(weir.settled[0]?.charge).to.deep.include({ kind: "observed", tokens: 5 });
      stream.end();
    });

    it("does not count an upstream 500 with JSON usage as a success", async () => {
      const record = await settledAfter({ status: 500 }, [JSON_ANSWER]);
      expect(record).to.include({ outcome: "http_5xx", status: 500 });
      expect(record.charge).to.deep.include({ kind: "observed", tokens: 37 });
    });

    it("takes the time of the first byte, not of the last chunk, for TTFT", async () => {
      const stream = client.open();
      await stream.askAll(requestHeaders(), requestBody(), responseHeaders(SSE), responseBody(""));
      await stream.ask(responseBody("data: {}\n\n"));
      await new Promise((resolve) => setTimeout(resolve, 30));
      await stream.ask(responseBody("data: [DONE]\n\n", true));
      await weir.settlements(1);
      const { timeToFirstByteMs = Number.NaN, durationMs = 0 } = weir.settled[0] ?? {};
      expect(durationMs - timeToFirstByteMs).to.be.at.least(25);
      stream.end();
    });
  });
});

describeTransports("request bodies", (start) => {
  const LIMIT = 33_554_432;
  let weir: WeirUnderTest;
  let client: ExtProcClient;

  before(async () => {
    weir = await start();
    client = weir.client();
  });
  beforeEach(() => {
    weir.clear();
  });
  after(() => weir.stop());

  const padded = (length: number): Buffer => {
    const frame = '{"model":"demo","pad":""}';
    return Buffer.from(`${frame.slice(0, -2)}${"x".repeat(length - frame.length)}"}`);
  };

  const sizes: readonly (readonly [string, number, string])[] = [
    ["of 32,768 bytes passes", 32_768, "route"],
    ["of 32,769 bytes passes", 32_769, "route"],
    ["of 20 MB passes", 20_000_000, "route"],
    ["of exactly the limit passes", LIMIT, "route"],
    ["one byte past the limit gets Weir's own 413", LIMIT + 1, "refuse 413 body_too_large"],
  ];
  for (const [title, length, answer] of sizes) {
    it(`a body ${title}`, async () => {
      const stream = client.open();
      await stream.ask(requestHeaders());
      const body = padded(length);
      expect(body.length).to.equal(length);
      expect(await stream.ask(requestBody(body))).to.equal(answer);
      stream.end();
      expect((await stream.ended).code).to.equal(0);
      await weir.settlements(1);
      expect(weir.settled).to.have.length(1);
    });
  }

  it("a message past what gRPC takes is a stream error, settled once, and the next request is served", async () => {
    const stream = client.open();
    await stream.ask(requestHeaders());
    stream.send(requestBody(padded(LIMIT + 3 * 1024 * 1024)));
    expect((await stream.ended).code).to.equal(8);
    await weir.settlements(1);
    expect(weir.settled).to.have.length(1);
    expect(weir.settled[0]).to.include({ outcome: "pre_admission_interrupted" });
    const next = client.open();
    expect(await next.askAll(requestHeaders(), requestBody())).to.include("route");
    next.end();
    await weir.settlements(2);
  });

  it("64 bodies of 300 KB at once leave no memory behind", async () => {
    const body = padded(300_000);
    const round = async (): Promise<void> => {
      await inParallel(64, 64, async () => {
        const stream = client.open();
        await stream.askAll(requestHeaders(), requestBody(body));
        stream.end();
        await stream.ended;
      });
      await weir.idle();
    };
    await round();
    const before = memoryBytes();
    await round();
    expect(memoryBytes() - before).to.be.lessThan(8_000_000);
  });
});

/** Live bytes of the process, after a full collection. */
function memoryBytes(): number {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Runs `body` while every thread that decompresses waits in the opening of a pipe. */
async function withBusyThreads(body: () => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "weir-pipes-"));
  const threads = Number(process.env["UV_THREADPOOL_SIZE"] ?? 4);
  const pipes = Array.from({ length: threads }, (_none, index) => join(folder, String(index)));
  execFileSync("mkfifo", pipes);
  const opened = pipes.map(
    (pipe) =>
      new Promise<void>((resolve) => {
        open(pipe, constants.O_RDONLY, (error, file) => {
          if (error === null) closeSync(file);
          resolve();
        });
      }),
  );
  try {
    await body();
  } finally {
    // Opening both ends never waits, and lets the waiting readers go.
    const ends = pipes.map((pipe) => openSync(pipe, constants.O_RDWR));
    await within("the pipes", Promise.all(opened));
    for (const end of ends) closeSync(end);
    await rm(folder, { recursive: true, force: true });
  }
}
