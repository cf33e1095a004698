import { expect } from "chai";
import { AdminServer, type AdminPages } from "../../../extproc/edge/admin/admin-server.js";
import { request } from "../../support/http-client.js";

describe("AdminServer", () => {
  let server: AdminServer;
  let port: number;
  let ready = false;
  let errors: unknown[] = [];
  let metrics: AdminPages["metrics"];

  before(async () => {
    server = new AdminServer({
      ready: () => ready,
      metrics: () => metrics(),
      states: new Map<string, (query: URLSearchParams) => unknown>([
        ["/state", () => ({ workers: [] })],
        ["/state/one", (query: URLSearchParams) => ({ asked: query.get("tenant") })],
      ]),
      credits: (_, path) => ({ status: 418, headers: {}, text: path }),
      openApi: { openapi: "3.1.0" },
      onError: (error) => errors.push(error),
    });
    const address = await server.listen({ kind: "tcp", host: "127.0.0.1", port: 0 });
    port = address.kind === "tcp" ? address.port : 0;
  });
  after(() => server.close());
  beforeEach(() => {
    ready = true;
    errors = [];
    metrics = () => Promise.resolve({ contentType: "text/plain; version=0.0.4", text: "m 1\n" });
  });

  const get = (path: string, method = "GET"): ReturnType<typeof request> =>
    request({ port, path, method });

  it("is healthy whatever the readiness, and ready only when told so", async () => {
    expect((await get("/readyz")).status).to.equal(200);
    ready = false;
    expect((await get("/readyz")).status).to.equal(503);
    expect((await get("/healthz")).status).to.equal(200);
  });

  it("serves metrics with their content type and state as JSON, query or not", async () => {
    const page = await get("/metrics?x=1");
    expect(page.headers["content-type"]).to.equal("text/plain; version=0.0.4");
    expect(page.body.toString()).to.equal("m 1\n");
    const state = await get("/state");
    expect(state.headers["content-type"]).to.equal("application/json");
    expect(JSON.parse(state.body.toString())).to.deep.equal({ workers: [] });
  });

  it("answers HEAD without a body, refuses other methods and unknown paths", async () => {
    const head = await get("/healthz", "HEAD");
    expect([head.status, head.body.length]).to.deep.equal([200, 0]);
    const post = await get("/state", "POST");
    expect([post.status, post.headers.allow]).to.deep.equal([405, "GET, HEAD"]);
    const nowhere = await get("/nope");
    expect(nowhere.status).to.equal(404);
    expect(nowhere.body.toString()).to.equal(
      "the pages are /healthz, /readyz, /metrics, /state, /state/one, /openapi.json\n",
    );
  });

  it("hands a page its query, with everything a key may contain", async () => {
    const page = await get("/state/one?tenant=auth%3Aa%26b%3Fc");
    expect(JSON.parse(page.body.toString())).to.deep.equal({ asked: "auth:a&b?c" });
  });

  it("serves the OpenAPI document", async () => {
    const page = await get("/openapi.json");
    expect(page.headers["content-type"]).to.equal("application/json");
    expect(JSON.parse(page.body.toString())).to.deep.equal({ openapi: "3.1.0" });
  });

  it("hands the credits API whatever is below its path, in any method, without the query", async () => {
    for (const path of ["", "/capabilities", "/x/arm"]) {
      for (const method of ["GET", "POST", "DELETE", "PATCH"]) {
        const answer = await get(`/internal/capacity-credits${path}?q=1`, method);
        expect(answer.status).to.equal(418);
        expect(answer.body.toString()).to.equal(`/internal/capacity-credits${path}`);
      }
    }
    expect((await get("/internal/capacity-creditsX")).status).to.equal(404);
  });

  it("answers 500 and reports when a page cannot be made", async () => {
    metrics = () => Promise.reject(new Error("broken"));
    expect((await get("/metrics")).status).to.equal(500);
    expect(errors).to.have.length(1);
  });

  it("rejects a port that is taken", async () => {
    const second = new AdminServer({
      ready: () => true,
      metrics,
      states: new Map(),
      credits: () => ({ status: 404, headers: {}, text: undefined }),
      openApi: {},
      onError: () => undefined,
    });
    const failure = await second.listen({ kind: "tcp", host: "127.0.0.1", port }).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(failure).to.have.property("code", "EADDRINUSE");
  });
});
