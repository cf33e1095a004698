// The capacity-credit API as an allocator meets it over a socket: who gets in, what is taken, and every row
// of the table of errors. A title that begins with a letter and a number is a row of the acceptance table.

import { expect } from "chai";
import { tenantKey } from "../../../extproc/core/model/ids.js";
import { CreditApi } from "../../../extproc/edge/admin/credit-api.js";
import { API_BODY_MAX_BYTES } from "../../../extproc/edge/admin/request-body.js";
import {
  API,
  CREDITS_ON,
  CreditServer,
  issueFields,
  jsonOf,
  refusalOf,
  SERVICE_KEY,
  type CreditServerOptions,
} from "../../support/credit-server.js";
import { NOTHING_LEFT } from "../../support/desk.js";
import { binding, POOL } from "../../support/credits.js";
import { open, request } from "../../support/http-client.js";

/** While no slot has come back yet, the estimate is the patience of class `default` in the tests. */
const PATIENCE_S = "60";
const NOWHERE = "A".repeat(43);

describe("the capacity-credit API", () => {
  let server: CreditServer;
  const started = async (options: CreditServerOptions = {}): Promise<CreditServer> => {
    server = await new CreditServer(options).start();
    return server;
  };
  afterEach(async () => {
    await server.close();
    expect(server.faults).to.deep.equal([]);
  });

  it("K12 lets in who knows the key, and issues one slot once", async () => {
    await started({ slots: 1 });
    const path = `${API}/capabilities`;
    const stranger = await server.call({ method: "GET", path, headers: { authorization: null } });
    expect(refusalOf(stranger)).to.equal("401 unauthorized");
    expect(stranger.headers["www-authenticate"]).to.equal('Bearer realm="capacity credits"');
    const known = await server.call({ method: "GET", path });
    expect([known.status, known.body.toString()]).to.deep.equal([200, '{"arm":"v1"}']);

    const first = jsonOf(await server.issue());
    expect(first).to.deep.equal({
      credit: first["credit"],
      generation: "g1",
      expires_in_ms: 30_000,
      newly_issued: true,
    });
    expect(first["credit"]).to.match(/^[A-Za-z0-9_-]{43}$/);
    server.bench.advance(10_000);
    expect(jsonOf(await server.issue())).to.deep.equal({
      ...first,
      expires_in_ms: 20_000,
      newly_issued: false,
    });
    const second = await server.issue({ request_id: "req-2" });
    expect(refusalOf(second)).to.equal("429 capacity_unavailable");
    expect(second.headers["retry-after"]).to.equal(PATIENCE_S);
    const cancelled = await server.cancel(String(first["credit"]));
    expect([cancelled.status, cancelled.body.length]).to.deep.equal([204, 0]);
    expect(refusalOf(await server.issue({ request_id: "req-2" }))).to.equal("200");
    expect(server.allocator.active).to.equal(1);
  });

  it("K13 arms a credit for one dispatch, and again only for the same one", async () => {
    await started();
    const token = await server.token();
    expect(refusalOf(await server.arm(token, { estimated_output_tokens: 1 }))).to.equal(
      "409 capacity_credit_binding_mismatch",
    );
    server.bench.advance(1_000);
    expect(jsonOf(await server.arm(token))).to.deep.equal({
      generation: "g1",
      dispatch_id: "d-1",
      expires_in_ms: 30_000,
      newly_armed: true,
    });
    server.bench.advance(500);
    expect(jsonOf(await server.arm(token))).to.include({
      expires_in_ms: 29_500,
      newly_armed: false,
    });
    expect(refusalOf(await server.arm(token, { dispatch_id: "d-2" }))).to.equal(
      "409 capacity_credit_already_armed",
    );
    expect(server.allocator.credits.redeem(token, binding(), server.bench.now).ok).to.equal(true);
    const late = await server.arm(token);
    expect(refusalOf(late)).to.equal("409 capacity_credit_already_redeemed");
    expect(late.headers).to.not.have.property("retry-after");
  });

  it("K13 refuses another generation and takes the right one afterwards", async () => {
    await started();
    const wrong = await server.issue({ generation: "g2" });
    expect(refusalOf(wrong)).to.equal("409 capacity_credit_wrong_generation");
    expect(wrong.headers["retry-after"]).to.equal(PATIENCE_S);
    const token = await server.token();
    expect(refusalOf(await server.arm(token, { generation: "g2" }))).to.equal(
      "409 capacity_credit_wrong_generation",
    );
    expect(refusalOf(await server.arm(token))).to.equal("200");
  });

  it("tells what became of a credit: conflict, unknown, expired, cancelled, redeemed", async () => {
    await started();
    const token = await server.token();
    const conflict = await server.issue({ estimated_output_tokens: 2_048 });
    expect(refusalOf(conflict)).to.equal("409 capacity_credit_request_conflict");
    expect(conflict.headers["retry-after"]).to.equal(PATIENCE_S);
    const unknown = await server.arm(NOWHERE);
    expect(refusalOf(unknown)).to.equal("409 capacity_credit_unknown");
    expect(unknown.headers).to.not.have.property("retry-after");
    await server.cancel(token);
    server.bench.advance(1_000);
    const again = await server.issue();
    expect(refusalOf(again)).to.equal("409 capacity_credit_cancelled");
    // One slot came back within one second and nobody waits.
    expect(again.headers["retry-after"]).to.equal("1");
    expect(refusalOf(await server.arm(token))).to.equal("409 capacity_credit_cancelled");
    const second = await server.token({ request_id: "req-2" });
    server.bench.advance(30_000);
    expect(refusalOf(await server.arm(second, { request_id: "req-2" }))).to.equal(
      "409 capacity_credit_expired",
    );
    const third = await server.token({ request_id: "req-3" });
    const bound = binding({ requestId: "req-3" });
    expect(server.allocator.credits.redeem(third, bound, server.bench.now).ok).to.equal(true);
    expect(refusalOf(await server.issue({ request_id: "req-3" }))).to.equal(
      "409 capacity_credit_already_redeemed",
    );
  });

  it("cancels whatever is cancelled: active, dead and unknown, but no text that is no token", async () => {
    await started();
    const token = await server.token();
    for (const target of [token, token, NOWHERE]) {
      const answer = await server.cancel(target);
      expect([answer.status, answer.body.length]).to.deep.equal([204, 0]);
      expect(answer.headers).to.not.have.property("content-type");
    }
    for (const junk of [
      "x",
      `${token}A`,
      `${token.slice(0, -1)}B`,
      `${token.slice(0, -1)}=`,
      "%41",
    ]) {
      expect(refusalOf(await server.cancel(junk)), junk).to.equal("400 invalid_capacity_credit");
      expect(refusalOf(await server.arm(junk)), junk).to.equal("400 invalid_capacity_credit");
    }
    expect(server.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("lets nobody in with a key that is wrong in any way", async () => {
    await started();
    const wrong: readonly (string | readonly string[] | null)[] = [
      null,
      "",
      "Bearer",
      "Bearer ",
      SERVICE_KEY,
      `Basic ${SERVICE_KEY}`,
      `Bearer ${SERVICE_KEY}x`,
      `Bearer ${SERVICE_KEY.slice(0, -1)}`,
      `Bearer ${SERVICE_KEY.toUpperCase()}`,
      `Bearer ${SERVICE_KEY} ${SERVICE_KEY}`,
      [`Bearer ${SERVICE_KEY}`, `Bearer ${SERVICE_KEY}`],
    ];
    const token = await server.token();
    for (const authorization of wrong) {
      const headers = { authorization };
      const answers = [
        await server.issue({}, headers),
        await server.arm(token, {}, headers),
        await server.cancel(token, headers),
      ];
      for (const answer of answers) {
        expect(refusalOf(answer), String(authorization)).to.equal("401 unauthorized");
      }
    }
    expect(server.allocator.active).to.equal(1);
    const fine = { authorization: `bearer  ${SERVICE_KEY} ` };
    expect((await server.cancel(token, fine)).status).to.equal(204);
  });

  it("reads the tenant from the one trusted header, and holds no slot without it", async () => {
    await started();
    const wrong: readonly (string | readonly string[] | null)[] = [
      null,
      "",
      " ",
      "a,b",
      "a b",
      "x".repeat(257),
      ["a", "a"],
    ];
    const token = await server.token();
    for (const tenant of wrong) {
      const headers = { "x-weir-tenant-id": tenant };
      const answer = await server.issue({ request_id: "req-2" }, headers);
      expect(refusalOf(answer), String(tenant)).to.equal("400 invalid_capacity_credit");
      expect(answer.body.toString()).to.contain("x-weir-tenant-id");
      expect(refusalOf(await server.arm(token, {}, headers))).to.equal(
        "400 invalid_capacity_credit",
      );
    }
    expect(server.bench.operations.slice(1)).to.deep.equal(
      wrong.flatMap(() => ["pool invalid_binding", "pool arm_rejected"]),
    );
    expect(server.bench.ledger?.account(tenantKey("header:a"))?.reserved).to.equal(1_024);
    expect(refusalOf(await server.arm(token, {}, { "x-weir-tenant-id": "b" }))).to.equal(
      "409 capacity_credit_binding_mismatch",
    );
    expect(refusalOf(await server.issue({}, { "x-weir-tenant-id": "b" }))).to.equal("200");
    expect(server.allocator.active).to.equal(2);
  });

  it("believes the tenant header of a named peer only", async () => {
    const trust = (peers: readonly string[]): CreditServerOptions["config"] => ({
      trust: {
        tenant_id: true,
        prefer_tenant_id: true,
        request_model: true,
        output_token_estimate: true,
        peers,
      },
    });
    await started({ config: trust(["10.1.2.3"]) ?? {} });
    const refused = await server.issue();
    expect(refusalOf(refused)).to.equal("400 invalid_capacity_credit");
    expect(jsonOf(refused)["error"]).to.have.property(
      "message",
      "the peer is not in trust.peers, so its tenant header is not read",
    );
    await server.close();
    await started({ config: trust(["10.1.2.3", "127.0.0.0/8"]) ?? {} });
    expect(refusalOf(await server.issue())).to.equal("200");
  });

  it("names a configured partition, a model served in it, and knows aliases", async () => {
    await started();
    expect(refusalOf(await server.issue({ partition: "nowhere" }))).to.equal(
      "400 unknown_partition",
    );
    expect(refusalOf(await server.arm(NOWHERE, { partition: "POOL" }))).to.equal(
      "400 unknown_partition",
    );
    for (const wrong of [{ model: "other" }, { partition: "empty" }]) {
      expect(refusalOf(await server.issue(wrong))).to.equal("400 invalid_capacity_credit");
    }
    expect(server.bench.operations).to.deep.equal([
      "unknown invalid_binding",
      "unknown arm_rejected",
      "pool invalid_binding",
      "empty invalid_binding",
    ]);
    const token = await server.token({ model: "demo-latest", partition: ` ${POOL} ` });
    // The alias and its model are one binding.
    expect(jsonOf(await server.issue({ model: " demo " }))).to.include({
      credit: token,
      newly_issued: false,
    });
  });

  it("K2 takes no field that is missing, of another kind, out of bounds or not known, and counts it", async () => {
    await started();
    const wrong: readonly object[] = [
      ...Object.keys(issueFields()).map((key) => issueFields({ [key]: undefined })),
      ...Object.keys(issueFields()).map((key) => issueFields({ [key]: null })),
      ...["", " g1", "g1 ", "a,b", "x".repeat(129), 7].map((generation) =>
        issueFields({ generation }),
      ),
      ...["", " r", "r ", "a b", "é", "x".repeat(257)].map((id) => issueFields({ request_id: id })),
      ...[0, -1, 1.5, 4_294_967_296, "5"].map((n) => issueFields({ estimated_output_tokens: n })),
      ...[-1, 1.5, "", "-1", "1e3", "0x1", "18446744073709551616"].map((n) =>
        issueFields({ policy_epoch: n }),
      ),
      ...["", " ", "x".repeat(257)].flatMap((name) => [
        issueFields({ partition: name }),
        issueFields({ model: name }),
      ]),
      issueFields({ tenant: "a" }),
      issueFields({ dispatch_id: "d-1" }),
    ];
    for (const fields of wrong) {
      const answer = await server.call({ body: fields });
      expect(refusalOf(answer), JSON.stringify(fields)).to.equal("400 invalid_capacity_credit");
    }
    expect(server.bench.operations).to.deep.equal(wrong.map(() => "unknown invalid_binding"));
    const many = await server.call({ body: { generation: 1, partition: 2 } });
    expect(jsonOf(many)["error"]).to.have.property(
      "message",
      "generation must be 1 to 128 characters of visible ASCII without blanks and commas; " +
        "policy_epoch must be an integer from 0 to 18446744073709551615, as a number or as text; " +
        "partition must be text of 1 to 256 characters; model must be text of 1 to 256 characters; " +
        "request_id must be 1 to 256 characters of visible ASCII without blanks and commas; " +
        "estimated_output_tokens must be an integer from 1 to 4294967295",
    );
    expect(server.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("K9 takes no dispatch id that is empty, over 128 bytes, padded or with controls", async () => {
    await started();
    const token = await server.token();
    for (const dispatch_id of [
      "",
      "x".repeat(129),
      "é".repeat(65),
      " d",
      "d ",
      "a\nb",
      5,
      undefined,
    ]) {
      expect(refusalOf(await server.arm(token, { dispatch_id }))).to.equal(
        "400 invalid_capacity_credit",
      );
    }
    expect(refusalOf(await server.arm(token, { dispatch_id: "é".repeat(64) }))).to.equal("200");
  });

  it("keeps policy epochs above 2^53 apart, as numbers and as text", async () => {
    await started();
    const epoch = "18446744073709551615";
    const withEpoch = (digits: string): string =>
      JSON.stringify(issueFields()).replace('"policy_epoch":7', `"policy_epoch": ${digits} `);
    const first = await server.call({ body: withEpoch(epoch) });
    expect(refusalOf(first)).to.equal("200");
    expect(jsonOf(await server.call({ body: withEpoch(`"${epoch}"`) }))).to.include({
      credit: jsonOf(first)["credit"],
      newly_issued: false,
    });
    // Both are the same number in JavaScript.
    expect(refusalOf(await server.call({ body: withEpoch("18446744073709551614") }))).to.equal(
      "409 capacity_credit_request_conflict",
    );
    for (const digits of ["18446744073709551616", "1e19", "7.0", "-0"]) {
      expect(refusalOf(await server.call({ body: withEpoch(digits) })), digits).to.equal(
        "400 invalid_capacity_credit",
      );
    }
    // The last of two members counts, as everywhere in JSON; a key may be written with escapes.
    const twice = JSON.stringify(issueFields({ request_id: "req-2" })).replace(
      '"policy_epoch":7',
      '"policy_epoch":1,"policy\\u005fepoch":9007199254740993',
    );
    expect(refusalOf(await server.call({ body: twice }))).to.equal("200");
    const bound = binding({ requestId: "req-2", policyEpoch: 9_007_199_254_740_993n });
    expect(server.allocator.credits.issue(bound, server.bench.now)).to.include({
      newlyIssued: false,
    });
  });

  it("takes JSON objects only", async () => {
    await started();
    const text = JSON.stringify(issueFields());
    const bodies = ["", "{", "[]", "null", "7", '"x"', `${text},`, "\u0000", "[".repeat(60_000)];
    for (const body of bodies) {
      expect(refusalOf(await server.call({ body })), body.slice(0, 20)).to.equal(
        "400 invalid_request",
      );
    }
    const deep = text.replace("}", `,"x":${"[".repeat(600)}${"]".repeat(600)}}`);
    expect(refusalOf(await server.call({ body: deep }))).to.equal("400 invalid_request");
    const latin = await request({
      port: server.port,
      path: API,
      headers: [
        ["authorization", `Bearer ${SERVICE_KEY}`],
        ["content-type", "application/json"],
      ],
      body: Uint8Array.of(0x7b, 0x22, 0xe9, 0x22, 0x3a, 0x31, 0x7d),
    });
    expect(refusalOf(latin)).to.equal("400 invalid_request");
    const types: readonly (string | null)[] = [
      null,
      "text/plain",
      "application/jsonx",
      "application/json-x",
    ];
    for (const type of types) {
      expect(refusalOf(await server.issue({}, { "content-type": type }))).to.equal(
        "415 unsupported_media_type",
      );
    }
    expect(refusalOf(await server.issue({}, { "content-encoding": "gzip" }))).to.equal(
      "415 unsupported_media_type",
    );
    expect(
      refusalOf(await server.issue({}, { "content-type": "Application/JSON; charset=utf-8" })),
    ).to.equal("200");
  });

  it("reads a body of 64 KiB and no byte more, however it is sent", async () => {
    await started();
    const text = JSON.stringify(issueFields());
    const padded = (length: number): string => text + " ".repeat(length - text.length);
    expect(refusalOf(await server.call({ body: padded(API_BODY_MAX_BYTES) }))).to.equal("200");
    for (const length of [API_BODY_MAX_BYTES + 1, 1_048_576]) {
      const answer = await server.call({ body: padded(length) });
      expect(refusalOf(answer)).to.equal("413 body_too_large");
      expect(answer.headers.connection).to.equal("close");
    }
    const chunked = open({
      port: server.port,
      path: API,
      method: "POST",
      headers: [
        ["authorization", `Bearer ${SERVICE_KEY}`],
        ["content-type", "application/json"],
      ],
    });
    chunked.write(padded(API_BODY_MAX_BYTES));
    chunked.write(" ");
    chunked.end();
    expect(refusalOf(await chunked.answer)).to.equal("413 body_too_large");
  });

  it("is not held up by a client that leaves in the middle of its body", async () => {
    await started();
    const leaving = open({
      port: server.port,
      path: API,
      method: "POST",
      headers: [
        ["authorization", `Bearer ${SERVICE_KEY}`],
        ["content-type", "application/json"],
        ["content-length", "1000"],
      ],
    });
    leaving.write("{");
    await server.token();
    leaving.abort();
    await leaving.answer;
    expect(server.allocator.active).to.equal(1);
  });

  it("names the method that a path takes, and knows no other path", async () => {
    await started();
    const token = await server.token();
    const wrong = [
      ["GET", API, "POST"],
      ["DELETE", API, "POST"],
      ["POST", `${API}/capabilities`, "GET"],
      ["DELETE", `${API}/capabilities`, "GET"],
      ["GET", `${API}/${token}`, "DELETE"],
      ["POST", `${API}/${token}`, "DELETE"],
      ["GET", `${API}/${token}/arm`, "POST"],
    ] as const;
    for (const [method, path, allow] of wrong) {
      const answer = await server.call({ method, path });
      expect(refusalOf(answer)).to.equal("405 method_not_allowed");
      expect(answer.headers.allow).to.equal(allow);
    }
    const paths = [
      `${API}/`,
      `${API}/${token}/`,
      `${API}/${token}/redeem`,
      `${API}/${token}/arm/x`,
    ];
    for (const path of paths) {
      const answer = await server.call({ path });
      expect(refusalOf(answer)).to.equal("404 not_found");
      expect(answer.body.toString()).to.not.contain(token);
    }
    expect(server.allocator.active).to.equal(1);
  });

  it("issues and arms nothing while the process drains, but cancels", async () => {
    await started();
    const token = await server.token();
    server.bench.desk.drain();
    for (const answer of [await server.issue({ request_id: "req-2" }), await server.arm(token)]) {
      expect(refusalOf(answer)).to.equal("503 draining");
      expect(answer.headers["retry-after"]).to.equal("1");
    }
    expect((await server.cancel(token)).status).to.equal(204);
    expect(server.bench.leftovers()).to.deep.equal(NOTHING_LEFT);
  });

  it("answers 404 while credits are off: without a body to a cancel, with its code to all else", async () => {
    await started({ config: { credits: {} } });
    const cancelled = await server.cancel(NOWHERE);
    expect([cancelled.status, cancelled.body.length]).to.deep.equal([404, 0]);
    const answers = [
      await server.issue(),
      await server.arm(NOWHERE),
      await server.call({ method: "GET", path: `${API}/capabilities` }),
    ];
    for (const answer of answers) {
      expect(refusalOf(answer)).to.equal("404 capacity_credits_disabled");
    }
  });

  it("lets nobody in when its own key cannot be read, and says so once a second", async () => {
    await started({ config: { credits: { ...CREDITS_ON, service_key_env: "WEIR_TEST_NO_KEY" } } });
    for (let call = 0; call < 3; call += 1) {
      expect(refusalOf(await server.issue())).to.equal("500 capacity_credit_internal");
    }
    server.bench.advance(1_000);
    expect(refusalOf(await server.issue({}, { authorization: "Bearer " }))).to.equal(
      "500 capacity_credit_internal",
    );
    const problem = "the API key in environment variable WEIR_TEST_NO_KEY is not set";
    expect(server.keyProblems).to.deep.equal([problem, problem]);
  });

  it("shows in /state what credits hold, and no token", async () => {
    await started();
    const token = await server.token();
    const state = await request({ port: server.port, path: "/state" });
    expect(jsonOf(state)["credits"]).to.deep.equal({
      generation: "g1",
      required: false,
      remembered: 1,
      active: { [POOL]: 1, empty: 0 },
    });
    expect(jsonOf(state)["partitions"]).to.be.an("array").with.length(2);
    const pages = ["fair-share", "admission", "selection", "seeding"].map(
      (name) => `/state/${name}`,
    );
    for (const path of ["/state", ...pages]) {
      const page = await request({ port: server.port, path });
      expect(page.body.toString()).to.not.contain(token);
    }
    await server.close();
    await started({ config: { credits: {} } });
    const off = await request({ port: server.port, path: "/state" });
    expect(jsonOf(off)["credits"]).to.equal(null);
  });

  it("answers a fault with 500 and reports it", async () => {
    await started();
    const faults: unknown[] = [];
    const broken = new CreditApi({
      registry: server.allocator.credits,
      binder: { bind: () => expect.fail("nothing is bound") } as never,
      serviceKey: { check: () => Promise.reject(new Error("broken")) },
      draining: () => false,
      retryAfterS: () => 1,
      onOperation: () => undefined,
      onFault: (error) => faults.push(error),
      now: () => server.bench.now,
    });
    const reply = await broken.answer({ method: "POST", headersDistinct: {} } as never, API);
    expect([reply.status, reply.text]).to.deep.equal([
      500,
      '{"error":{"code":"capacity_credit_internal","message":"the request could not be handled"}}',
    ]);
    expect(faults).to.have.length(1);
  });
});
