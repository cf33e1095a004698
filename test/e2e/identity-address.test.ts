// Goal: the client's address is what Envoy knows of the connection, or what a proxy in front vouches
// for; X-Forwarded-For of a client changes neither the tenant, nor who may send control headers, nor
// the log. Weir's decision stands in Envoy's access log.
import { expect } from "chai";
import { sendChat, settledChat, type HeaderLines } from "../support/chat.js";
import type { ConfigSketch } from "../support/config.js";
import type { AccessLogEntry } from "../support/envoy.js";
import { request } from "../support/http-client.js";
import { startStack, type Stack } from "../support/stack.js";

const FORGED = "203.0.113.9";

async function onStack(config: ConfigSketch, test: (stack: Stack) => Promise<void>): Promise<void> {
  const stack = await startStack({ config });
  try {
    await test(stack);
  } finally {
    await stack.stop();
  }
}

describe("the client's address through Envoy", () => {
  it("a forged X-Forwarded-For changes neither the tenant nor the log", async () => {
    await onStack({}, async (stack) => {
      const forgeries: readonly HeaderLines[] = [
        [["x-forwarded-for", FORGED]],
        [["x-forwarded-for", `${FORGED}, 127.0.0.1`]],
        [
          ["x-forwarded-for", FORGED],
          ["x-forwarded-for", "198.51.100.1"],
        ],
        [["x-real-ip", FORGED]],
        [["forwarded", `for=${FORGED}`]],
        [["x-envoy-external-address", FORGED]],
        [["x-envoy-internal", "true"]],
        [["true-client-ip", FORGED]],
        [["x-weir-peer", FORGED]],
        [
          ["x-weir-peer", FORGED],
          ["x-weir-peer", FORGED],
        ],
      ];
      for (const headers of forgeries) {
        const { answer, record } = await settledChat(stack, headers);
        expect(answer.status).to.equal(200);
        expect(record).to.deep.include({ tenant: "ip:127.0.0.1", tenantSource: "address" });
      }
      const log = await stack.envoy.waitForAccessLog(forgeries.length);
      for (const entry of log) {
        expect(entry["client"]).to.equal("127.0.0.1");
        expect(entry["weir"]).to.have.property("tenant", "ip:127.0.0.1");
      }
    });
  });

  it("with one trusted hop the proxy's entry counts, which is the last one", async () => {
    await onStack({ envoy: { trusted_hops: 1 } }, async (stack) => {
      const cases: readonly (readonly [string, string])[] = [
        ["198.51.100.7", "ip:198.51.100.7"],
        [`${FORGED}, 198.51.100.7`, "ip:198.51.100.7"],
        ["2001:db8::0001", "ip:2001:db8::1"],
        ["not-an-address", "ip:127.0.0.1"],
      ];
      for (const [value, tenant] of cases) {
        const { record } = await settledChat(stack, [["x-forwarded-for", value]]);
        expect(record.tenant, value).to.equal(tenant);
      }
      const { record } = await settledChat(stack);
      expect(record.tenant).to.equal("ip:127.0.0.1");
      const log = await stack.envoy.waitForAccessLog(1);
      expect(log[0]?.["client"]).to.equal("198.51.100.7");
    });
  });

  it("trust.peers means the direct peer, whatever X-Forwarded-For says", async () => {
    for (const trusted_hops of [0, 1]) {
      const trust = { tenant_id: true, peers: ["198.51.100.0/24"] };
      await onStack({ envoy: { trusted_hops }, trust }, async (stack) => {
        const { record } = await settledChat(stack, [
          ["x-forwarded-for", "198.51.100.7"],
          ["x-weir-tenant-id", "team-red"],
        ]);
        const address = trusted_hops === 0 ? "127.0.0.1" : "198.51.100.7";
        expect(record.tenant).to.equal(`ip:${address}`);
      });
    }
  });

  it("a direct peer that is listed stays trusted when it forwards for somebody", async () => {
    const trust = { tenant_id: true, peers: ["127.0.0.0/8"] };
    await onStack({ envoy: { trusted_hops: 1 }, trust }, async (stack) => {
      const { record } = await settledChat(stack, [
        ["x-forwarded-for", "198.51.100.7"],
        ["x-weir-tenant-id", "team-red"],
      ]);
      expect(record.tenant).to.equal("header:team-red");
    });
  });
});

describe("Envoy's access log", () => {
  it("carries tenant, partition, model, worker and queue time of what Weir decided", async () => {
    const trust = { tenant_id: true, peers: ["127.0.0.1"] };
    await onStack({ trust }, async (stack) => {
      const { record } = await settledChat(stack, [["x-weir-tenant-id", "team-red"]]);
      const log = await stack.envoy.waitForAccessLog(1);
      const entry: AccessLogEntry = log[0] ?? {};
      expect(entry["weir"]).to.deep.equal({
        tenant: "header:team-red",
        partition: "global",
        model: "demo",
        worker: record.worker?.id,
        queue_ms: 0,
      });
      expect(entry).to.deep.include({
        method: "POST",
        path: "/v1/chat/completions",
        code: 200,
        details: "via_upstream",
        cluster: record.worker?.id,
        attempts: 1,
        request_id: record.requestId,
      });
    });
  });

  it("carries the code of a refusal, and no query, where a client may put a key", async () => {
    await onStack({}, async (stack) => {
      await sendChat(stack);
      await request({ port: stack.port, path: "/flush_cache?api_key=secret" });
      const log = await stack.envoy.waitForAccessLog(2);
      expect(log[1]).to.deep.include({
        code: 404,
        details: "weir_unknown_path",
        path: "/flush_cache",
        cluster: null,
        attempts: 0,
      });
      expect(JSON.stringify(log)).to.not.include("secret");
    });
  });
});
