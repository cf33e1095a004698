// An ext_proc server that fails in a chosen way, in place of Weir. Envoy is set to go on without a
// failing server, so these are the moments in which a client's own routing headers would count.
import * as grpc from "@grpc/grpc-js";
import { decodeMessage } from "../../extproc/edge/envoy/messages.js";
import { CONTINUE } from "../../extproc/edge/envoy/replies.js";

/**
 * - `fails`: an error status at once.
 * - `ends`: the stream ends well without an answer.
 * - `garbage`: bytes that are no message.
 * - `wrong_phase`: an answer to a phase that was not asked about.
 * - `silent`: no answer at all.
 * - `continues`: lets everything pass and names no worker.
 */
export const FAULTS = ["fails", "ends", "garbage", "wrong_phase", "silent", "continues"] as const;
export type ProcessorFault = (typeof FAULTS)[number];

export interface FaultyProcessor {
  /** How all following streams fail. */
  fault: ProcessorFault;
  /** Streams that were opened. */
  readonly streams: number;
  close(): void;
}

const asIs = (bytes: Buffer): Buffer => bytes;
const PROCESS = {
  path: "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
  requestStream: true,
  responseStream: true,
  requestSerialize: asIs,
  requestDeserialize: asIs,
  responseSerialize: asIs,
  responseDeserialize: asIs,
} as const satisfies grpc.MethodDefinition<Buffer, Buffer>;

/** Serves on a port of 127.0.0.1. */
export function startFaultyProcessor(port: number): Promise<FaultyProcessor> {
  const server = new grpc.Server();
  let streams = 0;
  const processor: FaultyProcessor = {
    fault: "fails",
    get streams() {
      return streams;
    },
    close: () => {
      server.forceShutdown();
    },
  };
  server.addService(
    { Process: PROCESS },
    {
      Process: (call: grpc.ServerDuplexStream<Buffer, Buffer>) => {
        streams += 1;
        const { fault } = processor;
        call.on("error", () => undefined);
        call.on("data", (bytes: Buffer) => {
          answer(call, fault, bytes);
        });
        call.on("end", () => {
          call.end();
        });
      },
    },
  );
  return new Promise((done, failed) => {
    const address = `127.0.0.1:${String(port)}`;
    server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error) => {
      if (error === null) done(processor);
      else failed(error);
    });
  });
}

function answer(
  call: grpc.ServerDuplexStream<Buffer, Buffer>,
  fault: ProcessorFault,
  bytes: Buffer,
): void {
  switch (fault) {
    case "fails":
      call.emit("error", { code: grpc.status.INTERNAL, details: "planted" });
      return;
    case "ends":
      call.end();
      return;
    case "garbage":
      call.write(Buffer.from([0xff, 0xff, 0xff]));
      return;
    case "wrong_phase":
      call.write(CONTINUE.response_body);
      return;
    case "silent":
      return;
    case "continues":
      call.write(CONTINUE[decodeMessage(bytes).kind]);
  }
}
