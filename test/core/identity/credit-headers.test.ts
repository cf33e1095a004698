import { expect } from "chai";
import {
  creditRules,
  readCredit,
  type CreditReading,
} from "../../../extproc/core/identity/credit-headers.js";
import type { CreditsConfig, HeadersConfig } from "../../../extproc/core/model/config.js";
import { headersFrom } from "../../../extproc/core/model/headers.js";
import { ALIASES_OFF, ALIASES_ON, CREDITS_OFF, CREDITS_ON, trust } from "./support.js";

type Sent = Readonly<Record<string, string | readonly string[]>>;

const TOKEN = "A".repeat(43);
const FULL = {
  "x-weir-capacity-credit": TOKEN,
  "x-weir-capacity-credit-generation": "g1",
  "x-weir-fair-share-policy-epoch": "7",
  "x-weir-admission-partition": "batch",
  "x-weir-request-model": "demo-latest",
  "x-weir-capacity-credit-request-id": "req-1",
  "x-weir-output-token-estimate": "1024",
};
const PRESENTED = {
  kind: "presented",
  token: TOKEN,
  generation: "g1",
  policyEpoch: 7n,
  partition: "batch",
  model: "demo-latest",
  requestId: "req-1",
  estimateTokens: 1024,
};

function read(
  sent: Sent,
  peerIsProxy = true,
  credits: CreditsConfig = CREDITS_ON,
  headers: HeadersConfig = ALIASES_OFF,
): CreditReading {
  return readCredit(creditRules(credits, trust(), headers), headersFrom(sent), peerIsProxy);
}

const without = (name: keyof typeof FULL): Sent =>
  Object.fromEntries(Object.entries(FULL).filter(([key]) => key !== name));

describe("identity/credit-headers", () => {
  it("reads the seven headers, trimmed", () => {
    expect(read(FULL)).to.deep.equal(PRESENTED);
    const padded = Object.fromEntries(
      Object.entries(FULL).map(([name, value]) => [name, ` \t${value} `]),
    );
    expect(read(padded)).to.deep.equal(PRESENTED);
  });

  it("sees no credit while credits are off, and none from a peer that is no proxy", () => {
    expect(read(FULL, true, CREDITS_OFF)).to.deep.equal({ kind: "absent" });
    expect(read(FULL, false)).to.deep.equal({ kind: "absent" });
  });

  it("sees no credit without the header of the token, whatever the others say", () => {
    expect(read(without("x-weir-capacity-credit"))).to.deep.equal({ kind: "absent" });
  });

  it("refuses a blank token: its sender meant to bring a credit", () => {
    for (const blank of ["", "  \t "]) {
      expect(read({ ...FULL, "x-weir-capacity-credit": blank })).to.deep.equal({
        kind: "refused",
        header: "x-weir-capacity-credit",
        reason: "empty",
      });
    }
  });

  for (const name of Object.keys(FULL) as (keyof typeof FULL)[]) {
    if (name === "x-weir-capacity-credit") continue;

    it(`needs ${name}, once and readable`, () => {
      const refused = (sent: Sent, reason: string): void => {
        expect(read(sent)).to.deep.equal({ kind: "refused", header: name, reason });
      };
      refused(without(name), "missing");
      refused({ ...FULL, [name]: "" }, "empty");
      refused({ ...FULL, [name]: [FULL[name], FULL[name]] }, "duplicate");
      refused({ ...FULL, [name]: "\u00e9" }, "not_visible_ascii");
      refused({ ...FULL, [name]: "1,2" }, "list");
      refused({ ...FULL, [name]: "1".repeat(257) }, "too_long");
    });
  }

  it("takes an epoch up to 2^64 - 1 exactly, and nothing else", () => {
    const epoch = (text: string): unknown => {
      const reading = read({ ...FULL, "x-weir-fair-share-policy-epoch": text });
      return reading.kind === "presented" ? reading.policyEpoch : reading;
    };
    expect(epoch("0")).to.equal(0n);
    expect(epoch("9007199254740993")).to.equal(9_007_199_254_740_993n);
    expect(epoch("18446744073709551615")).to.equal(18_446_744_073_709_551_615n);
    for (const wrong of ["18446744073709551616", "-1", "+1", "1.0", "0x1", "1e3", "epoch"]) {
      expect(epoch(wrong), wrong).to.deep.include({ kind: "refused", reason: "invalid" });
    }
  });

  it("takes an estimate from 1 to 2^32 - 1, and nothing else", () => {
    const estimate = (text: string): unknown => {
      const reading = read({ ...FULL, "x-weir-output-token-estimate": text });
      return reading.kind === "presented" ? reading.estimateTokens : reading;
    };
    expect(estimate("1")).to.equal(1);
    expect(estimate("4294967295")).to.equal(4_294_967_295);
    for (const wrong of ["0", "4294967296", "-1", "1.5", "many"]) {
      expect(estimate(wrong), wrong).to.deep.include({ kind: "refused", reason: "invalid" });
    }
  });

  it("reads other gateways' names only when aliases are on, and takes both at once for two copies", () => {
    const aliased = Object.fromEntries(
      Object.entries(FULL).map(([name, value]) => [name.replace("x-weir-", "x-smg-"), value]),
    );
    expect(read(aliased)).to.deep.equal({ kind: "absent" });
    expect(read(aliased, true, CREDITS_ON, ALIASES_ON)).to.deep.equal(PRESENTED);
    const both = { ...FULL, "x-smg-capacity-credit": TOKEN };
    expect(read(both, true, CREDITS_ON, ALIASES_ON)).to.deep.include({ reason: "duplicate" });
  });
});
