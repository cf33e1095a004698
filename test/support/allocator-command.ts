// `npm run allocator`: the reference allocator from the command line. It makes up a backlog of chat requests
// for each tenant, drives it through Weir's capacity-credit API, and prints what each tenant got. Exit code:
// 0 = every request was served, 1 = some were not, 2 = wrong arguments.

import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { BacklogAllocator, type TenantCounts } from "./allocator.js";

const USAGE = `usage: npm run allocator -- --key-env NAME --generation G --partition P --model M [options]

  --url URL            where clients reach Envoy (http://127.0.0.1:10000)
  --admin URL          Weir's admin port (http://127.0.0.1:9190)
  --key-env NAME       environment variable with the service key
  --generation G       the allocator generation, credits.generation of Weir
  --generation-file F  a file with it instead; read again when Weir refuses the generation
  --partition P        a partition of scheduler.admission_partitions
  --model M            a model that is served in it
  --tenants LIST       backlogs by tenant (red=20,blue=20)
  --outstanding N      credits that are out at the same time (4)
  --tokens N           estimated output tokens, and max_tokens of each request (16)
  --policy-epoch N     number of the policy (1)
  --dispatch-delay-ms N  time between a credit and its request (0)
`;

const PRINT_EVERY_MS = 1_000;

const { values: args } = parseArgs({
  options: {
    url: { type: "string", default: "http://127.0.0.1:10000" },
    admin: { type: "string", default: "http://127.0.0.1:9190" },
    "key-env": { type: "string", default: "" },
    generation: { type: "string", default: "" },
    "generation-file": { type: "string", default: "" },
    partition: { type: "string", default: "" },
    model: { type: "string", default: "" },
    tenants: { type: "string", default: "red=20,blue=20" },
    outstanding: { type: "string", default: "4" },
    tokens: { type: "string", default: "16" },
    "policy-epoch": { type: "string", default: "1" },
    "dispatch-delay-ms": { type: "string", default: "0" },
    help: { type: "boolean", default: false },
  },
});

function usageError(message: string): never {
  process.stderr.write(`${message}\n\n${USAGE}`);
  process.exit(2);
}

function needed(name: "partition" | "model" | "key-env"): string {
  const value = args[name];
  return value === "" ? usageError(`--${name} is missing`) : value;
}

function whole(name: "outstanding" | "tokens" | "policy-epoch" | "dispatch-delay-ms"): number {
  const value = Number(args[name]);
  const least = name === "outstanding" || name === "tokens" ? 1 : 0;
  if (Number.isSafeInteger(value) && value >= least) return value;
  return usageError(
    `--${name} must be a whole number of at least ${String(least)}, got ${args[name]}`,
  );
}

function backlogs(): ReadonlyMap<string, number> {
  const sizes = new Map<string, number>();
  for (const part of args.tenants.split(",")) {
    const [tenant = "", size = ""] = part.split("=");
    if (tenant === "" || !/^[1-9][0-9]{0,5}$/.test(size)) {
      usageError(`--tenants must be name=number pairs such as red=20,blue=20, got ${args.tenants}`);
    }
    sizes.set(tenant, Number(size));
  }
  return sizes;
}

async function generation(): Promise<string> {
  const file = args["generation-file"];
  return file === "" ? args.generation : (await readFile(file, "utf8")).trim();
}

function print(counts: ReadonlyMap<string, TenantCounts>): void {
  for (const [tenant, of] of counts) process.stdout.write(`${JSON.stringify({ tenant, ...of })}\n`);
}

async function main(): Promise<number> {
  if (args.help) {
    process.stdout.write(USAGE);
    return 0;
  }
  if ((await generation()) === "") usageError("--generation or --generation-file is missing");
  const serviceKey = process.env[needed("key-env")]?.trim() ?? "";
  if (serviceKey === "") usageError(`the environment variable ${args["key-env"]} is not set`);
  const [partition, model, tokens] = [needed("partition"), needed("model"), whole("tokens")];
  const allocator = new BacklogAllocator({
    admin: args.admin,
    gateway: args.url,
    serviceKey,
    generation,
    policyEpoch: whole("policy-epoch"),
    outstanding: whole("outstanding"),
    dispatchDelayMs: whole("dispatch-delay-ms"),
  });
  const results = [...backlogs()].flatMap(([tenant, size]) =>
    Array.from({ length: size }, (_, index) =>
      allocator.submit({
        tenant,
        partition,
        model,
        estimateTokens: tokens,
        body: JSON.stringify({
          model,
          max_tokens: tokens,
          messages: [{ role: "user", content: `request ${String(index)} of ${tenant}` }],
        }),
      }),
    ),
  );
  const printing = setInterval(() => {
    print(allocator.counts);
  }, PRINT_EVERY_MS);
  const ended = await Promise.all(results);
  clearInterval(printing);
  print(allocator.counts);
  if (allocator.stopReason !== undefined) process.stderr.write(`${allocator.stopReason}\n`);
  return ended.every(({ status }) => status >= 200 && status < 300) ? 0 : 1;
}

// Connections that are kept for the next request would hold the process up.
process.exit(await main());
