import { expect } from "chai";
import { readEstimate, type EstimateRules } from "../../../extproc/core/identity/estimate.js";
import { headersFrom } from "../../../extproc/core/model/headers.js";

const NAMES = ["x-weir-output-token-estimate", "x-smg-output-token-estimate"];
const OFF: EstimateRules = { header: { names: NAMES, trusted: false }, defaultTokens: 256 };
const ON: EstimateRules = { header: { names: NAMES, trusted: true }, defaultTokens: 256 };

function read(
  rules: EstimateRules,
  value: string | readonly string[] | undefined,
  peerIsProxy = true,
): unknown {
  const record = value === undefined ? {} : { "x-weir-output-token-estimate": value };
  const { tokens, fallback } = readEstimate(rules, headersFrom(record), peerIsProxy);
  return { tokens, fallback };
}

const fallback = (reason: string | undefined): unknown => ({ tokens: 256, fallback: reason });

describe("identity/estimate", () => {
  it("I-2 an untrusted estimate of 1 books the default of 256, a trusted one of 128 books 128", () => {
    expect(read(OFF, "1")).to.deep.equal(fallback("untrusted_estimate"));
    expect(read(ON, "128")).to.deep.equal({ tokens: 128, fallback: undefined });
  });

  it("counts nothing when nothing is trusted and nothing is sent", () => {
    expect(read(OFF, undefined)).to.deep.equal(fallback(undefined));
  });

  it("counts a missing estimate when estimates are trusted", () => {
    expect(read(ON, undefined)).to.deep.equal(fallback("missing_estimate"));
  });

  it("treats a peer that is no proxy as a switch that is off", () => {
    expect(read(ON, "1", false)).to.deep.equal(fallback("untrusted_estimate"));
    expect(read(ON, undefined, false)).to.deep.equal(fallback(undefined));
  });

  it("counts an untrusted estimate as untrusted even when it is unreadable", () => {
    expect(read(OFF, ["1", "2"])).to.deep.equal(fallback("untrusted_estimate"));
    expect(read(OFF, "")).to.deep.equal(fallback("untrusted_estimate"));
  });

  it("takes 1 to 4294967295 and nothing beside", () => {
    expect(read(ON, "1")).to.deep.include({ tokens: 1 });
    expect(read(ON, "4294967295")).to.deep.include({ tokens: 4_294_967_295 });
    expect(read(ON, "007")).to.deep.include({ tokens: 7 });
    for (const bad of [
      "0",
      "000",
      "4294967296",
      "99999999999999999999",
      "",
      " ",
      " 128",
      "128 ",
      "1 2",
      "+1",
      "-1",
      "1.0",
      "1e3",
      "0x10",
      "1_000",
      "12a",
      "many",
      "NaN",
      "Infinity",
      "\u0661",
      "1,2",
      "9".repeat(300),
      `${"0".repeat(256)}1`,
    ]) {
      expect(read(ON, bad), JSON.stringify(bad)).to.deep.equal(fallback("invalid_estimate"));
    }
  });

  it("refuses two copies, under one name or under own name and alias", () => {
    expect(read(ON, ["128", "128"])).to.deep.equal(fallback("invalid_estimate"));
    const both = headersFrom({
      "x-weir-output-token-estimate": "128",
      "x-smg-output-token-estimate": "1",
    });
    expect(readEstimate(ON, both, true)).to.deep.equal({
      tokens: 256,
      fallback: "invalid_estimate",
      refused: { header: "x-weir-output-token-estimate", reason: "duplicate" },
    });
  });

  it("reads the alias when only that is sent, and reports an invalid value under its name", () => {
    const alias = (value: string): unknown =>
      readEstimate(ON, headersFrom({ "x-smg-output-token-estimate": value }), true);
    expect(alias("64")).to.deep.include({ tokens: 64 });
    expect(alias("x")).to.deep.include({
      refused: { header: "x-smg-output-token-estimate", reason: "invalid" },
    });
  });
});
