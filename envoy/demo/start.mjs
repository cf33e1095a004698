// `npm start`: the whole of Weir on this machine, until Ctrl-C. Sets up what is missing (packages,
// build, Envoy), writes weir.yaml and the Envoy bootstrap that belongs to it into a temporary folder,
// runs three mock workers, Weir and Envoy on 127.0.0.1, and prints requests to try. If one of the
// programs ends by itself it says which, shows its last lines, ends the others and exits with 1.
// WEIR_PORT_BASE moves all ports. Plain JavaScript on node: modules only.
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Children } from "./children.mjs";
import { envoyBinary } from "./envoy-binary.mjs";
import { demoPorts, requireFreePorts } from "./ports.mjs";
import { ensureBuild, ensurePackages, requireNode } from "./setup.mjs";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const WEIR = join(REPOSITORY, "dist/extproc/main.js");
const MOCK_WORKER = join(REPOSITORY, "dist/envoy/mock-worker/main.js");
/** Slots and token pace of each worker: slow enough to watch, and equal to its label in weir.yaml. */
const WORKER_FLAGS = [
  ...["--model", "demo,demo-latest", "--engine", "vllm", "--slots", "8", "--ms-per-token", "20"],
];
const READY_LIMIT_MS = 30_000;
const POLL_MS = 100;

let children;
let stopping = false;

/** Ends everything and this process; a second call kills what is still there. */
async function stopAll(exitCode) {
  stopping = true;
  await children?.stop();
  process.exit(exitCode);
}

/** Output of one command of Weir's command line. */
function weir(...args) {
  return new Promise((done, failed) => {
    execFile(process.execPath, [WEIR, ...args], (error, stdout, stderr) => {
      if (error === null) done(stdout);
      else failed(new Error(`weir ${args.join(" ")} failed: ${stderr || error.message}`));
    });
  });
}

async function writeConfiguration(folder, base) {
  const weirFile = join(folder, "weir.yaml");
  const envoyFile = join(folder, "envoy.yaml");
  const portBase = base === undefined ? [] : ["--port-base", String(base)];
  writeFileSync(weirFile, await weir("demo", ...portBase));
  writeFileSync(envoyFile, await weir("bootstrap", "--config", weirFile));
  return { weirFile, envoyFile };
}

/** Waits until all pages answer 200; resolves to the name of the one that does not in time. */
async function waitForPages(pages) {
  const deadline = Date.now() + READY_LIMIT_MS;
  for (const { name, url } of pages) {
    while (!(await answers(url))) {
      if (Date.now() > deadline) return name;
      await new Promise((done) => setTimeout(done, POLL_MS));
    }
  }
  return undefined;
}

async function answers(url) {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(1_000) });
    await answer.arrayBuffer();
    return answer.status === 200;
  } catch {
    return false;
  }
}

function greeting(port, folder) {
  const envoy = `http://127.0.0.1:${port.envoy}`;
  const admin = `http://127.0.0.1:${port.weirAdmin}`;
  const chat = `curl -s ${envoy}/v1/chat/completions -H 'content-type: application/json'`;
  const message = `"model":"demo","messages":[{"role":"user","content":"Hello"}]`;
  return `
Weir is up.
  requests   ${envoy}
  Weir       ${admin}  (/readyz /state /metrics)
  Envoy      http://127.0.0.1:${port.envoyAdmin}  (admin)
  workers    127.0.0.1:${port.worker1}, ${port.worker2}, ${port.worker3}
  logs       ${folder}

Try:
  ${chat} -d '{${message}}'
  ${chat} -N -d '{${message},"stream":true}'
  curl -s ${admin}/metrics | grep '^weir_fair_share_charged'

Ctrl-C ends everything.`;
}

function showDeath({ name, how, lastLines }) {
  console.error(`\n${name} has ended (${how}). Its last lines:`);
  for (const line of lastLines) console.error(`  ${name}: ${line}`);
}

/** Runs the demo until a program of it ends or a signal comes; resolves to the exit code. */
async function run() {
  requireNode();
  const { base, ports } = demoPorts(process.env.WEIR_PORT_BASE);
  await ensurePackages();
  await ensureBuild();
  const envoy = await envoyBinary();
  console.log(`envoy: ${envoy}`);
  await requireFreePorts(ports);
  const port = Object.fromEntries(ports.map((entry) => [entry.name, entry.port]));
  const folder = mkdtempSync(join(tmpdir(), "weir-demo-"));
  const { weirFile, envoyFile } = await writeConfiguration(folder, base);
  if (stopping) return 0;

  children = new Children(folder);
  for (const number of [1, 2, 3]) {
    const args = [MOCK_WORKER, "--port", String(port[`worker${number}`]), ...WORKER_FLAGS];
    children.start(`worker-${number}`, process.execPath, args);
  }
  children.start("weir", process.execPath, [WEIR, "serve", "--config", weirFile]);
  const envoyFlags = ["--use-dynamic-base-id", "--log-level", "warn"];
  children.start("envoy", envoy, ["-c", envoyFile, ...envoyFlags]);

  const ready = waitForPages([
    { name: "weir", url: `http://127.0.0.1:${port.weirAdmin}/readyz` },
    { name: "envoy", url: `http://127.0.0.1:${port.envoyAdmin}/ready` },
    { name: "envoy", url: `http://127.0.0.1:${port.envoy}/healthz` },
  ]).then((late) => ({ late }));
  const first = await Promise.race([ready, children.death]);
  if (stopping) return 0;
  if (first.late !== undefined) {
    const how = `still running, but not ready after ${READY_LIMIT_MS / 1000} s`;
    showDeath({ name: first.late, how, lastLines: children.lastLines(first.late) });
    return 1;
  }
  if (first.name === undefined) {
    console.log(greeting(port, folder));
    process.on("exit", (code) => {
      if (code === 0) rmSync(folder, { recursive: true, force: true });
    });
    showDeath(await children.death);
  } else {
    showDeath(first);
  }
  console.error(`The logs are in ${folder}`);
  return 1;
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => void stopAll(0));
}
try {
  const exitCode = await run();
  if (!stopping) await stopAll(exitCode);
} catch (error) {
  console.error(error.message);
  await stopAll(1);
}
