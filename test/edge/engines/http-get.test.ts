import { getEventListeners } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { expect } from "chai";
import {
  deadlineAfter,
  getText,
  type GetFailure,
  type TextAnswer,
} from "../../../extproc/edge/engines/http-get.js";
import { startEngine, type LoopbackEngine, type Route } from "./support.js";

describe("getText", () => {
  let engine: LoopbackEngine;
  const stop = new AbortController();

  before(async () => {
    engine = await startEngine({});
  });
  after(() => engine.close());

  async function ask(
    route: Route,
    { timeoutMs = 5_000, maxBytes = 100 } = {},
  ): Promise<TextAnswer | GetFailure> {
    engine.routes.set("/metrics", route);
    const deadline = deadlineAfter(timeoutMs, stop.signal);
    const headers = { authorization: "Bearer k" };
    try {
      return await getText(new URL("/metrics?a=1", engine.url), { ...deadline, headers }, maxBytes);
    } finally {
      deadline.end();
    }
  }
  async function reason(route: Route, limits = {}): Promise<string> {
    const answer = await ask(route, limits);
    return answer.kind === "failed" ? answer.reason : "an answer";
  }

  it("gives the text of a 2xx answer and sends its headers", async () => {
    expect(await ask("up 1\n")).to.deep.equal({ kind: "text", text: "up 1\n" });
    expect(engine.requests.at(-1)?.headers.authorization).to.equal("Bearer k");
    expect(engine.requests.at(-1)?.url).to.equal("/metrics?a=1");
    expect(await ask(204)).to.deep.equal({ kind: "text", text: "" });
  });

  for (const [status, expected] of [
    [401, "status_401"],
    [403, "status_other"],
    [404, "status_404"],
    [429, "status_other"],
    [500, "status_other"],
    [503, "status_other"],
  ] as const) {
    it(`says ${expected} for ${String(status)}`, async () => {
      expect(await reason(status)).to.equal(expected);
    });
  }

  it("does not follow a redirect: a key must not travel", async () => {
    const before = engine.requests.length;
    const answer = await ask((_, response) => {
      response.writeHead(302, { location: "/elsewhere" }).end();
    });
    expect(answer).to.deep.equal({
      kind: "failed",
      reason: "status_other",
      detail: "/metrics: status 302",
    });
    expect(engine.requests.length - before).to.equal(1);
  });

  it("says not_text for HTML with status 200, by its type or by its beginning", async () => {
    const page = "\n <!DOCTYPE html><html></html>";
    expect(await reason(page)).to.equal("not_text");
    expect(
      await reason((_, response) => {
        response.writeHead(200, { "content-type": "Text/HTML; charset=utf-8" }).end("up 1\n");
      }),
    ).to.equal("not_text");
  });

  it("reads a body at its limit and not one byte more", async () => {
    expect(await reason("x".repeat(100))).to.equal("an answer");
    expect(await reason("x".repeat(101))).to.equal("too_large");
  });

  it("measures a compressed body unpacked, and ends it early", async () => {
    const bomb = gzipSync(Buffer.alloc(20 * 1024 * 1024));
    const answer = await ask((_, response) => {
      response.writeHead(200, { "content-encoding": "gzip" }).end(bomb);
    });
    expect(answer).to.deep.equal({
      kind: "failed",
      reason: "too_large",
      detail: "/metrics: more than 100 bytes",
    });
  });

  it("closes the connection of a body that never ends", async () => {
    let closed: () => void = () => undefined;
    const whenClosed = new Promise<void>((resolve) => (closed = resolve));
    const answer = await ask((_, response) => {
      response.writeHead(200);
      const timer = setInterval(() => response.write("x".repeat(64)), 1);
      response.on("close", () => {
        clearInterval(timer);
        closed();
      });
    });
    expect(answer).to.include({ reason: "too_large" });
    await whenClosed;
  });

  it("says malformed for bytes that are not UTF-8", async () => {
    expect(
      await reason((_, response) => {
        response.writeHead(200).end(Buffer.from([0x75, 0x70, 0xff]));
      }),
    ).to.equal("malformed");
  });

  it("times out on a server that never answers", async () => {
    const answer = await ask(() => undefined, { timeoutMs: 50 });
    expect(answer).to.deep.equal({
      kind: "failed",
      reason: "timeout",
      detail: "/metrics: no answer within 50 ms",
    });
  });

  it("times out on a server that stops in the middle of the body", async () => {
    const half: Route = (_, response) => {
      response.writeHead(200);
      response.write("up");
    };
    expect(await reason(half, { timeoutMs: 50 })).to.equal("timeout");
  });

  it("says connect when nobody listens, and when the answer is cut", async () => {
    const port = await new Promise<number>((resolve) => {
      const server = createServer().listen(0, "127.0.0.1", () => {
        const { port: free } = server.address() as AddressInfo;
        server.close(() => {
          resolve(free);
        });
      });
    });
    const deadline = deadlineAfter(5_000, stop.signal);
    const url = new URL(`http://127.0.0.1:${String(port)}/metrics`);
    expect(await getText(url, deadline, 100)).to.deep.equal({
      kind: "failed",
      reason: "connect",
      detail: "/metrics: ECONNREFUSED",
    });
    deadline.end();
    const cut: Route = (_, response) => {
      response.writeHead(200, { "content-length": 1_000 });
      response.write("up 1\n", () => response.destroy());
    };
    expect(await reason(cut)).to.equal("connect");
  });

  it("leaves no listener on the signal it was stopped by", async () => {
    for (let index = 0; index < 20; index += 1) await ask("up 1\n");
    expect(getEventListeners(stop.signal, "abort")).to.have.length(0);
  });
});
