// The reader is fed whole answers of every dialect (test/fixtures/usage) in every cut, and single
// bodies that each show one rule. A reading must depend on the bytes alone.

import { expect } from "chai";
import fc from "fast-check";
import { TAIL_RING_BYTES, TailRing } from "../../../extproc/core/settlement/tail-ring.js";
import {
  bodyFormat,
  createUsageReader,
  type BodyFormat,
  type UsageReading,
} from "../../../extproc/core/settlement/usage-reader.js";
import { USAGE_ANSWERS } from "../../fixtures/usage/answers.js";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function read(format: BodyFormat, ...chunks: readonly (string | Uint8Array)[]): UsageReading {
  const reader = createUsageReader(format);
  for (const chunk of chunks) reader.push(typeof chunk === "string" ? bytes(chunk) : chunk);
  return reader.finish();
}

function piecesOf(body: Uint8Array, pieceBytes: number): readonly Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < body.length; at += pieceBytes) {
    pieces.push(body.subarray(at, at + pieceBytes));
  }
  return pieces;
}

const output = (format: BodyFormat, ...chunks: readonly string[]): number | undefined =>
  read(format, ...chunks).outputTokens;

const LINE_ENDS = [
  ["LF", "\n"],
  ["CRLF", "\r\n"],
  ["CR", "\r"],
] as const;

const withLineEnd = (body: Uint8Array, lineEnd: string): Uint8Array =>
  bytes(new TextDecoder().decode(body).replaceAll("\n", lineEnd));

describe("body format", () => {
  for (const [contentType, format] of [
    ["text/event-stream", "sse"],
    ["text/event-stream; charset=utf-8", "sse"],
    ["Text/Event-Stream ;charset=utf-8", "sse"],
    ["application/json", "json"],
    ["text/event-stream-like", "json"],
    ["application/json; x=text/event-stream", "json"],
    ["", "json"],
    [undefined, "json"],
  ] as const) {
    it(`of ${String(contentType)} is ${format}`, () => {
      expect(bodyFormat(contentType)).to.equal(format);
    });
  }
});

describe("usage reader: answers of every dialect", () => {
  for (const { file, format, body, reading } of USAGE_ANSWERS) {
    it(`reads ${file}`, () => {
      expect(read(format, body)).to.deep.equal(reading);
    });
  }

  it("SSE and JSON answers cut at every byte offset give the same usage", () => {
    for (const { file, format, body, reading } of USAGE_ANSWERS) {
      for (let cut = 0; cut <= body.length; cut += 1) {
        const cutReading = read(format, body.subarray(0, cut), body.subarray(cut));
        expect(cutReading, `${file} cut at ${String(cut)}`).to.deep.equal(reading);
      }
    }
  });

  it("answers in chunks of one byte give the same usage (events framed before parsing)", () => {
    for (const { file, format, body, reading } of USAGE_ANSWERS) {
      expect(read(format, ...piecesOf(body, 1)), file).to.deep.equal(reading);
    }
  });

  for (const [name, lineEnd] of LINE_ENDS) {
    it(`streams with ${name} line ends give the same usage in any cut`, () => {
      for (const { file, format, body, reading } of USAGE_ANSWERS) {
        if (format !== "sse") continue;
        const converted = withLineEnd(body, lineEnd);
        for (const pieceBytes of [1, 2, 3, 7, 64, converted.length]) {
          const pieces = piecesOf(converted, pieceBytes);
          expect(read(format, ...pieces), file).to.deep.equal(reading);
        }
      }
    });
  }

  it("random chunkings equal one push", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...USAGE_ANSWERS),
        fc.array(fc.nat({ max: 400 }), { maxLength: 30 }),
        ({ format, body, reading }, lengths) => {
          const reader = createUsageReader(format);
          let at = 0;
          for (const length of lengths) {
            reader.push(body.subarray(at, at + length));
            at = Math.min(body.length, at + length);
          }
          reader.push(body.subarray(at));
          expect(reader.finish()).to.deep.equal(reading);
        },
      ),
      { numRuns: 300 },
    );
  });

  it("a byte order mark before the answer changes nothing", () => {
    const mark = Uint8Array.of(0xef, 0xbb, 0xbf);
    for (const { file, format, body, reading } of USAGE_ANSWERS) {
      expect(read(format, mark, body), file).to.deep.equal(reading);
      expect(
        read(format, mark.subarray(0, 1), mark.subarray(1), ...piecesOf(body, 1)),
        file,
      ).to.deep.equal(reading);
    }
  });
});

describe("usage reader: acceptance rows", () => {
  it("B6 reads completion_tokens 37 of a JSON body", () => {
    expect(output("json", '{"usage":{"completion_tokens":37}}')).to.equal(37);
  });

  it("B7 reads 19 of a stream that ends with usage and [DONE]", () => {
    expect(output("sse", 'data: {"usage":{"completion_tokens":19}}\n\ndata: [DONE]\n\n')).to.equal(
      19,
    );
  });

  it("B8 reads usage that is split over chunks as 23", () => {
    expect(output("json", '{"usage":{"comple', 'tion_tokens":2', "3}}")).to.equal(23);
  });

  it("B11 keeps exactly 65,536 bytes after 9,000 filler frames and reads the split usage 47", () => {
    const ring = new TailRing();
    const reader = createUsageReader("sse", ring);
    for (let frame = 0; frame < 9_000; frame += 1) {
      reader.push(bytes(`data: {"choices":[{"delta":{"content":"filler ${String(frame)}"}}]}\n\n`));
      expect(ring.size).to.be.at.most(65_536);
    }
    reader.push(bytes('data: {"choices":[],"usage":{"completion_to'));
    reader.push(bytes('kens":47}}\n\ndata: [DONE]\n\n'));
    expect(ring.size).to.equal(65_536);
    expect(ring.capacity).to.equal(65_536);
    const reading = reader.finish();
    expect(reading.outputTokens).to.equal(47);
    // 9,001 events with data, less the first.
    expect(reading.contentEvents).to.equal(9_000);
  });

  for (const [format, body, tokens] of [
    ["json", '{"usage":{"completion_tokens":42}}', 42],
    ["json", '{"usage":{"output_tokens":13}}', 13],
    ["json", '{"meta_info":{"completion_tokens":7}}', 7],
    ["sse", 'data: {"choices":[]}\n\ndata: {"usage":{"completion_tokens":17}}\n\n', 17],
    ["json", '{"choices":[]}', undefined],
  ] as const) {
    it(`B12 reads ${String(tokens)} of ${body.replaceAll("\n", " ")}`, () => {
      expect(output(format, body)).to.equal(tokens);
    });
  }
});

describe("usage reader: numbers", () => {
  for (const [written, tokens] of [
    ["0", 0],
    ["-0", 0],
    ["37.0", 37],
    ["4294967295", 4_294_967_295],
    ["4294967296", undefined],
    ["-1", undefined],
    ["1.5", undefined],
    ["1e400", undefined],
    ['"37"', undefined],
    ["null", undefined],
    ["true", undefined],
    ["[37]", undefined],
  ] as const) {
    it(`takes ${written} as ${String(tokens)}`, () => {
      for (const format of ["json", "sse"] as const) {
        const body = `{"usage":{"completion_tokens":${written}}}`;
        expect(Object.is(output(format, format === "sse" ? `data: ${body}\n\n` : body), tokens)).to
          .be.true;
      }
    });
  }

  it("prefers completion_tokens, and falls to output_tokens when it is no count", () => {
    expect(output("json", '{"usage":{"output_tokens":2,"completion_tokens":1}}')).to.equal(1);
    expect(output("json", '{"usage":{"completion_tokens":null,"output_tokens":2}}')).to.equal(2);
  });

  it("prefers usage to meta_info, and falls to meta_info when usage has no count", () => {
    const meta = '"meta_info":{"completion_tokens":7}';
    expect(output("json", `{${meta},"usage":{"completion_tokens":1}}`)).to.equal(1);
    expect(output("json", `{${meta},"usage":null}`)).to.equal(7);
  });
});

describe("usage reader: answers without usage", () => {
  it("usage:null everywhere in a stream is missing usage, its events are counted", () => {
    const body = 'data: {"usage":null,"choices":[{}]}\n\n';
    expect(read("sse", body, body, body, "data: [DONE]\n\n")).to.deep.equal({
      outputTokens: undefined,
      lastSeenTokens: undefined,
      contentEvents: 2,
      promptTokens: undefined,
      cachedTokens: undefined,
    });
  });

  it("an answer of no bytes says nothing", () => {
    for (const format of ["json", "sse"] as const) {
      expect(read(format)).to.deep.equal(read(format, "", ""));
      expect(read(format).outputTokens).to.equal(undefined);
      expect(read(format).contentEvents).to.equal(0);
    }
  });

  it("usage before the 64 KiB tail is missing usage", () => {
    const filler = `"text":"${"x".repeat(TAIL_RING_BYTES)}"`;
    expect(output("json", `{"usage":{"completion_tokens":5},${filler}}`)).to.equal(undefined);
  });

  it("an error body with status 200 has no usage", () => {
    expect(output("json", '{"error":{"message":"no","code":500}}')).to.equal(undefined);
  });
});

describe("usage reader: raw tail", () => {
  const head = `{"text":"${"é".repeat(TAIL_RING_BYTES)}",`;

  it("reads the usage behind a head that the ring has lost", () => {
    expect(
      output("json", `${head}"usage":{"completion_tokens":31,"x":{"y":"}\\"{"}},"id":"z"}`),
    ).to.equal(31);
  });

  it("usage echoed as a string behind the real one does not blind it", () => {
    const usage = '"usage" : {"output_tokens":9}';
    expect(output("json", `${head}${usage},"metadata":{"usage":"x"}}`)).to.equal(9);
    expect(output("json", `${head}${usage},"metadata":{"usage":{"completion_tokens":"9"}}}`))
      .to //
      .equal(9);
    expect(output("json", `${head}${usage},"usage":null,"list":["usage"]}`)).to.equal(9);
  });

  it("falls to meta_info when no usage object has a count", () => {
    expect(
      output("json", `${head}"meta_info":{"completion_tokens":6},"usage":{"total":1}}`),
    ).to.equal(6);
  });

  it("reads the usage of one event that is longer than the ring", () => {
    const event = `data: {"response":${head}"usage":{"output_tokens":77}}}\n\n`;
    expect(output("sse", event)).to.equal(77);
    expect(output("sse", 'data: {"a":1}\n\n', event, "data: [DONE]\n\n")).to.equal(77);
  });

  it("generated text cannot forge usage", () => {
    const text = JSON.stringify(
      '{"usage":{"completion_tokens":1}},"usage":{"completion_tokens":1}',
    );
    expect(output("json", `{"choices":[{"text":${text}}]}`)).to.equal(undefined);
    expect(output("json", `${head}"more":${text}}`)).to.equal(undefined);
    expect(output("sse", `data: {"a":1}\n\ndata: {"text":${text}}\n\n`)).to.equal(undefined);
  });

  it("usage in an unknown place of a body or of an event is found", () => {
    expect(output("json", '{"x_engine":{"usage":{"completion_tokens":3}}}')).to.equal(3);
    expect(output("sse", 'data: {"x_engine":{"usage":{"completion_tokens":3}}}\n\n')).to.equal(3);
  });

  it("usage at position 0 is looked at once", () => {
    expect(output("json", '"usage":5')).to.equal(undefined);
  });

  it("finds the usage before 63 others without a count, and gives up before 64", () => {
    const others = (count: number): string => ',"usage":{}'.repeat(count);
    const usage = '"usage":{"completion_tokens":8}';
    expect(output("json", `broken ${usage}${others(63)}`)).to.equal(8);
    expect(output("json", `broken ${usage}${others(64)}`)).to.equal(undefined);
  });

  it("takes a usage object of 8,192 bytes and no longer one", () => {
    const usage = (length: number): string => {
      const rest = '{"completion_tokens":8,"x":""}';
      return `{"completion_tokens":8,"x":"${"y".repeat(length - rest.length)}"}`;
    };
    expect(output("json", `broken "usage":${usage(8_192)}`)).to.equal(8);
    expect(output("json", `broken "usage":${usage(8_193)}`)).to.equal(undefined);
  });

  it("a tail full of open usage objects ends without a count", () => {
    expect(output("json", '"usage":{'.repeat(10_000))).to.equal(undefined);
    expect(output("json", "[".repeat(TAIL_RING_BYTES))).to.equal(undefined);
  });

  it("a stream sent as JSON and JSON sent as a stream are read all the same", () => {
    const body = '{"usage":{"completion_tokens":4}}';
    expect(output("json", `data: ${body}\n\ndata: [DONE]\n\n`)).to.equal(4);
    expect(output("sse", body)).to.equal(4);
  });
});

describe("usage reader: streams", () => {
  it("zero usage on a successful stream: the last event wins, numbers are not added", () => {
    const event = (tokens: number): string =>
      `data: {"usage":{"completion_tokens":${String(tokens)}}}\n\n`;
    expect(output("sse", event(3), event(8), event(5))).to.equal(5);
  });

  it("usage and [DONE] in different chunks are not undercounted", () => {
    const usage = 'data: {"usage":{"completion_tokens":12}}\n\n';
    expect(output("sse", 'data: {"a":1}\n\n', usage, "data: [DONE]\n\n")).to.equal(12);
    expect(output("sse", 'data: {"a":1}\n\n', usage)).to.equal(12);
  });

  it("the first event's number is seen but not terminal when events without one follow", () => {
    const start = 'data: {"message":{"usage":{"input_tokens":5,"output_tokens":1}}}\n\n';
    const more = 'data: {"type":"content_block_delta"}\n\n';
    const reading = read("sse", start, more, more);
    expect(reading.outputTokens).to.equal(undefined);
    expect(reading.lastSeenTokens).to.equal(1);
    expect(reading.contentEvents).to.equal(2);
    expect(reading.promptTokens).to.equal(5);
    expect(read("sse", start, "data: [DONE]\n\n").outputTokens).to.equal(1);
  });

  it("a stream that broke off keeps the last number seen and ignores the cut event", () => {
    const reading = read(
      "sse",
      'data: {"a":1}\n\ndata: {"usage":{"completion_tokens":6}}\n\n',
      'data: {"usage":{"completion_tokens":71',
    );
    expect(reading.lastSeenTokens).to.equal(6);
    expect(reading.contentEvents).to.equal(1);
  });

  it("nested usage is taken from its own place, not from what a client had echoed", () => {
    const echo = '"tools":[{"usage":{"output_tokens":999}}]';
    for (const place of ["response", "message"]) {
      const event = `data: {"${place}":{"usage":{"output_tokens":13},${echo}}}\n\n`;
      expect(output("sse", 'data: {"a":1}\n\n', event), place).to.equal(13);
    }
  });

  it("counts prompt and cached tokens of message_start and message_delta once", () => {
    const start =
      '{"message":{"usage":{"input_tokens":40,"cache_read_input_tokens":8,"output_tokens":1}}}';
    const delta = (input: number): string =>
      `{"usage":{"input_tokens":${String(input)},"cache_read_input_tokens":8,"output_tokens":20}}`;
    for (const input of [40, 0]) {
      const reading = read("sse", `data: ${start}\n\ndata: ${delta(input)}\n\n`);
      expect(reading.outputTokens).to.equal(20);
      expect(reading.promptTokens).to.equal(40);
      expect(reading.cachedTokens).to.equal(8);
    }
  });

  it("an event that lost its head to the ring is not read as a whole one", () => {
    // The ring begins inside the first event, before a data line that looks whole by itself.
    const event = (index: number, tokens: number): string =>
      `data: {"meta_info":{"completion_tokens":${String(tokens)}},"index":${String(index)}}\n\n`;
    const cutEvent = `data: ["${"x".repeat(200)}",\n${event(7, 50)}`;
    const pad = `data: {"pad":"${"y".repeat(65_330)}"}\n\n`;
    const ring = new TailRing();
    const reader = createUsageReader("sse", ring);
    reader.push(bytes(cutEvent + pad + event(0, 3)));
    expect(ring.cut).to.equal(true);
    expect(new TextDecoder().decode(ring.bytes())).to.match(/^x+",\ndata: /);
    expect(reader.finish().outputTokens).to.equal(3);
  });

  it("batches of /generate are summed over their indexes", () => {
    const event = (index: number, tokens: number): string =>
      `data: {"meta_info":{"completion_tokens":${String(tokens)}},"index":${String(index)}}\n\n`;
    expect(output("sse", event(0, 3), event(1, 4), event(0, 6), event(2, 1))).to.equal(11);
  });
});

describe("usage reader: batches", () => {
  const member = (tokens: number | null): string =>
    `{"meta_info":{"completion_tokens":${String(tokens)}}}`;

  it("sums the results of a JSON batch, and misses usage when one has none", () => {
    expect(output("json", ` [${member(3)},${member(4)}]`)).to.equal(7);
    expect(output("json", `[${member(3)},${member(null)}]`)).to.equal(undefined);
    expect(output("json", "[]")).to.equal(undefined);
  });

  it("a sum above the largest count is missing usage", () => {
    expect(output("json", `[${member(4_294_967_294)},${member(1)}]`)).to.equal(4_294_967_295);
    expect(output("json", `[${member(4_294_967_295)},${member(1)}]`)).to.equal(undefined);
  });

  it("a batch that is longer than the ring is missing usage, not its last result", () => {
    const pad = `{"text":"${"x".repeat(TAIL_RING_BYTES)}","meta_info":{"completion_tokens":900}}`;
    expect(output("json", "\n [", pad, `,${member(1)}]`)).to.equal(undefined);
    expect(output("json", "\uFEFF[", pad, `,${member(1)}]`)).to.equal(undefined);
  });
});

describe("usage reader: memory", () => {
  it("one event of 2 MB without newline grows no memory and is read by its end", () => {
    const ring = new TailRing();
    const reader = createUsageReader("sse", ring);
    reader.push(bytes('data: {"first":1}\n\ndata: {"text":"'));
    const piece = bytes("x".repeat(1_000));
    for (let sent = 0; sent < 2_000; sent += 1) {
      reader.push(piece);
      expect(ring.capacity).to.be.at.most(TAIL_RING_BYTES);
    }
    reader.push(bytes('","usage":{"completion_tokens":2000}}\n\ndata: [DONE]\n\n'));
    const reading = reader.finish();
    expect(reading.outputTokens).to.equal(2_000);
    expect(reading.contentEvents).to.equal(1);
  });

  it("any bytes at all give a reading, the same in any cut", () => {
    const junk = fc.array(
      fc.oneof(
        fc.constantFrom("data: ", "data:", "\n", "\r", "\r\n", "\n\n", "[DONE]", '"usage":', "{"),
        fc.constantFrom("}", '"', "\\", '"meta_info":{', '"completion_tokens":3}', "[", "]", ":"),
        fc.constantFrom('"error":', "null", "event: x", '"index":1', "\uFEFF", "🌊"),
        fc.string({ maxLength: 5 }),
      ),
      { maxLength: 60 },
    );
    fc.assert(
      fc.property(
        fc.constantFrom<BodyFormat>("json", "sse"),
        junk,
        fc.integer({ min: 1, max: 9 }),
        (format, parts, pieceBytes) => {
          const body = bytes(parts.join(""));
          expect(read(format, ...piecesOf(body, pieceBytes))).to.deep.equal(read(format, body));
        },
      ),
      { numRuns: 500 },
    );
  });
});
