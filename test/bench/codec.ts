// Weir's own CPU per request with its codec, against the same session over proto-loader's messages, in
// alternating rounds.

import { runLoad } from "./load.js";
import { median } from "./measure.js";
import type { Print } from "./print.js";
import { Processes, type CodecName } from "./processes.js";
import { fullConfig } from "./full-config.js";
import type { Pace } from "./rounds.js";
import { WORKLOADS } from "./workloads.js";
import type { Wrk } from "./wrk.js";

const CODECS: readonly CodecName[] = ["wire", "proto-loader"];
const micros = (value: number): string => `${value.toFixed(0)} us`;
const ratio = (value: number): string => `${value.toFixed(2)}x`;

export async function benchCodec(print: Print, pace: Pace, wrk: Wrk | undefined): Promise<void> {
  const [workload] = WORKLOADS;
  if (workload === undefined) throw new Error("there is no workload");
  const processes = new Processes();
  try {
    const sketch = fullConfig(await processes.fastWorkers(8));
    const bodiesFile = processes.file(".txt", `${workload.bodies.join("\n")}\n`);
    const gateways = new Map(
      await Promise.all(
        CODECS.map(async (codec) => [codec, await processes.gateway(sketch, { codec })] as const),
      ),
    );
    const cpu: Record<CodecName, number[]> = { wire: [], "proto-loader": [] };
    for (let round = 0; round < pace.rounds; round += 1) {
      for (const [codec, { envoy, weir }] of gateways) {
        const sample = await runLoad({
          ...{ port: envoy.port, workload, bodiesFile, wrk, watched: [weir.pid] },
          seconds: pace.seconds,
          warmUpSeconds: round === 0 ? pace.warmUpSeconds : 0,
        });
        cpu[codec].push(sample.cpuMicros[0] ?? NaN);
      }
    }
    const ratios = cpu.wire.map((own, round) => own / (cpu["proto-loader"][round] ?? NaN));
    print(
      `Weir's own CPU per request, ${workload.title}, ${String(pace.rounds)} alternating rounds`,
    );
    print(`  own codec     ${micros(median(cpu.wire))} (median)`);
    print(`  proto-loader  ${micros(median(cpu["proto-loader"]))} (median)`);
    print(
      `  ratio         ${ratio(median(ratios))} (median; each: ${ratios.map(ratio).join(", ")})`,
    );
  } finally {
    await processes.stop();
  }
}
