// Goal: what an operator reads is complete and true. Every metric and log field the documentation
// names exists and the other way round, the counters add up after a mixed load, and no secret of a
// client reaches the log. Method: Weir as a process of its own, read through its admin port and its
// standard output; the documentation is read as a table.
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "chai";
import { expectError, sendChat, type HeaderLines } from "../support/chat.js";
import { open, request } from "../support/http-client.js";
import { openStream, runningAtWorkers, startChat, startSpread } from "../support/slots.js";
import { JSON_HEADERS, NOTHING_HELD, startStack, type Stack } from "../support/stack.js";
import { startWeir, type LogLine, type WeirProcess } from "../support/weir-process.js";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
/** What this load does not bring about. */
const ELSEWHERE = [
  ...["requested_class", "promoted", "preempted_by", "queue_refusal"],
  ...["engine_load", "prefix_source", "stale_holdings", "credit", "seed"],
];
const SECRET = "sk-0123456789abcdef-never-written-down";

/** Cells of the rows of every table in a part of the page, header rows left out. */
function tableRows(text: string): readonly (readonly string[])[] {
  return text
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) =>
      line
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim()),
    );
}

const namesIn = (cell: string): string[] =>
  [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name ?? "");

const page = readFileSync(join(REPOSITORY, "docs/metrics.md"), "utf8");
const [metricsPart = "", logPart = ""] = page.split("## The log");
const documentedMetrics = new Map(
  tableRows(metricsPart).flatMap(([names = "", type = "", labels = ""]) =>
    namesIn(names).map((name) => [name, { type, labels }] as const),
  ),
);
const documentedFields = tableRows(logPart).flatMap(([names = ""]) => namesIn(names));

/** Families of a Prometheus page: type and the labels of their samples. */
function families(text: string): Map<string, { type: string; labels: string }> {
  const found = new Map<string, { type: string; labels: string }>();
  let current = "";
  for (const line of text.split("\n")) {
    const [, name, type] = /^# TYPE (\S+) (\S+)$/.exec(line) ?? [];
    if (name !== undefined && type !== undefined) {
      current = name;
      found.set(name, { type, labels: "" });
      continue;
    }
    const entry = found.get(current);
    const labels = /^[^#{\s]+\{(.*)\} /.exec(line)?.[1];
    if (entry === undefined || labels === undefined) continue;
    const names = [...labels.matchAll(/(\w+)="/g)].map(([, label]) => label);
    entry.labels = names.filter((label) => label !== "le").join(", ");
  }
  return found;
}

/** Value of one sample by its exact name and labels; 0 when there is none. */
function sample(text: string, series: string): number {
  const line = text.split("\n").find((one) => one.startsWith(`${series} `));
  return line === undefined ? 0 : Number(line.slice(series.length + 1));
}

describe("metrics and log of a Weir that has served a mixed load", function () {
  this.timeout(60_000);
  let stack: Stack;
  let weir: WeirProcess;
  let metrics = "";
  let lines: readonly LogLine[] = [];

  before(async () => {
    stack = await startStack({
      withoutWeir: true,
      workers: 1,
      mock: { slots: 100 },
      config: {
        scheduler: { max_concurrent_requests: 1, queue_size: 8, queue_timeout_secs: 30 },
        adaptive_admission: {
          mode: "shadow",
          load_monitor_interval_secs: 1,
          engine_metrics: true,
        },
        trust: { tenant_id: true, request_model: true, peers: ["127.0.0.1"] },
        fair_share: {
          default_output_tokens: 4,
          model_profiles: { demo: { tenant_weights: { "header:a": 2 } } },
        },
      },
      // Envoy grants less time than the queue timeout, so that there are holds it cuts.
      bootstrap: (yaml) => yaml.replace("max_message_timeout: 35s", "max_message_timeout: 1s"),
    });
    weir = await startWeir(stack);
    await mixedLoad();
    metrics = await weir.metrics();
    lines = await weir.untilSettled(SETTLED);
  });
  after(async () => {
    await weir.stop();
    await stack.stop();
  });

  /** What `mixedLoad` sends to paths that are admitted, and besides to paths that are not. */
  const INFERENCE = { observed: 2, missing: 1, brokenOff: 2, rejected: 3, vanished: 1, held: 8 };
  const RECEIVED = 2 + 1 + 2 + 3 + 1 + 8 + 1;
  const SETTLED = RECEIVED + 2;

  async function chat(headers: HeaderLines = []): Promise<number> {
    return (await sendChat(stack, [["authorization", `Bearer ${SECRET}`], ...headers])).status;
  }

  async function mixedLoad(): Promise<void> {
    // 2 observed, one of them with a trusted model, one with two tenants at once.
    expect(await chat([["x-weir-request-model", "demo"]])).to.equal(200);
    expect(
      await chat([
        ["x-weir-tenant-id", "a"],
        ["x-weir-tenant-id", "b"],
      ]),
    ).to.equal(200);
    // 1 without usage.
    expect(await chat([["x-mock", "usage=none"]])).to.equal(200);
    // 2 that break off: before the answer, and a client that leaves a stream.
    expect(await chat([["x-mock", "reset=before"]])).to.equal(503);
    const stream = openStream(stack, [["x-mock", "hang"]]);
    await stack.until("the stream runs", () => runningAtWorkers(stack) === 1);
    stream.abort();
    await untilIdle();
    // 3 refused.
    expect((await startChat(stack, [], { model: "nobody" }).answer).status).to.equal(404);
    expect((await startChat(stack, [], { model: 7 }).answer).status).to.equal(400);
    expect((await startChat(stack, [["content-encoding", "br"]]).answer).status).to.equal(400);
    // 1 that vanishes before its body is complete.
    const path = "/v1/chat/completions";
    const vanishing = open({ port: stack.port, method: "POST", path, headers: JSON_HEADERS });
    await stack.until("it is known", async () => (await weir.held())["live"] === 1);
    vanishing.abort();
    await untilIdle();
    // 1 that keeps the slot, while 8 are held until Envoy cuts them.
    const occupant = startChat(stack, [["x-mock", "hang"]]);
    await stack.until("the slot is taken", () => runningAtWorkers(stack) === 1);
    const held = await startSpread(stack, INFERENCE.held);
    for (const { answer } of held) {
      expectError(await answer, { status: 503, code: "weir_unavailable", retryAfter: "1" });
    }
    occupant.abort();
    await untilIdle();
    // 2 on paths that are not admitted.
    expect((await request({ port: stack.port, path: "/v1/models" })).status).to.equal(200);
    expect((await request({ port: stack.port, path: "/nowhere" })).status).to.equal(404);
    await untilIdle();
  }

  function untilIdle(): Promise<void> {
    return stack.until("nothing is held", async () => {
      const held = await weir.held();
      return Object.entries(NOTHING_HELD).every(([name, count]) => held[name] === count);
    });
  }

  it("exports every metric that docs/metrics.md names, and names every metric it exports", () => {
    const exported = [...families(metrics).keys()].filter((name) => name.startsWith("weir_"));
    expect(documentedMetrics.size).to.be.greaterThan(25);
    expect(exported).to.have.members([...documentedMetrics.keys()]);
    expect(metrics)
      .to.match(/^process_cpu_seconds_total/m)
      .and.to.match(/^nodejs_heap/m);
  });

  it("gives each metric the type and the labels that docs/metrics.md says", () => {
    for (const [name, { type, labels }] of families(metrics)) {
      const documented = documentedMetrics.get(name);
      if (documented === undefined) continue;
      expect(type, name).to.equal(documented.type);
      if (labels !== "") expect(labels, name).to.equal(documented.labels);
    }
  });

  it("accounts for every request: received = admitted + rejected + vanished", () => {
    const counted = (name: string): number => sample(metrics, `weir_http_admission_${name}`);
    expect(counted("received_total")).to.equal(RECEIVED);
    expect(counted("rejected_total")).to.equal(INFERENCE.rejected);
    expect(counted("pre_admission_interrupted_total")).to.equal(
      INFERENCE.vanished + INFERENCE.held,
    );
    // Observed, without usage, broken off, and the one that kept the slot.
    const admitted = INFERENCE.observed + INFERENCE.missing + INFERENCE.brokenOff + 1;
    expect(counted("admitted_total")).to.equal(admitted);
    expect(counted("received_total")).to.equal(
      counted("admitted_total") +
        counted("rejected_total") +
        counted("pre_admission_interrupted_total"),
    );
    const outcomes = ["success", "http_4xx", "http_5xx", "interrupted"].map((outcome) =>
      counted(`${outcome}_total`),
    );
    expect(outcomes).to.deep.equal([3, 0, 1, 2]);
    expect([counted("active"), counted("queued"), counted("limit")]).to.deep.equal([0, 0, 1]);
    expect(sample(metrics, "weir_requests_live")).to.equal(0);
  });

  it("accounts for every settlement and every token", () => {
    const settled = (kind: string): number =>
      sample(metrics, `weir_settlements_total{kind="${kind}"}`);
    // Reset before the answer, the client that left its stream, and the one that kept the slot.
    expect([settled("observed"), settled("missing_usage"), settled("interrupted")]).to.deep.equal([
      2, 1, 3,
    ]);
    // 2 answers of 5 tokens each, and the estimate of 4 for the four others.
    const charged = [
      ...metrics.matchAll(/^weir_fair_share_charged_output_tokens_total\{.*\} (\d+)$/gm),
    ];
    const sum = charged.reduce((total, [, value]) => total + Number(value), 0);
    expect(sum).to.equal(2 * 5 + 4 * 4);
    expect(sample(metrics, 'weir_rejections_total{code="unknown_path"}')).to.equal(1);
    expect(sample(metrics, 'weir_rejections_total{code="model_not_found"}')).to.equal(1);
    expect(sample(metrics, 'weir_rejections_total{code="invalid_request"}')).to.equal(2);
    expect(sample(metrics, "weir_ext_proc_faults_total")).to.equal(0);
  });

  it("keeps gauges of slots, queue and live load at zero, and counts the holds Envoy cut", () => {
    const partition = '{partition="global"}';
    const lane = '{partition="global",class="default"}';
    expect(sample(metrics, `weir_scheduler_partition_inflight${lane}`)).to.equal(0);
    expect(sample(metrics, `weir_scheduler_partition_queue_depth${lane}`)).to.equal(0);
    expect(sample(metrics, `weir_scheduler_partition_capacity${partition}`)).to.equal(1);
    expect(sample(metrics, `weir_scheduler_queue_wait_seconds_count{class="default"}`)).to.equal(
      INFERENCE.observed + INFERENCE.missing + INFERENCE.brokenOff + 1 + INFERENCE.held,
    );
    const worker = `{worker="${stack.workers[0]?.url ?? ""}"}`;
    expect(sample(metrics, `weir_worker_requests_active${worker}`)).to.equal(0);
    expect(sample(metrics, `weir_worker_healthy${worker}`)).to.equal(1);
    expect(sample(metrics, "weir_envoy_cut_hold_total")).to.equal(
      lines.filter((line) => line["cut_hold"] === true).length,
    );
  });

  it("writes one line per request, whose fields are those docs/metrics.md names", () => {
    expect(lines).to.have.length(SETTLED);
    expect(new Set(lines.map((line) => line["request_id"])).size).to.equal(SETTLED);
    const fields = new Set(lines.flatMap((line) => Object.keys(line)));
    for (const ofEveryLine of ["level", "time", "msg"]) fields.delete(ofEveryLine);
    expect(documentedFields.length).to.be.greaterThan(20);
    const here = documentedFields.filter((field) => !ELSEWHERE.includes(field));
    expect([...fields]).to.have.members(here);
  });

  it("writes no value of an authorization header, in no line and on no page", async () => {
    const state = JSON.stringify(await weir.state());
    for (const text of [weir.process.stdout, weir.process.stderr, metrics, state]) {
      expect(text).to.not.include(SECRET);
      expect(text.toLowerCase()).to.not.include("bearer");
    }
    expect(weir.process.stdout).to.include("request settled");
  });
});
