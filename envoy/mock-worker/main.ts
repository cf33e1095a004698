// The command `mock-worker`: reads its flags, starts one worker, says where it listens, and ends on
// SIGTERM or SIGINT. Bad flags end it with exit code 2, an address that is taken with exit code 1.
import { readFlags } from "./options.js";
import { startMockWorker } from "./server.js";

async function main(): Promise<void> {
  const flags = readFlags(process.argv.slice(2));
  if (flags.kind === "error") {
    process.stderr.write(`mock-worker: ${flags.message}\n`);
    process.exitCode = 2;
    return;
  }
  const { options } = flags;
  try {
    const worker = await startMockWorker(options);
    const models = options.models.join(", ");
    process.stdout.write(`mock worker (${options.engine}, ${models}) on ${worker.url}\n`);
    const { kv_events: events } = worker.state();
    if (events !== undefined) {
      const replay = events.replay_port === null ? "" : `, replay on ${String(events.replay_port)}`;
      process.stdout.write(`KV events on port ${String(events.port)}${replay}\n`);
    }
    const stop = (): void => {
      void worker.close();
    };
    process.once("SIGTERM", stop);
    process.once("SIGINT", stop);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const address = `${options.host}:${String(options.port)}`;
    process.stderr.write(`mock-worker: cannot listen on ${address}: ${why}\n`);
    process.exitCode = 1;
  }
}

await main();
