import { expect } from "chai";
import fc from "fast-check";
import { SseEventCounter } from "../../../extproc/core/settlement/sse-events.js";

function count(...chunks: readonly string[]): number {
  const counter = new SseEventCounter();
  for (const chunk of chunks) counter.push(new TextEncoder().encode(chunk));
  return counter.contentEvents;
}

const FIRST = 'data: {"role":"assistant"}\n\n';

describe("sse event counter", () => {
  for (const [what, events, expected] of [
    ["the first event alone", "", 0],
    ["an event with data", 'data: {"a":1}\n\n', 1],
    ["data without a space", 'data:{"a":1}\n\n', 1],
    ["data that is no JSON", "data: hello\n\n", 1],
    ["an event of several data lines as one", 'data: {"a":\ndata: 1}\n\n', 1],
    [
      "an event with other fields around its data",
      'event: x\nid: 4\ndata: {"a":1}\nretry: 5\n\n',
      1,
    ],
    ["no comment", ": ping\n\n", 0],
    ["no event without data", "event: ping\nid: 4\n\n", 0],
    ["no empty data", "data:\n\ndata: \n\ndata\n\n", 0],
    ["no field whose name begins with data", 'data2: {"a":1}\n\ndatax\n\n', 0],
    ["no [DONE]", "data: [DONE]\n\ndata:[DONE]\n\ndata: [DONE] \n\n", 0],
    ["data that begins like [DONE]", "data: [DO\n\ndata: [DONE]]\n\n", 2],
    ["token text with data: [DONE] as content", 'data: {"t":"data: [DONE]"}\n\n', 1],
    ["no event that has not ended", 'data: {"a":1}\n', 0],
    ["blank lines between events once", 'data: {"a":1}\n\n\n\ndata: {"a":1}\n\n', 2],
    ["no error event", 'data: {"error":{"message":"x"}}\n\n', 0],
    ["no error event with blanks", 'data:  { "error" : "x" }\n\n', 0],
    [
      "no error event of the Messages API",
      'event: error\ndata: {"type":"error","error":{}}\n\n',
      0,
    ],
    [
      "no error behind other keys",
      'data: {"id":{"a":[1]},"choices":[],"error":{"code":502}}\n\n',
      0,
    ],
    ["no error split over data lines", 'data: {"id":1,\ndata: "error"\ndata: :1}\n\n', 0],
    ["an error that is null", 'data: {"error":null,"choices":[]}\n\n', 1],
    ["an error below the top level", 'data: {"response":{"error":{"code":1}}}\n\n', 1],
    ["the word error as a value", 'data: {"type":"error","a":1}\n\ndata: ["error",1]\n\n', 2],
    [
      "keys that only look like error",
      'data: {"errors":1,"erro":1,"\\u0065rror":1,"xerror":1}\n\n',
      1,
    ],
    ["escaped quotes before the word", 'data: {"text":"\\"error\\":1"}\n\n', 1],
    ["an event after an error", 'data: {"error":1}\n\ndata: {"a":1}\n\n', 1],
  ] as const) {
    it(`counts ${what}`, () => {
      expect(count(FIRST, events)).to.equal(expected);
      expect(count(...Array.from(FIRST + events))).to.equal(expected);
    });
  }

  it("takes the first event with data as the first, whatever stands before it", () => {
    expect(count(": hi\n\nevent: ping\n\n", "data: [DONE]\n\n", FIRST, 'data: {"a":1}\n\n'))
      .to //
      .equal(1);
  });

  it("takes an error as the first event too", () => {
    expect(count('data: {"error":1}\n\n', 'data: {"a":1}\n\n')).to.equal(1);
  });

  it("counts what was built, for any mix of events, line ends and cuts", () => {
    const event = fc.record({
      kind: fc.constantFrom("content", "done", "error", "comment", "fields"),
      end: fc.constantFrom("\n", "\r\n", "\r"),
      text: fc.string({ maxLength: 12 }),
    });
    fc.assert(
      fc.property(
        fc.array(event, { maxLength: 12 }),
        fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 40 }),
        (events, cuts) => {
          let stream = "";
          let dataEvents = 0;
          let expected = 0;
          for (const { kind, end, text } of events) {
            const lines = {
              content: `data: {"text":${JSON.stringify(text)}}`,
              done: "data: [DONE]",
              error: `data: {"text":${JSON.stringify(text)},"error":{"a":1}}`,
              comment: ": data: ping",
              fields: "event: ping",
            };
            stream += lines[kind] + end + end;
            if (kind === "content" || kind === "error") dataEvents += 1;
            if (kind === "content" && dataEvents > 1) expected += 1;
          }
          const bytes = new TextEncoder().encode(stream);
          const counter = new SseEventCounter();
          for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
            const length = cuts[turn % cuts.length] ?? 1;
            counter.push(bytes.subarray(at, at + length));
            at += length;
          }
          expect(counter.contentEvents).to.equal(expected);
        },
      ),
      { numRuns: 400 },
    );
  });
});
