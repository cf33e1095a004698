// Goal: a credit that an allocator takes over the admin port is one slot for exactly one request through
// Envoy, whoever else tries; nothing a client writes gets a slot, and no token is ever seen where it does not
// belong. A title that begins with a letter and a number is a row of the acceptance table.
// Method: a real Envoy, Weir's own admin port, and a worker that tells what reached it.

import { expect } from "chai";
import { pino } from "pino";
import { expectError, forgetSeen, seenByWorkers, sendChat } from "../support/chat.js";
import { creditHeaders } from "../support/credit-desk.js";
import { API, issueFields, jsonOf, refusalOf, SERVICE_KEY } from "../support/credit-server.js";
import { startCreditStack, type CreditStack } from "../support/credit-stack.js";
import { binding, POOL } from "../support/credits.js";
import { request } from "../support/http-client.js";
import { NOTHING_HELD } from "../support/stack.js";

const TENANT = "header:a";
const ONE_SLOT = { inFlight: 1, load: 0, live: 0, queued: 0 };
const tokensOf = (count: number): Readonly<Record<string, unknown>> => ({
  max_tokens: count,
  ignore_eos: true,
});

describe("a capacity credit through Envoy", () => {
  let credits: CreditStack;
  const lines: string[] = [];
  const log = pino({ level: "trace" }, { write: (line: string) => void lines.push(line) });
  before(async () => {
    credits = await startCreditStack({ slots: 4, log });
  });
  after(() => credits.stop());
  let request_id = "";
  let count = 0;
  beforeEach(() => {
    count += 1;
    request_id = `req-${String(count)}`;
  });
  afterEach(async () => {
    await credits.stack.idle();
    expect(await credits.active()).to.equal(0);
  });

  it("K1 is a token that comes back as it went out, and is seen nowhere else", async () => {
    await forgetSeen(credits.stack);
    const token = await credits.token({ request_id });
    expect(token).to.match(/^[A-Za-z0-9_-]{43}$/);
    const answer = await credits.redeem(token, { requestId: request_id });
    expect(answer.status, answer.body.toString()).to.equal(200);
    for (const junk of ["junk", `${token}=`, `${token.slice(0, -1)}B`, "", " "]) {
      const refused = await credits.redeem(junk, { requestId: request_id });
      expectError(refused, { status: 400, code: "invalid_capacity_credit" });
    }
    expectError(await credits.redeem(token, { requestId: request_id }), {
      status: 409,
      code: "capacity_credit_already_redeemed",
    });
    const pages = [
      "/metrics",
      "/state",
      "/state/fair-share",
      "/state/admission",
      "/state/selection",
      "/state/seeding",
      "/openapi.json",
    ];
    for (const path of pages) {
      const page = await request({ port: credits.adminPort, path });
      expect(page.body.toString(), path).to.not.contain(token);
    }
    const seen = seenByWorkers(credits.stack);
    expect(seen).to.have.length(1);
    expect(JSON.stringify(seen)).to.not.contain(token).and.not.contain("capacity-credit");
    expect(JSON.stringify(await credits.stack.envoy.waitForAccessLog(7))).to.not.contain(token);
    expect(lines.join("")).to.not.contain(token).and.not.contain(SERVICE_KEY);
    expect(lines.join("")).to.contain('"credit":true');
  });

  it("K13 is armed once, and says that it was redeemed", async () => {
    const token = await credits.token({ request_id });
    expect(
      refusalOf(await credits.arm(token, { request_id, model: "demo", policy_epoch: 8 })),
    ).to.equal("409 capacity_credit_binding_mismatch");
    const first = jsonOf(await credits.arm(token, { request_id }));
    expect(first).to.include({ newly_armed: true, dispatch_id: "d-1" });
    const again = jsonOf(await credits.arm(token, { request_id }));
    expect(again).to.include({ newly_armed: false });
    expect(again["expires_in_ms"]).to.be.at.most(first["expires_in_ms"] as number);
    expect(refusalOf(await credits.arm(token, { request_id, dispatch_id: "d-2" }))).to.equal(
      "409 capacity_credit_already_armed",
    );
    expect((await credits.redeem(token, { requestId: request_id })).status).to.equal(200);
    expect(refusalOf(await credits.arm(token, { request_id }))).to.equal(
      "409 capacity_credit_already_redeemed",
    );
    expect(refusalOf(await credits.issue({ request_id, generation: "g0" }))).to.equal(
      "409 capacity_credit_wrong_generation",
    );
  });

  it("K15 is charged what its answer used: 37 of an estimate of 1024", async () => {
    credits.stack.clear();
    const [before] = await credits.tokens(TENANT);
    const token = await credits.token({ request_id });
    expect(await credits.tokens(TENANT)).to.deep.equal([before, 1_024, 1]);
    const answer = await credits.redeem(token, { requestId: request_id }, tokensOf(37));
    expect(answer.status).to.equal(200);
    const [record] = await credits.stack.settlements(1);
    expect(record).to.deep.include({ credit: true, tenant: TENANT, partition: POOL });
    expect(record).to.include({ class: "default", waited: false, estimateTokens: 1_024 });
    expect(record?.charge).to.deep.include({ kind: "observed", tokens: 37 });
    expect(await credits.tokens(TENANT)).to.deep.equal([before + 37, 0, 0]);
  });

  it("K16 stays when the request id is wrong, and serves the right one", async () => {
    const token = await credits.token({ request_id });
    expectError(await credits.redeem(token, { requestId: "another" }), {
      status: 409,
      code: "capacity_credit_binding_mismatch",
    });
    expect(await credits.active()).to.equal(1);
    expect(credits.stack.held()).to.deep.equal(ONE_SLOT);
    expect((await credits.redeem(token, { requestId: request_id })).status).to.equal(200);
  });

  it("K6 has one winner among 16 requests that bring it at once", async () => {
    await forgetSeen(credits.stack);
    const before = await credits.operations();
    const token = await credits.token({ request_id });
    const answers = await Promise.all(
      Array.from({ length: 16 }, () => credits.redeem(token, { requestId: request_id })),
    );
    const outcomes = answers.map(({ status, headers }) =>
      [String(status), headers["x-weir-error-code"] ?? ""].join(" ").trim(),
    );
    expect(outcomes.filter((each) => each === "200")).to.have.length(1);
    expect(
      outcomes.filter((each) => each === "409 capacity_credit_already_redeemed"),
    ).to.have.length(15);
    expect(seenByWorkers(credits.stack)).to.have.length(1);
    const after = await credits.operations();
    const more = (outcome: string): number => (after[outcome] ?? 0) - (before[outcome] ?? 0);
    expect([more("pool issued"), more("pool redeemed"), more("pool replay")]).to.deep.equal([
      1, 1, 15,
    ]);
  });

  it("is bound to tenant, model, partition, estimate and epoch, and a mismatch consumes nothing", async () => {
    const token = await credits.token({ request_id });
    const right = { requestId: request_id };
    const wrong = [
      { ...right, tenant: "header:b" as never },
      { ...right, policyEpoch: 8n },
      { ...right, estimateTokens: 1_023 },
      { ...right, generation: "g2" },
      { ...right, model: "other" as never },
    ];
    for (const over of wrong) {
      expectError(await credits.redeem(token, over), {
        status: 409,
        code: "capacity_credit_binding_mismatch",
      });
    }
    expectError(await credits.redeem(token, { ...right, partition: "nowhere" as never }), {
      status: 400,
      code: "invalid_capacity_credit",
    });
    expect(await credits.active()).to.equal(1);
    // An alias is the model itself.
    expect(
      (await credits.redeem(token, { ...right, model: "demo-latest" as never })).status,
    ).to.equal(200);
  });

  it("keeps its slot from ordinary requests until it is cancelled", async () => {
    const tokens: string[] = [];
    for (let slot = 0; slot < 4; slot += 1) {
      tokens.push(await credits.token({ request_id: `${request_id}-${String(slot)}` }));
    }
    const waiting = sendChat(credits.stack);
    await credits.stack.until("one waits", () => credits.stack.held()["queued"] === 1);
    const refused = await credits.issue({ request_id });
    expect(refusalOf(refused)).to.equal("429 capacity_unavailable");
    expect(Number(refused.headers["retry-after"])).to.be.at.least(1);
    for (const token of tokens) expect((await credits.cancel(token)).status).to.equal(204);
    expect((await waiting).status).to.equal(200);
  });

  it("of a request whose body is no JSON stays, as does that of a broken header", async () => {
    const token = await credits.token({ request_id });
    const headers = creditHeaders(token, binding({ requestId: request_id }));
    const send = (
      lines: Readonly<Record<string, string>>,
      body: string,
    ): ReturnType<typeof request> =>
      request({
        port: credits.stack.port,
        path: "/v1/chat/completions",
        headers: [...Object.entries(lines), ["content-type", "application/json"]],
        body,
      });
    expectError(await send(headers, "{"), { status: 400, code: "invalid_request" });
    const chat = JSON.stringify({ model: "demo", messages: [] });
    for (const name of Object.keys(headers).filter((each) => each !== "x-weir-tenant-id")) {
      if (name === "x-weir-capacity-credit") continue;
      for (const value of ["", "a,b"]) {
        expectError(await send({ ...headers, [name]: value }, chat), {
          status: 400,
          code: "invalid_capacity_credit",
        });
      }
    }
    expect(await credits.active()).to.equal(1);
    await credits.cancel(token);
  });
});

describe("the allocator's API on the admin port of a running Weir", () => {
  let credits: CreditStack;
  before(async () => {
    credits = await startCreditStack({ slots: 1, credits: { required: true } });
  });
  after(() => credits.stop());

  it("K12 asks for the key, and has one slot to give", async () => {
    const path = `${API}/capabilities`;
    const stranger = await credits.call({ method: "GET", path, headers: { authorization: null } });
    expect(refusalOf(stranger)).to.equal("401 unauthorized");
    const known = await credits.call({ method: "GET", path });
    expect([known.status, known.body.toString()]).to.deep.equal([200, '{"arm":"v1"}']);
    const token = await credits.token();
    expect(jsonOf(await credits.issue())).to.include({ credit: token, newly_issued: false });
    expect(refusalOf(await credits.issue({ request_id: "req-2" }))).to.equal(
      "429 capacity_unavailable",
    );
    expect((await credits.cancel(token)).status).to.equal(204);
    const second = await credits.token({ request_id: "req-2" });
    await credits.cancel(second);
    const operations = await credits.operations();
    expect(operations).to.deep.equal({
      "pool issued": 2,
      "pool idempotent_retry": 1,
      "pool no_capacity": 1,
      "pool cancelled": 2,
    });
  });

  it("K14 makes a credit required: without one 429, and the pass-through paths as ever", async () => {
    expectError(await sendChat(credits.stack), {
      status: 429,
      code: "capacity_credit_required",
      retryAfter: "1",
    });
    const models = await request({ port: credits.stack.port, path: "/v1/models" });
    expect(models.status).to.equal(200);
    const token = await credits.token({ request_id: "req-3" });
    expect((await credits.redeem(token, { requestId: "req-3" })).status).to.equal(200);
    await credits.stack.idle();
  });

  it("gives nothing more while Weir drains, and a credit that is out is refused `draining`", async () => {
    const token = await credits.token({ request_id: "req-4" });
    credits.stack.app.desk.drain();
    expect(refusalOf(await credits.issue({ request_id: "req-5" }))).to.equal("503 draining");
    expect(refusalOf(await credits.arm(token, { request_id: "req-4" }))).to.equal("503 draining");
    expectError(await credits.redeem(token, { requestId: "req-4" }), {
      status: 503,
      code: "draining",
      retryAfter: "1",
    });
    expect((await credits.cancel(token)).status).to.equal(204);
    expect(credits.stack.held()).to.deep.equal(NOTHING_HELD);
  });
});

describe("credit headers that a client makes up", () => {
  for (const { title, over } of [
    { title: "from a peer that is no trusted proxy", over: { peers: ["10.9.9.9", "127.0.0.2"] } },
    { title: "while credits are off", over: { off: true } },
  ]) {
    it(`are not read and not passed on ${title}`, async () => {
      const credits = await startCreditStack({
        ...(over.peers === undefined
          ? { credits: { generation: undefined } }
          : {
              config: {
                trust: {
                  tenant_id: true,
                  prefer_tenant_id: true,
                  request_model: true,
                  output_token_estimate: true,
                  peers: over.peers,
                },
              },
            }),
      });
      try {
        const { stack } = credits;
        // The allocator of a stack speaks from an address of its own where peers are named.
        const issued =
          over.peers === undefined
            ? undefined
            : await request({
                port: credits.adminPort,
                path: API,
                headers: [
                  ["authorization", `Bearer ${SERVICE_KEY}`],
                  ["content-type", "application/json"],
                  ["x-weir-tenant-id", "a"],
                ],
                body: JSON.stringify(issueFields()),
                localAddress: "127.0.0.2",
              });
        const token = issued === undefined ? "A".repeat(43) : String(jsonOf(issued)["credit"]);
        expect(token).to.have.length(43);
        const held = stack.held();
        for (const credit of [token, "junk", ""]) {
          const answer = await credits.redeem(credit);
          expect(answer.status, answer.body.toString()).to.equal(200);
        }
        const records = await stack.settlements(3);
        for (const record of records) expect(record.credit).to.equal(false);
        const seen = JSON.stringify(seenByWorkers(stack));
        expect(seen).to.not.contain("x-weir-").and.not.contain(token);
        await stack.until("as before", () => stack.held()["inFlight"] === held["inFlight"]);
        if (issued !== undefined) expect(await credits.active()).to.equal(1);
      } finally {
        await credits.stop();
      }
    });
  }
});
