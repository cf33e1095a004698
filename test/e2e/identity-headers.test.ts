// Goal: a header counts exactly when its switch is on and the direct peer may send it; a value that
// is not one plain value counts as none and is reported. Every case goes through a real Envoy, with
// the bootstrap that belongs to the configuration. All clients here connect from 127.0.0.1.
import { expect } from "chai";
import { startMockWorker, type MockWorker } from "../../envoy/mock-worker/server.js";
import {
  expectError,
  forgetSeen,
  seenByWorkers,
  sendChat,
  settledChat,
  type HeaderLines,
} from "../support/chat.js";
import type { ConfigSketch } from "../support/config.js";
import { open, request, type Answer } from "../support/http-client.js";
import { chatBody, JSON_HEADERS, startStack, type Stack } from "../support/stack.js";

const TENANT = "x-weir-tenant-id";
const HERE = "127.0.0.1";
const ELSEWHERE = "192.0.2.0/24";

/** Runs tests on one stack. */
function onStack(
  title: string,
  options: { readonly config: ConfigSketch; readonly workers?: number },
  tests: (stack: () => Stack) => void,
): void {
  describe(title, () => {
    let stack: Stack;
    before(async () => {
      stack = await startStack(options);
    });
    after(() => stack.stop());
    beforeEach(async () => {
      await stack.idle();
      stack.clear();
      await forgetSeen(stack);
    });
    tests(() => stack);
  });
}

describe("identity by header through Envoy", () => {
  onStack("with every switch off", { config: {} }, (stack) => {
    it("takes the tenant from the address, and no worker sees the header", async () => {
      const { answer, record } = await settledChat(stack(), [[TENANT, "team-red"]]);
      expect(answer.status).to.equal(200);
      expect(record).to.deep.include({
        tenant: "ip:127.0.0.1",
        tenantSource: "address",
        refusedValues: [],
      });
      const [seen] = seenByWorkers(stack());
      expect(seen?.headers).to.not.have.property(TENANT);
      expect(seen?.headers).to.not.have.property("x-weir-peer");
    });

    it('I-2 an untrusted estimate "1" leaves the default of 256 tokens', async () => {
      const headers = [["x-weir-output-token-estimate", "1"]] as const;
      const { record } = await settledChat(stack(), headers);
      expect(record.estimateTokens).to.equal(256);
      expect(record.refusedValues).to.deep.equal([]);
    });

    it("reports nothing as refused: what is not trusted is not even read", async () => {
      const { record } = await settledChat(stack(), [
        [TENANT, "a,b"],
        [TENANT, ""],
        ["x-weir-output-token-estimate", "-1"],
      ]);
      expect(record).to.deep.include({ tenant: "ip:127.0.0.1", refusedValues: [] });
    });
  });

  const TRUSTED = { tenant_id: true, output_token_estimate: true, request_model: true };
  const MODELS = { demo: { aliases: ["demo-latest"] } };

  onStack(
    "with the tenant, estimate and model headers trusted from this host",
    { config: { trust: { ...TRUSTED, peers: [HERE] }, models: MODELS } },
    (stack) => {
      it("takes the tenant from the header, and no worker sees it", async () => {
        const { answer, record } = await settledChat(stack(), [[TENANT, "team-red"]]);
        expect(answer.status).to.equal(200);
        expect(record).to.deep.include({
          tenant: "header:team-red",
          tenantSource: "header",
          refusedValues: [],
        });
        expect(seenByWorkers(stack())[0]?.headers).to.not.have.property(TENANT);
      });

      it("keeps the case of the value and drops the blanks around it", async () => {
        const { record } = await settledChat(stack(), [[TENANT, "  Team-Red\t"]]);
        expect(record.tenant).to.equal("header:Team-Red");
      });

      it("never lets a header spell the key of another source", async () => {
        const { record } = await settledChat(stack(), [[TENANT, "auth:root"]]);
        expect(record.tenant).to.equal("header:auth:root");
      });

      it("takes the address of a client without the header", async () => {
        const { record } = await settledChat(stack());
        expect(record).to.deep.include({ tenant: "ip:127.0.0.1", refusedValues: [] });
      });

      it("accepts 256 characters", async () => {
        const { record } = await settledChat(stack(), [[TENANT, "a".repeat(256)]]);
        expect(record.tenant).to.equal(`header:${"a".repeat(256)}`);
      });

      const refused: readonly (readonly [string, HeaderLines, string])[] = [
        [
          "two copies",
          [
            [TENANT, "team-red"],
            [TENANT, "team-blue"],
          ],
          "duplicate",
        ],
        [
          "two equal copies",
          [
            [TENANT, "team-red"],
            [TENANT, "team-red"],
          ],
          "duplicate",
        ],
        [
          "two copies in different case",
          [
            [TENANT, "team-red"],
            ["X-Weir-Tenant-Id", "x"],
          ],
          "duplicate",
        ],
        ["a comma list", [[TENANT, "team-red,team-blue"]], "list"],
        ["an empty value", [[TENANT, ""]], "empty"],
        ["a value of blanks", [[TENANT, "   "]], "empty"],
        ["257 characters", [[TENANT, "a".repeat(257)]], "too_long"],
        ["a byte above ASCII", [[TENANT, "team-\u00e9"]], "not_visible_ascii"],
        ["a blank inside", [[TENANT, "team red"]], "not_visible_ascii"],
      ];
      for (const [what, headers, reason] of refused) {
        it(`refuses ${what}, falls back to the address and reports it`, async () => {
          const { answer, record } = await settledChat(stack(), headers);
          expect(answer.status).to.equal(200);
          expect(record).to.deep.include({
            tenant: "ip:127.0.0.1",
            refusedValues: [{ header: TENANT, reason }],
          });
        });
      }

      it('I-2 a trusted estimate "128" is what is booked', async () => {
        const headers = [["x-weir-output-token-estimate", "128"]] as const;
        const { record } = await settledChat(stack(), headers);
        expect(record).to.deep.include({ estimateTokens: 128, estimateFallback: undefined });
      });

      for (const value of ["0", "-1", "1.5", "1e3", "4294967296", "many"]) {
        it(`I-2 a trusted estimate "${value}" is no token count: the default stands`, async () => {
          const header = "x-weir-output-token-estimate";
          const { record } = await settledChat(stack(), [[header, value]]);
          expect(record).to.deep.include({
            estimateTokens: 256,
            estimateFallback: "invalid_estimate",
            refusedValues: [{ header, reason: "invalid" }],
          });
        });
      }

      it("refuses two copies of an estimate: the default stands", async () => {
        const header = "x-weir-output-token-estimate";
        const { record } = await settledChat(stack(), [
          [header, "1"],
          [header, "128"],
        ]);
        expect(record).to.deep.include({
          estimateTokens: 256,
          estimateFallback: "invalid_estimate",
          refusedValues: [{ header, reason: "duplicate" }],
        });
      });

      it("refuses two copies and a list of the model header", async () => {
        const header = "x-weir-request-model";
        const twice = await settledChat(stack(), [
          [header, "demo"],
          [header, "demo"],
        ]);
        expect(twice.record).to.deep.include({
          accountingModel: undefined,
          refusedValues: [{ header, reason: "duplicate" }],
        });
        const list = await settledChat(stack(), [[header, "demo,demo"]]);
        expect(list.record).to.deep.include({
          accountingModel: undefined,
          refusedValues: [{ header, reason: "list" }],
        });
      });

      it("reads the model header through the aliases, for accounting only", async () => {
        const { record } = await settledChat(stack(), [["x-weir-request-model", "demo-latest"]]);
        expect(record).to.deep.include({ accountingModel: "demo", model: "demo" });
      });

      it("routes by the body even when the trusted model header names another model", async () => {
        const headers = [["x-weir-request-model", "no-such-model"]] as const;
        const { answer, record } = await settledChat(stack(), headers);
        expect(answer.status).to.equal(200);
        expect(record).to.deep.include({ accountingModel: undefined, model: "demo" });
      });

      it("does not read other gateways' names: aliases are off", async () => {
        const { record } = await settledChat(stack(), [["x-smg-tenant-id", "team-red"]]);
        expect(record.tenant).to.equal("ip:127.0.0.1");
        expect(seenByWorkers(stack())[0]?.headers).to.not.have.property("x-smg-tenant-id");
      });
    },
  );

  onStack(
    "with the headers trusted, but only from another network",
    { config: { trust: { ...TRUSTED, peers: [ELSEWHERE] }, models: MODELS } },
    (stack) => {
      it("ignores them all, and no worker sees them", async () => {
        const { answer, record } = await settledChat(stack(), [
          [TENANT, "team-red"],
          ["x-weir-output-token-estimate", "1"],
          ["x-weir-request-model", "demo"],
        ]);
        expect(answer.status).to.equal(200);
        expect(record).to.deep.include({
          tenant: "ip:127.0.0.1",
          estimateTokens: 256,
          accountingModel: undefined,
          refusedValues: [],
        });
        const names = Object.keys(seenByWorkers(stack())[0]?.headers ?? {});
        expect(names.filter((name) => name.startsWith("x-weir-"))).to.deep.equal([]);
      });

      it("does not believe a client that names itself as a peer", async () => {
        const { record } = await settledChat(stack(), [
          ["x-weir-peer", "192.0.2.1"],
          [TENANT, "team-red"],
        ]);
        expect(record.tenant).to.equal("ip:127.0.0.1");
      });
    },
  );

  onStack(
    "with aliases on and a tenant header of the operator's name",
    {
      config: {
        trust: { tenant_id: true, tenant_header_name: "x-team", peers: [HERE] },
        headers: { aliases: true },
      },
    },
    (stack) => {
      const names = ["x-team", "x-smg-tenant-id", "x-gateway-inference-fairness-id"];
      for (const name of names) {
        it(`reads ${name} as the tenant and keeps it from the worker`, async () => {
          const { record } = await settledChat(stack(), [[name, "team-red"]]);
          expect(record.tenant).to.equal("header:team-red");
          expect(seenByWorkers(stack())[0]?.headers).to.not.have.property(name);
        });
      }

      it("takes own name and alias together for two copies", async () => {
        const { record } = await settledChat(stack(), [
          ["x-team", "team-red"],
          ["x-smg-tenant-id", "team-red"],
        ]);
        expect(record.tenant).to.equal("ip:127.0.0.1");
        expect(record.refusedValues).to.deep.equal([{ header: "x-team", reason: "duplicate" }]);
      });

      it("no longer reads the name it would have had", async () => {
        const { record } = await settledChat(stack(), [[TENANT, "team-red"]]);
        expect(record).to.deep.include({ tenant: "ip:127.0.0.1", refusedValues: [] });
        expect(seenByWorkers(stack())[0]?.headers).to.not.have.property(TENANT);
      });
    },
  );
});

describe("each trust switch through Envoy", () => {
  // All controls at once: each of them changes something that can be seen, and only one is trusted.
  const ALL: HeaderLines = [
    [TENANT, "team-red"],
    ["x-weir-request-model", "demo"],
    ["x-weir-output-token-estimate", "128"],
    ["x-weir-admission-partition", "empty"],
    ["x-weir-target-worker-url", "http://192.0.2.1:1"],
    ["x-weir-excluded-worker-urls", ""],
  ];
  const NOTHING = {
    tenant: "ip:127.0.0.1",
    accountingModel: undefined,
    estimateTokens: 256,
    rejection: undefined,
  };
  const effects: Readonly<Record<string, object>> = {
    tenant_id: { tenant: "header:team-red" },
    request_model: { accountingModel: "demo" },
    output_token_estimate: { estimateTokens: 128 },
    // The partition exists, and no worker is in it.
    admission_partition: { rejection: "model_not_found" },
    // No worker has that address.
    target_worker_url: { rejection: "no_worker" },
    // An empty list is refused, and a refused constraint must not be dropped silently.
    excluded_worker_urls: { rejection: "invalid_request" },
  };
  for (const [name, effect] of Object.entries(effects)) {
    it(`trust.${name} lets its own header count and no other`, async () => {
      const partition = { max_concurrent_requests: 4, queue_size: 4 };
      const stack = await startStack({
        config: {
          trust: { [name]: true, peers: [HERE] },
          scheduler: {
            max_concurrent_requests: 8,
            queue_size: 8,
            default_admission_partition: "demo",
            admission_partitions: { demo: partition, empty: partition },
          },
        },
      });
      try {
        const { record } = await settledChat(stack, ALL);
        expect(record).to.deep.include({ ...NOTHING, ...effect });
      } finally {
        await stack.stop();
      }
    });
  }
});

describe("worker constraints through Envoy", () => {
  const TARGET = "x-weir-target-worker-url";
  const EXCLUDED = "x-weir-excluded-worker-urls";
  const ROUNDS = 6;

  async function workersOf(stack: Stack, headers: HeaderLines): Promise<Set<string | undefined>> {
    const urls = new Set<string | undefined>();
    for (let round = 0; round < ROUNDS; round += 1) {
      const { answer, record } = await settledChat(stack, headers);
      expect(answer.status).to.equal(200);
      urls.add(record.worker?.url);
    }
    return urls;
  }

  onStack(
    "when they are trusted",
    { config: { trust: { target_worker_url: true, excluded_worker_urls: true, peers: [HERE] } } },
    (stack) => {
      const urls = (): string[] => stack().workers.map((worker) => worker.url);

      it("sends every request to the target", async () => {
        for (const url of urls()) {
          expect(await workersOf(stack(), [[TARGET, url]])).to.deep.equal(new Set([url]));
        }
      });

      it("sends no request to an excluded worker", async () => {
        const [first = "", second = ""] = urls();
        const used = await workersOf(stack(), [[EXCLUDED, first]]);
        expect(used).to.deep.equal(new Set([second]));
      });

      it("lets the target win over its own exclusion", async () => {
        const [first = ""] = urls();
        const used = await workersOf(stack(), [
          [TARGET, first],
          [EXCLUDED, urls().join(", ")],
        ]);
        expect(used).to.deep.equal(new Set([first]));
      });

      it("has no worker when all are excluded or the target is unknown", async () => {
        const all = await sendChat(stack(), [[EXCLUDED, urls().join(",")]]);
        expectError(all, { status: 503, code: "no_worker", retryAfter: "1" });
        const unknown = await sendChat(stack(), [[TARGET, "http://127.0.0.1:9901"]]);
        expectError(unknown, { status: 503, code: "no_worker", retryAfter: "1" });
        expect(seenByWorkers(stack())).to.deep.equal([]);
      });

      it("refuses a constraint it cannot read instead of dropping it", async () => {
        const [first = ""] = urls();
        const answer = await sendChat(stack(), [
          [TARGET, first],
          [TARGET, first],
        ]);
        expectError(answer, { status: 400, code: "invalid_request" });
        expect(seenByWorkers(stack())).to.deep.equal([]);
      });

      it("keeps both headers from the worker", async () => {
        const [first = "", second = ""] = urls();
        await settledChat(stack(), [
          [TARGET, first],
          [EXCLUDED, second],
        ]);
        const [seen] = seenByWorkers(stack());
        expect(seen?.headers).to.not.have.any.keys(TARGET, EXCLUDED);
      });
    },
  );

  onStack("when they are not trusted", { config: {} }, (stack) => {
    it("excludes nobody and reaches nobody by name", async () => {
      const all = stack().workers.map((worker) => worker.url);
      await workersOf(stack(), [[EXCLUDED, all.join(",")]]);
      const used = await workersOf(stack(), [[TARGET, "http://127.0.0.1:9901"]]);
      for (const url of used) expect(all).to.include(url);
    });
  });
});

describe("partitions through Envoy", () => {
  const partition = { max_concurrent_requests: 1, queue_size: 0 };
  const workers: MockWorker[] = [];
  let stack: Stack;
  before(async () => {
    for (const models of [["demo"], ["demo"], ["large"]]) {
      workers.push(await startMockWorker({ port: 0, models }));
    }
    const [general, batch, large] = workers;
    stack = await startStack({
      workers: 0,
      config: {
        trust: { admission_partition: true, peers: [HERE] },
        scheduler: {
          max_concurrent_requests: 3,
          queue_size: 0,
          queue_timeout_secs: 1,
          default_admission_partition: "general",
          admission_partitions: { general: partition, batch: partition, large: partition },
        },
        models: {},
        workers: [
          { url: general?.url, cluster: "general", models: ["demo"] },
          {
            url: batch?.url,
            cluster: "batch",
            models: ["demo"],
            labels: { admission_partition: "batch" },
          },
          { url: large?.url, cluster: "large", models: ["large"] },
        ],
      },
    });
  });
  after(async () => {
    await stack.stop();
    for (const worker of workers) await worker.close(0);
  });
  beforeEach(async () => {
    await stack.idle();
    stack.clear();
  });

  it("a trusted partition header chooses the partition and its workers", async () => {
    const { record } = await settledChat(stack, [["x-weir-admission-partition", " batch "]]);
    expect(record).to.deep.include({ partition: "batch", unknownPartitionHeader: false });
    expect(record.worker?.url).to.equal(workers[1]?.url);
  });

  it("I-4 an unknown partition header falls back to the default partition", async () => {
    for (const value of ["no-such-partition", "Batch"]) {
      const { answer, record } = await settledChat(stack, [["x-weir-admission-partition", value]]);
      expect(answer.status).to.equal(200);
      expect(record).to.deep.include({ partition: "general", unknownPartitionHeader: true });
      expect(record.worker?.url).to.equal(workers[0]?.url);
    }
  });

  it("I-4 one model's full partition does not block another's", async () => {
    const ask = (model: string): Promise<Answer> =>
      request({
        port: stack.port,
        path: "/v1/chat/completions",
        headers: JSON_HEADERS,
        body: chatBody({ model }),
      });
    const holder = open({
      port: stack.port,
      method: "POST",
      path: "/v1/chat/completions",
      headers: [...JSON_HEADERS, ["x-mock", "hang"], ["transfer-encoding", "chunked"]],
    });
    holder.write(chatBody({ model: "large" }));
    holder.end();
    await stack.until("large is full", () => stack.held()["inFlight"] === 1);
    expectError(await ask("large"), {
      status: 429,
      code: "scheduler_queue_full",
      retryAfter: "1",
    });
    expect((await ask("demo")).status).to.equal(200);
    const [refused, served] = await stack.settlements(2);
    expect(refused).to.deep.include({ partition: "large", rejection: "scheduler_queue_full" });
    expect(served).to.deep.include({ partition: "general", outcome: "success" });
    holder.abort();
    await holder.answer;
  });
});
