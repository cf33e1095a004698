// How do tests run a real Envoy? This file starts one from a bootstrap text, waits until it is
// ready, and reads its admin page, its counters and its JSON access log (which Weir's bootstrap
// writes to stdout). Each Envoy has one worker thread, its own base id and a folder of its own that
// goes when it stops. Ports are the bootstrap's; port 0 is fine, what was bound is asked afterwards.
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { envoyBinary } from "../../envoy/demo/envoy-binary.mjs";
import { request } from "./http-client.js";
import { startProcess, type RunningProcess } from "./process.js";

export interface EnvoyOptions {
  /** Worker threads; 1 keeps counters and connections easy to reason about. */
  readonly concurrency?: number;
  readonly logLevel?: "trace" | "debug" | "info" | "warn" | "error" | "off";
  /** How long it may take to become ready. */
  readonly startLimitMs?: number;
  readonly args?: readonly string[];
  /** The access log goes nowhere; for loads whose log nobody reads. */
  readonly discardAccessLog?: boolean;
}

export type AccessLogEntry = Readonly<Record<string, unknown>>;

interface BoundAddress {
  readonly socket_address?: { readonly port_value: number };
}

const POLL_MS = 20;

/** A running Envoy; use `startEnvoy`. */
export class EnvoyProcess {
  readonly process: RunningProcess;
  readonly adminPort: number;
  /** Port of each TCP listener by its name. */
  readonly ports: Readonly<Record<string, number>>;
  readonly #folder: string;

  constructor(
    process: RunningProcess,
    bound: { readonly adminPort: number; readonly ports: Readonly<Record<string, number>> },
    folder: string,
  ) {
    this.process = process;
    this.adminPort = bound.adminPort;
    this.ports = bound.ports;
    this.#folder = folder;
  }

  /** Port of the only listener; throws when there is none or more than one. */
  get port(): number {
    const [port, ...more] = Object.values(this.ports);
    if (port === undefined || more.length > 0) {
      throw new Error(`one listener wanted, there are: ${JSON.stringify(this.ports)}`);
    }
    return port;
  }

  /** Body of a GET on the admin page, for instance "/clusters"; throws unless the answer is 200. */
  admin(path: string): Promise<string> {
    return adminGet(this.adminPort, path);
  }

  /**
   * Value of one counter or gauge by its full name. Throws when there is none of that name, for a
   * mistyped name must not read as zero.
   */
  async stat(name: string): Promise<number> {
    const filter = encodeURIComponent(`^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);
    const text = await this.admin(`/stats?filter=${filter}`);
    const value = /^.*: (\d+)$/m.exec(text)?.[1];
    if (value === undefined) throw new Error(`Envoy has no counter or gauge named ${name}`);
    return Number(value);
  }

  /** The access log so far: each stdout line that is a JSON object. */
  accessLog(): readonly AccessLogEntry[] {
    return parseAccessLog(this.process.stdout);
  }

  /** The access log once it has at least `count` entries. */
  async waitForAccessLog(count: number, limitMs = 10_000): Promise<readonly AccessLogEntry[]> {
    const what = `write ${String(count)} access log entries`;
    await this.process.waitUntil(() => this.accessLog().length >= count, what, limitMs);
    return this.accessLog();
  }

  /** Ends Envoy and removes its folder. */
  async stop(): Promise<void> {
    await this.process.stop();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/**
 * Starts Envoy with the given bootstrap (YAML or JSON text, with an admin address on TCP) and waits
 * for its admin page to say ready. Rejects with Envoy's own words when it does not get there.
 */
export async function startEnvoy(
  bootstrapYaml: string,
  options: EnvoyOptions = {},
): Promise<EnvoyProcess> {
  const binary = await envoyBinary();
  const folder = await mkdtemp(join(tmpdir(), "weir-envoy-"));
  const bootstrapFile = join(folder, "bootstrap.yaml");
  const addressFile = join(folder, "admin-address");
  await writeFile(bootstrapFile, bootstrapYaml);
  const envoy = startProcess(
    binary,
    [
      ...["-c", bootstrapFile, "--admin-address-path", addressFile, "--use-dynamic-base-id"],
      ...["--concurrency", String(options.concurrency ?? 1), "--file-flush-interval-msec", "50"],
      ...["--log-level", options.logLevel ?? "warn", ...(options.args ?? [])],
    ],
    { name: "envoy", discardStdout: options.discardAccessLog ?? false },
  );
  try {
    const deadline = Date.now() + (options.startLimitMs ?? 20_000);
    const adminPort = await poll(envoy, deadline, () => readAdminPort(addressFile));
    await poll(envoy, deadline, async () =>
      (await adminGet(adminPort, "/ready")).startsWith("LIVE") ? true : undefined,
    );
    const ports = parseListeners(await adminGet(adminPort, "/listeners?format=json"));
    return new EnvoyProcess(envoy, { adminPort, ports }, folder);
  } catch (error) {
    await envoy.stop();
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** The entries of an access log, skipping lines that are not JSON objects (and a half last line). */
function parseAccessLog(text: string): readonly AccessLogEntry[] {
  return text
    .split("\n")
    .slice(0, -1)
    .filter((line) => line.startsWith("{") && line.endsWith("}"))
    .map((line) => JSON.parse(line) as AccessLogEntry);
}

function parseListeners(json: string): Record<string, number> {
  const { listener_statuses: statuses = [] } = JSON.parse(json) as {
    readonly listener_statuses?: readonly {
      readonly name: string;
      readonly local_address: BoundAddress;
    }[];
  };
  const ports: Record<string, number> = {};
  for (const { name, local_address: address } of statuses) {
    if (address.socket_address !== undefined) ports[name] = address.socket_address.port_value;
  }
  return ports;
}

async function readAdminPort(addressFile: string): Promise<number | undefined> {
  const port = /:(\d+)\s*$/.exec(await readFile(addressFile, "utf8"))?.[1];
  return port === undefined ? undefined : Number(port);
}

async function adminGet(port: number, path: string): Promise<string> {
  const answer = await request({ port, method: "GET", path });
  const text = answer.body.toString("utf8");
  if (answer.status !== 200) throw new Error(`admin ${path}: ${String(answer.status)} ${text}`);
  return text;
}

/** Asks again until there is a value; an error counts as "not yet" until time or Envoy is over. */
async function poll<T>(
  envoy: RunningProcess,
  deadline: number,
  ask: () => Promise<T | undefined>,
): Promise<T> {
  for (;;) {
    const value = await ask().catch(() => undefined);
    if (value !== undefined) return value;
    if (envoy.end !== undefined || Date.now() > deadline) {
      throw new Error(`Envoy did not start\n${envoy.describe()}`);
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}
