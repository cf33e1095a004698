import { expect } from "chai";
import fc from "fast-check";
import {
  encodeBase64Url,
  isCreditToken,
  TOKEN_BYTES,
} from "../../../extproc/core/scheduler/credit-token.js";

const tokenBytes = fc.uint8Array({ minLength: TOKEN_BYTES, maxLength: TOKEN_BYTES });

describe("credit tokens", () => {
  it("K1 32 bytes make 43 characters without padding that decode to the same bytes", () => {
    fc.assert(
      fc.property(tokenBytes, (bytes) => {
        const token = encodeBase64Url(bytes);
        expect(token).to.match(/^[A-Za-z0-9_-]{43}$/);
        expect(isCreditToken(token)).to.equal(true);
        expect([...Buffer.from(token, "base64url")]).to.deep.equal([...bytes]);
      }),
    );
  });

  it("encodes any number of bytes as the runtime does", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (bytes) => {
        expect(encodeBase64Url(bytes)).to.equal(Buffer.from(bytes).toString("base64url"));
      }),
    );
  });

  it("K1 takes no junk for a token: lengths, padding, other alphabets, spare bits", () => {
    const token = encodeBase64Url(new Uint8Array(TOKEN_BYTES).fill(255));
    expect(token).to.equal(`${"_".repeat(42)}8`);
    expect(isCreditToken(token)).to.equal(true);
    const junk = [
      "",
      "junk",
      token.slice(1),
      `${token}A`,
      `${token}=`,
      `${token}\n`,
      ` ${token.slice(1)}`,
      `+${token.slice(1)}`,
      `/${token.slice(1)}`,
      `${"_".repeat(42)}9`,
    ];
    for (const text of junk) expect(isCreditToken(text), text).to.equal(false);
  });
});
