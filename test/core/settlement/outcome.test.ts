import { expect } from "chai";
import { requestOutcome, type RequestEnd } from "../../../extproc/core/settlement/outcome.js";

const end = (changes: Partial<RequestEnd>): RequestEnd => ({
  rejected: false,
  admitted: true,
  complete: true,
  status: 200,
  ...changes,
});

describe("request outcome", () => {
  for (const [what, changes, outcome] of [
    ["a complete 200", {}, "success"],
    ["a complete 399", { status: 399 }, "success"],
    ["a complete 400", { status: 400 }, "http_4xx"],
    ["a complete 499", { status: 499 }, "http_4xx"],
    ["a complete upstream 500, which is no success", { status: 500 }, "http_5xx"],
    ["an incomplete 200", { complete: false }, "interrupted"],
    ["an incomplete 500", { complete: false, status: 500 }, "interrupted"],
    ["an end before response headers", { complete: false, status: undefined }, "interrupted"],
    ["an informational answer only", { status: 100 }, "interrupted"],
    ["a refusal", { rejected: true, admitted: false, status: 429 }, "rejected"],
    [
      "a client that left before it was admitted",
      { admitted: false, complete: false, status: undefined },
      "pre_admission_interrupted",
    ],
  ] as const) {
    it(`of ${what} is ${outcome}`, () => {
      expect(requestOutcome(end(changes))).to.equal(outcome);
    });
  }
});
