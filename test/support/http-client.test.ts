import * as http from "node:http";
import { expect } from "chai";
import { open, request } from "./http-client.js";

interface Seen {
  readonly rawHeaders: readonly string[];
  readonly url: string | undefined;
  readonly method: string | undefined;
  readonly body: string;
}

describe("the raw HTTP client", () => {
  let server: http.Server;
  let port = 0;
  let seen: Seen[] = [];

  beforeEach(async () => {
    seen = [];
    server = http.createServer((incoming, answer) => {
      let body = "";
      incoming.on("data", (chunk: Buffer) => (body += chunk.toString()));
      incoming.on("end", () => {
        const { rawHeaders, url, method } = incoming;
        seen.push({ rawHeaders, url, method, body });
        if (url === "/hang") return;
        if (url === "/cut") {
          answer.writeHead(200, { "content-length": "10" });
          answer.write("12345", () => incoming.socket.destroy());
          return;
        }
        if (url === "/endless") {
          answer.write("first");
          return;
        }
        answer.writeHead(201, { "x-reply": "yes" });
        answer.end("done");
      });
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    port = (server.address() as { port: number }).port;
  });

  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  });

  it("sends duplicate headers in the order and case given", async () => {
    const answer = await request({
      port,
      path: "/a//b%2f;x",
      headers: [
        ["X-Tenant", "a"],
        ["x-tenant", "b"],
      ],
    });
    expect(answer.status).to.equal(201);
    expect(answer.body.toString()).to.equal("done");
    expect(answer.complete).to.equal(true);
    expect(seen[0]?.rawHeaders.slice(0, 4)).to.deep.equal(["X-Tenant", "a", "x-tenant", "b"]);
    expect(seen[0]?.url).to.equal("/a//b%2f;x");
    expect(seen[0]?.method).to.equal("GET");
  });

  it("sends a body with its length in bytes", async () => {
    await request({ port, path: "/", body: "é" });
    expect(seen[0]?.method).to.equal("POST");
    expect(seen[0]?.body).to.equal("é");
    const index = seen[0]?.rawHeaders.indexOf("Content-Length") ?? -1;
    expect(seen[0]?.rawHeaders[index + 1]).to.equal("2");
  });

  it("sends an open body in pieces", async () => {
    const opened = open({ port, path: "/", method: "POST" });
    opened.write("one ");
    opened.write("two");
    opened.end();
    expect((await opened.answer).status).to.equal(201);
    expect(seen[0]?.body).to.equal("one two");
  });

  it("leaves in the middle of an answer when told so", async () => {
    const answer = await request({
      port,
      path: "/endless",
      onChunk: (_chunk, abort) => {
        abort();
      },
    });
    expect(answer.aborted).to.equal(true);
    expect(answer.complete).to.equal(false);
    expect(answer.body.toString()).to.equal("first");
  });

  it("leaves before there is an answer", async () => {
    const answer = await request({ port, path: "/hang", abortAfterMs: 20 });
    expect([answer.status, answer.aborted]).to.deep.equal([0, true]);
  });

  it("reports an answer that was cut off as incomplete, not as an error", async () => {
    const answer = await request({ port, path: "/cut" });
    expect([answer.status, answer.aborted, answer.complete]).to.deep.equal([200, false, false]);
    expect(answer.body.toString()).to.equal("12345");
  });

  it("rejects, naming the request, when no end comes in time", async () => {
    const problem = await request({ port, path: "/hang", limitMs: 20 }).then(
      () => "answered",
      (error: unknown) => (error as Error).message,
    );
    expect(problem).to.equal("GET /hang: no end in 20 ms");
  });

  it("rejects when nobody listens", async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
    const code = await request({ port, path: "/" }).then(
      () => "answered",
      (error: unknown) => (error as NodeJS.ErrnoException).code,
    );
    expect(code).to.equal("ECONNREFUSED");
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  });
});
