// The command line: serve | bootstrap | check | demo. Reads files, arguments and signals, and turns
// what happens into text and exit codes: 0 = done, 1 = the configuration or the start failed,
// 2 = wrong arguments, 3 = a shutdown that refused or stopped watching requests.

import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { App } from "./app.js";
import type { ListenAddress, WeirConfig } from "./core/model/config.js";
import { apiKeyProblems, serviceKeyProblems } from "./edge/config/api-keys.js";
import { demoConfigYaml } from "./edge/config/demo-config.js";
import { configJsonSchema } from "./edge/config/json-schema.js";
import { loadConfig } from "./edge/config/load.js";
import { formatProblem } from "./edge/config/problem.js";
import { readApiKey } from "./edge/runtime/api-key.js";
import { bootstrapYaml } from "./edge/envoy/bootstrap.js";
import { createLog } from "./edge/telemetry/log.js";

const USAGE = `usage: weir <command> [options]

  serve     --config FILE   run the ext_proc server
  bootstrap --config FILE   print the Envoy bootstrap that matches the configuration
  check     --config FILE   check the configuration; every problem is printed
  check     --schema        print the JSON Schema of the configuration file
  demo      [--port-base N] print the configuration of the local demo

-c is short for --config. Any key can be set on the command line (--scheduler.queue_size 50) or in
the environment (WEIR_SCHEDULER__QUEUE_SIZE=50).
`;

interface Arguments {
  readonly command: string;
  readonly configFile: string | undefined;
  readonly schema: boolean;
  readonly portBase: number | undefined;
  /** Everything else: configuration keys as flags. */
  readonly flags: readonly string[];
}

/** Wrong arguments; the message says which. */
class UsageError extends Error {
  override readonly name = "UsageError";
}

function parseArguments(argv: readonly string[]): Arguments {
  const [command = "help", ...rest] = argv;
  let configFile: string | undefined;
  let schema = false;
  let portBase: number | undefined;
  const flags: string[] = [];
  const valueOf = (name: string, inline: string | undefined): string => {
    const value = inline ?? rest.shift();
    if (value === undefined) throw new UsageError(`${name} needs a value`);
    return value;
  };
  for (let word = rest.shift(); word !== undefined; word = rest.shift()) {
    const [name, inline] = splitFlag(word);
    if (name === "-c" || name === "--config") configFile = valueOf(name, inline);
    else if (name === "--schema" && command === "check") schema = true;
    else if (name === "--port-base" && command === "demo")
      portBase = readPortBase(valueOf(name, inline));
    else flags.push(word);
  }
  return { command, configFile, schema, portBase, flags };
}

function splitFlag(word: string): [string, string | undefined] {
  const at = word.indexOf("=");
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}

function readPortBase(value: string): number {
  const base = Number(value);
  if (!Number.isInteger(base) || base < 1 || base > 65_535 - 13) {
    throw new UsageError(`--port-base must be a whole number from 1 to 65522, got ${value}`);
  }
  return base;
}

/** The configuration, or undefined after every problem was printed. */
function readConfig(args: Arguments): WeirConfig | undefined {
  const file = args.configFile;
  if (file === undefined) throw new UsageError(`${args.command} needs --config FILE`);
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    process.stderr.write(`${file}: ${error instanceof Error ? error.message : String(error)}\n`);
    return undefined;
  }
  const loaded = loadConfig({ text, file, env: process.env, flags: args.flags });
  if (!loaded.ok) {
    for (const problem of loaded.problems) process.stderr.write(`${formatProblem(problem)}\n`);
    return undefined;
  }
  for (const warning of loaded.warnings) process.stderr.write(`warning: ${warning}\n`);
  return loaded.config;
}

async function serve(config: WeirConfig): Promise<number> {
  const { log, settlementLog, flush } = createLog(config.admin.log_level);
  const app = new App({
    config,
    log,
    settlementLog,
    seed: randomInt(2 ** 32),
    startTimeSeconds: Date.now() / 1_000,
    processMetrics: true,
  });
  try {
    const { extProc, admin } = await app.start();
    log.info({ ext_proc: show(extProc), admin: show(admin) }, "serving");
  } catch (error) {
    log.error({ err: error }, "could not start");
    flush();
    await app.stop();
    return 1;
  }
  const cut = new AbortController();
  const signal = await new Promise<string>((resolve) => {
    for (const name of ["SIGTERM", "SIGINT"] as const) {
      process.on(name, () => {
        resolve(name);
      });
    }
  });
  for (const name of ["SIGTERM", "SIGINT"] as const) {
    process.on(name, () => {
      cut.abort();
    });
  }
  log.info({ signal }, "draining");
  const result = await app.drain(cut.signal);
  await app.stop();
  log.info({ ...result }, "stopped");
  flush();
  return result.refused === 0 && result.unobserved === 0 ? 0 : 3;
}

function show(address: ListenAddress): string {
  return address.kind === "unix"
    ? `unix:${address.path}`
    : `${address.host}:${String(address.port)}`;
}

async function main(argv: readonly string[]): Promise<number> {
  const args = parseArguments(argv);
  switch (args.command) {
    case "demo":
      process.stdout.write(demoConfigYaml(args.portBase));
      return 0;
    case "check":
    case "bootstrap":
    case "serve": {
      if (args.schema) {
        process.stdout.write(`${JSON.stringify(configJsonSchema(), undefined, 2)}\n`);
        return 0;
      }
      const config = readConfig(args);
      if (config === undefined) return 1;
      if (args.command === "bootstrap") {
        process.stdout.write(bootstrapYaml(config, args.configFile));
        return 0;
      }
      const missing = [
        ...(await apiKeyProblems(config.workers, readApiKey)),
        ...(await serviceKeyProblems(config.credits, readApiKey)),
      ];
      if (args.command === "serve" && missing.length > 0) {
        for (const problem of missing) process.stderr.write(`${problem}\n`);
        return 1;
      }
      if (args.command === "serve") return serve(config);
      // The configuration is often checked where the keys are not.
      for (const problem of missing) process.stderr.write(`warning: ${problem}\n`);
      process.stdout.write("the configuration is valid\n");
      return 0;
    }
    case "help":
    case "--help":
    case "-h":
      process.stdout.write(USAGE);
      return 0;
    default:
      throw new UsageError(`unknown command ${args.command}`);
  }
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  process.stderr.write(`${error.message}\n\n${USAGE}`);
  process.exitCode = 2;
}
