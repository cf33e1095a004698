import { expect } from "chai";
import fc from "fast-check";
import {
  formatAddress,
  parseAddress,
  parseEndpoint,
} from "../../../extproc/core/identity/address.js";

function canonical(text: string): string | undefined {
  const bytes = parseEndpoint(text);
  return bytes === undefined ? undefined : formatAddress(bytes);
}

describe("identity/address", () => {
  it("drops the port and writes each address in one spelling", () => {
    const table: Record<string, string> = {
      "203.0.113.42:443": "203.0.113.42",
      "203.0.113.42": "203.0.113.42",
      "0.0.0.0:0": "0.0.0.0",
      "[::1]:5000": "::1",
      "[::1]": "::1",
      "::1": "::1",
      "::": "::",
      "1::": "1::",
      "[2001:DB8:0:0:0:0:0:1]:80": "2001:db8::1",
      "2001:db8:0:1:0:0:0:1": "2001:db8:0:1::1",
      "2001:0db8::0001:0:0:1": "2001:db8::1:0:0:1",
      "1:2:3:4:5:6:7:8": "1:2:3:4:5:6:7:8",
      "1:0:3:4:5:6:7:8": "1:0:3:4:5:6:7:8",
      "::ffff:1.2.3.4": "1.2.3.4",
      "[::ffff:1.2.3.4]:80": "1.2.3.4",
      "::ffff:0102:0304": "1.2.3.4",
      "64:ff9b::1.2.3.4": "64:ff9b::102:304",
      "fe80::1%eth0": "fe80::1",
    };
    for (const [text, expected] of Object.entries(table)) {
      expect(canonical(text), text).to.equal(expected);
    }
  });

  it("refuses what is no address", () => {
    for (const text of [
      "",
      ":",
      ":80",
      ":::",
      "1.2.3",
      "1.2.3.4.5",
      "1.2.3.256",
      "01.2.3.4",
      "1.2.3.4:",
      "1.2.3.4:x",
      "1.2.3.4:123456",
      " 1.2.3.4",
      "1.2.3.-4",
      "[1.2.3.4]:80",
      "[::1",
      "[::1]x",
      "[::1]:",
      "::1]",
      "1::2::3",
      "1:2:3:4:5:6:7:8::9::a",
      "12345::",
      "1:2:3:4:5:6:7",
      "1:2:3:4:5:6:7:8:9",
      "1:2:3:4:5:6:7::8",
      "1.2.3.4::",
      "1.2.3.4:1::",
      "::1.2.3",
      "::g",
      "fe80::1%",
      "/run/envoy.sock",
      "@/abstract",
      "localhost:80",
      "auth:root",
      `1.2.3.4${"0".repeat(100)}`,
      `${"0:".repeat(40)}1`,
    ]) {
      expect(canonical(text), JSON.stringify(text)).to.equal(undefined);
    }
  });

  it("gives the same address for any spelling of the same bytes", () => {
    const groups = fc.array(fc.integer({ min: 0, max: 0xffff }), { minLength: 8, maxLength: 8 });
    const sparse = groups.chain((all) =>
      fc
        .array(fc.boolean(), { minLength: 8, maxLength: 8 })
        .map((keep) => all.map((group, index) => (keep[index] === true ? group : 0))),
    );
    fc.assert(
      fc.property(sparse, (parts) => {
        const long = parts.map((group) => group.toString(16).toUpperCase().padStart(4, "0"));
        const bytes = parseAddress(long.join(":"));
        expect(bytes).to.not.equal(undefined);
        if (bytes === undefined) return;
        expect(parseAddress(formatAddress(bytes))).to.deep.equal(bytes);
      }),
    );
  });

  it("never throws on any string", () => {
    const pieces = fc.array(fc.constantFrom(":", "::", "[", "]", ".", "%", "1", "ff", "255", "x"));
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          pieces.map((all) => all.join("")),
        ),
        (text) => {
          const bytes = parseEndpoint(text);
          if (bytes !== undefined) expect([4, 16]).to.include(bytes.length);
        },
      ),
      { numRuns: 500 },
    );
  });
});
