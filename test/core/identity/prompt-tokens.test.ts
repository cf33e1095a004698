import { expect } from "chai";
import {
  readTokens,
  TOKEN_READ_BYTES,
  TOKENS_READ_MAX,
  type TokenPrompt,
} from "../../../extproc/core/identity/prompt-tokens.js";
import { utf8 } from "./support.js";

function read(text: string, maxTokens = 1_000_000): TokenPrompt | undefined {
  const bytes = utf8(text);
  return readTokens(bytes, { start: 0, end: bytes.length }, maxTokens);
}

function found(
  tokens: readonly number[],
  count = tokens.length,
  prompts: number | undefined = 1,
): TokenPrompt {
  return { tokens: Uint32Array.from(tokens), count, prompts };
}

/** Of an array of which not enough was looked at. */
function uncounted(tokens: readonly number[], count: number): TokenPrompt {
  return { tokens: Uint32Array.from(tokens), count, prompts: undefined };
}

describe("identity/prompt-tokens", () => {
  it("reads whole numbers up to 2^32 - 1, with blanks anywhere between", () => {
    expect(read("[0,4294967295]")).to.deep.equal(found([0, 4294967295]));
    expect(read(" [ 1 ,\n2\t,3 ] ".trim())).to.deep.equal(found([1, 2, 3]));
    expect(read("[]")).to.deep.equal(found([]));
    expect(read("[4294967296]")).to.equal(undefined);
  });

  it("refuses anything else, in the first array and in later ones", () => {
    for (const item of ["-1", "1.5", "1e3", '"1"', "null", "true", "{}", "[1]", "", "1 2", "+1"]) {
      for (const array of [`[7,${item}]`, `[[7],[8,${item}]]`, `[[7,${item}]]`]) {
        expect(read(array), array).to.equal(undefined);
      }
    }
    for (const array of ["[[1],2]", "[[1],]", "[[1][2]]", "[1", "[[1]", "[[1]}", "[1}", "[1,]"]) {
      expect(read(array), array).to.equal(undefined);
    }
  });

  it("keeps the first of several prompts, and counts all", () => {
    expect(read("[[1,2],[3,4,5],[]]")).to.deep.equal(found([1, 2], 5, 3));
    expect(read("[ [ 1 ] , [ 2 ] ]")).to.deep.equal(found([1], 2, 2));
    expect(read("[[],[3]]")).to.deep.equal(found([], 1, 2));
  });

  it("cuts at the limit and counts on", () => {
    expect(read("[1,2,3,4]", 4)).to.deep.equal(found([1, 2, 3, 4]));
    expect(read("[1,2,3,4]", 3)).to.deep.equal(found([1, 2, 3], 4));
    expect(read("[[1,2,3],[4]]", 2)).to.deep.equal(found([1, 2], 4, 2));
    expect(read("[[1]]", 2)).to.deep.equal(found([1], 1, 1));
    expect(read("[1,2]", 0)).to.deep.equal(found([], 2));
  });

  it("counts and checks 131072 tokens one by one, and estimates those behind by their bytes", () => {
    expect(TOKENS_READ_MAX).to.equal(131_072);
    const tokens = (count: number): string =>
      Array.from({ length: count }, () => "123456").join(",");
    expect(read(`[${tokens(TOKENS_READ_MAX)}]`, 1)).to.deep.equal(found([123456], 131_072));
    expect(read(`[${tokens(TOKENS_READ_MAX - 1)},"x"]`, 1)).to.equal(undefined);
    // Seven bytes each: one more is within the estimate, and no longer looked at.
    expect(read(`[${tokens(TOKENS_READ_MAX + 1)}]`, 1)).to.deep.equal(found([123456], 131_073));
    expect(read(`[${tokens(TOKENS_READ_MAX)},"23456"]`, 1)).to.deep.equal(found([123456], 131_073));
    expect(read(`[${tokens(TOKENS_READ_MAX * 3)}]`, 1)?.count).to.equal(393_216);
  });

  it("counts an array as a look, so that a million of them are bounded as well", () => {
    const arrays = (count: number): string => Array.from({ length: count }, () => "[1]").join(",");
    // Two looks each: half as many arrays are read, the rest is estimated at four bytes a token.
    expect(read(`[${arrays(1_000_000)}]`, 5)).to.deep.equal(uncounted([1], 1_000_000));
    expect(read(`[${arrays(TOKENS_READ_MAX / 2 - 1)},[x]]`)).to.equal(undefined);
    expect(read(`[${arrays(TOKENS_READ_MAX / 2)},[x]]`)).to.not.equal(undefined);
    expect(read(`[[]${",[]".repeat(300_000)}]`)?.tokens.length).to.equal(0);
  });

  it("reads eight bytes for each look, and estimates what stands behind blanks", () => {
    expect(TOKEN_READ_BYTES).to.equal(8);
    // Ten looks are 80 bytes: the bracket and 79 blanks, and the last of these are not passed.
    const within = `[${" ".repeat(79)}1]`;
    const past = `[${" ".repeat(80)}1]`;
    const of = (text: string): TokenPrompt | undefined =>
      readTokens(utf8(text), { start: 0, end: text.length }, 5, 10);
    expect(of(`[${" ".repeat(78)}1]`)).to.deep.equal(found([1]));
    // Two bytes, the token and its bracket, are a quarter of a token each.
    expect(of(past)).to.deep.equal(uncounted([], 0));
    expect(of(within)?.tokens.length).to.equal(0);
    expect(of(`[${" ".repeat(480)}1]`)).to.deep.equal(uncounted([], 100));
    // Nine bytes a token up to where the blanks end the reading.
    expect(of(`[1,2,${" ".repeat(200)}3]`)?.tokens).to.deep.equal(Uint32Array.of(1, 2));
  });

  it("refuses a number of more than ten digits without reading on", () => {
    expect(read(`[${"0".repeat(11)}]`)).to.equal(undefined);
    expect(read("[4294967295]")).to.deep.equal(found([4294967295]));
  });
});
