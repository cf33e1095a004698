// The rows of the acceptance table that go from the bytes of an answer to the charge of its tenant.
// Every request was booked 100 output tokens. Each title begins with the row's id.

import { expect } from "chai";
import { chargeFor, type AnswerEnd, type Charge } from "../../../extproc/core/settlement/charge.js";
import { TAIL_RING_BYTES, TailRing } from "../../../extproc/core/settlement/tail-ring.js";
import {
  createUsageReader,
  type BodyFormat,
} from "../../../extproc/core/settlement/usage-reader.js";

const ESTIMATE = 100;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** What an answer of the worker costs that came in these chunks. */
function charged(
  format: BodyFormat,
  chunks: readonly string[],
  end: Partial<AnswerEnd> = {},
): Charge {
  const reader = createUsageReader(format);
  for (const chunk of chunks) reader.push(bytes(chunk));
  return chargeFor({
    dispatched: true,
    origin: "worker",
    complete: true,
    format,
    reading: reader.finish(),
    producesOutput: true,
    estimateTokens: ESTIMATE,
    ...end,
  });
}

const observed = (tokens: number): Charge => ({ kind: "observed", tokens, clockTokens: tokens });
const estimated = (kind: "interrupted" | "missing_usage"): Charge => ({
  kind,
  tokens: ESTIMATE,
  clockTokens: ESTIMATE,
});

const FRAME = 'data: {"choices":[{"delta":{"content":"word"}}]}\n\n';

describe("from an answer to its charge", () => {
  it('B6 {"usage":{"completion_tokens":37}} with an estimate of 100 is charged 37', () => {
    expect(charged("json", ['{"usage":{"completion_tokens":37}}'])).to.deep.equal(observed(37));
  });

  it("B7 a stream with usage 19 and then DONE is charged 19", () => {
    const usage = 'data: {"choices":[],"usage":{"completion_tokens":19}}\n\n';
    expect(charged("sse", [FRAME, usage, "data: [DONE]\n\n"])).to.deep.equal(observed(19));
  });

  it("B8 usage that is split over chunks is charged 23, wherever it is split", () => {
    const json = '{"choices":[],"usage":{"completion_tokens":23}}';
    const stream = `${FRAME}data: ${json}\n\ndata: [DONE]\n\n`;
    for (const [format, body] of [
      ["json", json],
      ["sse", stream],
    ] as const) {
      for (let cut = 0; cut <= body.length; cut += 1) {
        const chunks = [body.slice(0, cut), body.slice(cut)];
        expect(charged(format, chunks), `${format} at ${String(cut)}`).to.deep.equal(observed(23));
      }
    }
  });

  it("B9 a client that drops the answer is charged the estimate of 100", () => {
    const dropped = { complete: false };
    expect(charged("sse", [FRAME, FRAME], dropped)).to.deep.equal(estimated("interrupted"));
    expect(charged("json", ['{"choices":['], dropped)).to.deep.equal(estimated("interrupted"));
    // Before any answer.
    expect(charged("json", [], { ...dropped, origin: "unknown" })).to.deep.equal(
      estimated("interrupted"),
    );
  });

  it("B9 a client gains nothing by dropping the stream just after its small usage passed", () => {
    const usage = 'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n';
    expect(charged("sse", [FRAME, usage], { complete: false })).to.deep.equal(
      estimated("interrupted"),
    );
  });

  it("B10 a backend error after one frame is charged the estimate of 100", () => {
    expect(charged("sse", [FRAME], { complete: false })).to.deep.equal(estimated("interrupted"));
    const reset = { complete: false, origin: "reset" } as const;
    expect(charged("sse", [], reset)).to.deep.equal(estimated("interrupted"));
  });

  it("B11 9,000 frames and then a split usage of 47: the ring holds 65,536 bytes, charged 47", () => {
    const ring = new TailRing();
    const reader = createUsageReader("sse", ring);
    const frame = bytes(FRAME);
    for (let sent = 0; sent < 9_000; sent += 1) {
      reader.push(frame);
      expect(ring.size).to.be.at.most(65_536);
      expect(ring.capacity).to.be.at.most(65_536);
    }
    reader.push(bytes('data: {"choices":[],"usage":{"completion_tok'));
    reader.push(bytes('ens":47}}\n\n'));
    reader.push(bytes("data: [DONE]\n\n"));
    expect(ring.size).to.equal(65_536);
    const charge = chargeFor({
      dispatched: true,
      origin: "worker",
      complete: true,
      format: "sse",
      reading: reader.finish(),
      producesOutput: true,
      estimateTokens: ESTIMATE,
    });
    expect(charge).to.deep.equal(observed(47));
  });

  it("B11 usage before the last 65,536 bytes is missing: the estimate of 100 stands", () => {
    const usage = '"usage":{"completion_tokens":47}';
    // From the first byte of the usage to the end: one byte more than the ring, and just the ring.
    const body = (tailBytes: number): string => {
      const rest = `${usage},"text":""}`;
      return `{${usage},"text":"${"x".repeat(tailBytes - rest.length)}"}`;
    };
    expect(body(TAIL_RING_BYTES)).to.have.length(TAIL_RING_BYTES + 1);
    expect(charged("json", [body(TAIL_RING_BYTES)])).to.deep.equal(observed(47));
    expect(charged("json", [body(TAIL_RING_BYTES + 1)])).to.deep.equal(estimated("missing_usage"));
  });

  for (const [format, body, charge] of [
    ["json", '{"usage":{"completion_tokens":42}}', observed(42)],
    ["json", '{"usage":{"output_tokens":13}}', observed(13)],
    ["json", '{"meta_info":{"completion_tokens":7}}', observed(7)],
    ["sse", `${FRAME}data: {"usage":{"completion_tokens":17}}\n\n`, observed(17)],
    ["json", '{"choices":[]}', estimated("missing_usage")],
  ] as const) {
    it(`B12 ${body.replaceAll("\n", " ")} is charged ${String(charge.tokens)}`, () => {
      expect(charged(format, [body])).to.deep.equal(charge);
    });
  }
});
