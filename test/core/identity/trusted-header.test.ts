import { expect } from "chai";
import {
  EXCLUDED_URLS_MAX_CHARS,
  readHeader,
  readTrusted,
  readTrustedList,
} from "../../../extproc/core/identity/trusted-header.js";
import { headersFrom } from "../../../extproc/core/model/headers.js";

const NAMES = ["x-own", "x-alias"];
const RULE = { names: NAMES, trusted: true };

const read = (record: Record<string, string | readonly string[]>): unknown =>
  readHeader(headersFrom(record), NAMES);
const readList = (record: Record<string, string | readonly string[]>): unknown =>
  readTrustedList(RULE, headersFrom(record), true);
const refused = (header: string, reason: string): unknown => ({ kind: "refused", header, reason });

describe("identity/trusted-header", () => {
  it("reads one line under the own name or under an alias", () => {
    expect(read({})).to.deep.equal({ kind: "absent" });
    expect(read({ "x-own": "a" })).to.deep.equal({ kind: "value", header: "x-own", value: "a" });
    expect(read({ "x-alias": "b" })).to.deep.equal({
      kind: "value",
      header: "x-alias",
      value: "b",
    });
  });

  it("trims outer blanks and keeps case", () => {
    expect(read({ "x-own": " \tTeam-Red\t " })).to.deep.include({ value: "Team-Red" });
  });

  const spoofs: readonly (readonly [string, string | readonly string[], string])[] = [
    ["two copies", ["a", "b"], "duplicate"],
    ["two equal copies", ["a", "a"], "duplicate"],
    ["an empty copy before a filled one", ["", "a"], "duplicate"],
    ["a comma list", "a,b", "list"],
    ["a comma list with blanks", "a, b", "list"],
    ["a trailing comma", "a,", "list"],
    ["nothing", "", "empty"],
    ["only blanks", " \t ", "empty"],
    ["an inner blank", "a b", "not_visible_ascii"],
    ["an inner tab", "a\tb", "not_visible_ascii"],
    ["a line break", "a\nb", "not_visible_ascii"],
    ["a trailing line break", "a\n", "not_visible_ascii"],
    ["a NUL", "a\u0000", "not_visible_ascii"],
    ["a DEL", "a\u007f", "not_visible_ascii"],
    ["a UTF-8 letter as latin-1 bytes", "\u00c3\u00a9", "not_visible_ascii"],
    ["a no-break space", "\u00a0a", "not_visible_ascii"],
  ];
  for (const [what, value, reason] of spoofs) {
    it(`refuses ${what}: never the first one, never a cleaned-up one`, () => {
      expect(read({ "x-own": value })).to.deep.equal(refused("x-own", reason));
    });
  }

  it("refuses own name and alias together as two copies, even with equal values", () => {
    expect(read({ "x-own": "a", "x-alias": "a" })).to.deep.equal(refused("x-own", "duplicate"));
    expect(read({ "x-own": "", "x-alias": "a" })).to.deep.equal(refused("x-own", "duplicate"));
  });

  it("takes 256 characters and refuses 257, counted without outer blanks", () => {
    expect(read({ "x-own": ` ${"a".repeat(256)} ` })).to.deep.include({ kind: "value" });
    expect(read({ "x-own": "a".repeat(257) })).to.deep.equal(refused("x-own", "too_long"));
  });

  it("copes with a header of nothing but inner blanks", () => {
    const value = `a${" ".repeat(60_000)}b`;
    expect(read({ "x-own": value })).to.deep.equal(refused("x-own", "too_long"));
  });

  it("takes every visible character but the comma", () => {
    for (let code = 0; code <= 0xff; code += 1) {
      const visible = code >= 0x21 && code <= 0x7e && code !== 0x2c;
      const value = `a${String.fromCharCode(code)}b`;
      expect(read({ "x-own": value })).to.deep.include({ kind: visible ? "value" : "refused" });
    }
  });

  it("reads nothing, not even a refusal, when the switch is off or the peer is no proxy", () => {
    const headers = headersFrom({ "x-own": ["a", "b"] });
    const off = { names: NAMES, trusted: false };
    expect(readTrusted(off, headers, true)).to.deep.equal({ kind: "absent" });
    expect(readTrusted(RULE, headers, false)).to.deep.equal({ kind: "absent" });
    expect(readTrusted(RULE, headers, true)).to.deep.equal(refused("x-own", "duplicate"));
    expect(readTrustedList(off, headers, true)).to.deep.equal({ kind: "absent" });
    expect(readTrustedList(RULE, headers, false)).to.deep.equal({ kind: "absent" });
  });

  it("reads a list of URLs from one line, without blanks and empty entries", () => {
    expect(readList({ "x-own": " http://a:1 ,http://b:2,, http://c:3," })).to.deep.equal({
      kind: "list",
      header: "x-own",
      values: ["http://a:1", "http://b:2", "http://c:3"],
    });
    expect(readList({})).to.deep.equal({ kind: "absent" });
  });

  it("refuses a list on two lines, an empty one, and one with a bad entry", () => {
    expect(readList({ "x-own": ["http://a:1", "http://b:2"] })).to.deep.equal(
      refused("x-own", "duplicate"),
    );
    expect(readList({ "x-own": " , ," })).to.deep.equal(refused("x-own", "empty"));
    expect(readList({ "x-own": "" })).to.deep.equal(refused("x-own", "empty"));
    expect(readList({ "x-own": "http://a:1,http://b 2" })).to.deep.equal(
      refused("x-own", "not_visible_ascii"),
    );
    expect(readList({ "x-own": `a,${"b".repeat(257)}` })).to.deep.equal(
      refused("x-own", "too_long"),
    );
  });

  it("takes 64 entries and refuses 65", () => {
    const list = (count: number): string =>
      Array.from({ length: count }, (_, index) => `http://w${index.toString()}:1`).join(",");
    expect(readList({ "x-own": list(64) })).to.deep.include({ kind: "list" });
    expect(readList({ "x-own": list(65) })).to.deep.equal(refused("x-own", "too_long"));
  });

  it("bounds the whole line, so that commas alone cost nothing", () => {
    const commas = (length: number): string => `a${",".repeat(length - 1)}`;
    expect(EXCLUDED_URLS_MAX_CHARS).to.equal(64 * 258);
    expect(readList({ "x-own": commas(16_512) })).to.deep.include({ kind: "list" });
    expect(readList({ "x-own": commas(16_513) })).to.deep.equal(refused("x-own", "too_long"));
  });
});
