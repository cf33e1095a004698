import { expect } from "chai";
import fc from "fast-check";
import {
  classifyPath,
  producesOutputTokens,
  type Endpoint,
} from "../../../extproc/core/identity/paths.js";

const INFERENCE: readonly (readonly [string, Endpoint])[] = [
  ["/v1/chat/completions", "chat"],
  ["/v1/completions", "completions"],
  ["/v1/responses", "responses"],
  ["/v1/messages", "messages"],
  ["/v1/embeddings", "embeddings"],
  ["/v1/rerank", "rerank"],
  ["/rerank", "rerank"],
  ["/v2/rerank", "rerank"],
  ["/v1/score", "score"],
  ["/score", "score"],
  ["/generate", "generate"],
];

const PASS_THROUGH = [
  "/v1/models",
  "/v1/models/",
  "/v1/models/demo",
  "/v1/models/org/name-7b",
  "/v1/models/a/b/c",
  "/version",
];

function refusal(method: string, target: string): { code: string; status: number; allow?: string } {
  const decision = classifyPath(method, target);
  if (decision.kind !== "rejected") return { code: decision.kind, status: 0 };
  const { code, status, headers } = decision.rejection;
  const allow = headers.find(([name]) => name === "allow")?.[1];
  return allow === undefined ? { code, status } : { code, status, allow };
}

describe("identity/paths", () => {
  for (const [path, endpoint] of INFERENCE) {
    it(`POST ${path} is inference at endpoint ${endpoint}, with a query or one trailing slash too`, () => {
      for (const target of [path, `${path}/`, `${path}?x=%2f//;`, `${path}/?`]) {
        expect(classifyPath("POST", target)).to.deep.equal({ kind: "inference", endpoint });
      }
    });

    it(`${path} with another method is 405 and names POST`, () => {
      for (const method of ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "post", ""]) {
        const expected = { code: "method_not_allowed", status: 405, allow: "POST" };
        expect(refusal(method, path)).to.deep.equal(expected);
      }
    });
  }

  for (const path of PASS_THROUGH) {
    it(`GET and HEAD of ${path} pass through, anything else is 405`, () => {
      for (const method of ["GET", "HEAD"]) {
        expect(classifyPath(method, path)).to.deep.equal({ kind: "pass_through" });
        expect(classifyPath(method, `${path}?q=1`)).to.deep.equal({ kind: "pass_through" });
      }
      for (const method of ["POST", "DELETE", "get"]) {
        const expected = { code: "method_not_allowed", status: 405, allow: "GET, HEAD" };
        expect(refusal(method, path)).to.deep.equal(expected);
      }
    });
  }

  it("refuses every spelling that an engine could read as another path", () => {
    for (const target of [
      "/v1/chat/%63ompletions",
      "/v1/chat/completions%2f",
      "/v1/chat/completions;x",
      "/v1/chat/completions;x=1?y",
      "//v1/chat/completions",
      "/v1//chat/completions",
      "/v1/chat/completions//",
      "/v1/x/../chat/completions",
      "/v1/./chat/completions",
      "/v1/models/..",
      "/v1/models/.",
      "/v1/models/../../flush_cache",
      "/v1/models/../",
      "/v1\\chat\\completions",
      "/v1/models/a b",
      "/v1/models/a\tb",
      "/v1/models/a\u0000b",
      "/v1/models/a\u007f",
      "/v1/models/\u00e9",
      "/v1/models/\u{1f600}",
    ]) {
      for (const method of ["GET", "POST"]) {
        const expected = { code: "invalid_path", status: 400 };
        expect(refusal(method, target), JSON.stringify(target)).to.deep.equal(expected);
      }
    }
  });

  it("answers 404 for everything else, whatever the method: engine admin paths stay hidden", () => {
    for (const target of [
      "",
      "/",
      "*",
      "?",
      "v1/chat/completions",
      "http://host/v1/chat/completions",
      "https://host//x",
      "host:443",
      "/v1",
      "/v1/chat",
      "/v1/chat/completions/x",
      "/v1/chat/completions#x",
      "/V1/chat/completions",
      "/v1/Chat/Completions",
      "/v1/model",
      "/v1/modelsx",
      "/versions",
      "/generate_stream",
      "/flush_cache",
      "/v1/load_lora_adapter",
      "/metrics",
      "/health",
      "/healthz",
      "/v1/models.",
      "/...",
    ]) {
      for (const method of ["GET", "POST", "DELETE"]) {
        const expected = { code: "unknown_path", status: 404 };
        expect(refusal(method, target), JSON.stringify(target)).to.deep.equal(expected);
      }
    }
  });

  it("shows a refused path shortened to 120 characters", () => {
    const at = classifyPath("GET", `/${"a".repeat(119)}`);
    const past = classifyPath("GET", `/${"a".repeat(120)}`);
    if (at.kind !== "rejected" || past.kind !== "rejected") throw new Error("both are unknown");
    expect(at.rejection.message).to.equal(`path "/${"a".repeat(119)}" is not served here`);
    expect(past.rejection.message).to.equal(`path "/${"a".repeat(119)}..." is not served here`);
  });

  it("never throws, and never lets a string through that is not on the list", () => {
    const known = new Set(INFERENCE.map(([path]) => path));
    const piece = fc.constantFrom(
      "/",
      "v1",
      "chat",
      "completions",
      "models",
      ".",
      "..",
      "?",
      "%2e",
      ";",
    );
    const target = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.array(piece, { maxLength: 9 }).map((pieces) => pieces.join("")),
    );
    fc.assert(
      fc.property(fc.constantFrom("GET", "POST", "PURGE"), target, (method, text) => {
        const decision = classifyPath(method, text);
        const path = (text.split("?")[0] ?? "").replace(/(.)\/$/s, "$1");
        if (decision.kind === "inference") expect(known.has(path)).to.equal(true);
        if (decision.kind === "pass_through") expect(path).to.match(/^\/(version$|v1\/models)/);
      }),
      { numRuns: 500 },
    );
  });

  it("knows which endpoints produce output tokens", () => {
    const silent = INFERENCE.map(([, endpoint]) => endpoint).filter(
      (e) => !producesOutputTokens(e),
    );
    expect(new Set(silent)).to.deep.equal(new Set(["embeddings", "rerank", "score"]));
  });
});
