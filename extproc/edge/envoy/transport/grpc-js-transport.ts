// Transport over @grpc/grpc-js. Messages pass as bytes: the codec is ours, gRPC only frames them.
//
// Three facts shape it. grpc-js emits `cancelled` on nearly every stream, so only the first of `end`,
// `close`, `cancelled` and `error` counts. A stream must be ended by us on `end`, or Envoy resets it
// and Node's HTTP/2 gives up the connection after about a thousand resets. And the default receive
// limit of 4 MiB would turn a larger request body into an error, so it is set from the body limit.

import * as grpc from "@grpc/grpc-js";
import { HealthImplementation, type ServingStatusMap } from "grpc-health-check";
import type { ListenAddress } from "../../../core/model/config.js";
import { removeStaleSocket } from "../../runtime/unix-socket.js";
import { PROCESS_PATH } from "./call.js";
import { STREAMS_MAX } from "./h2c/limits.js";
import { LIVENESS_NAME, READINESS_NAMES } from "./health-service.js";
import type { Exchange, OpenExchange, Transport, TransportOptions } from "./transport.js";

const passBytes = (bytes: Buffer): Buffer => bytes;

const processDefinition = {
  path: PROCESS_PATH,
  requestStream: true,
  responseStream: true,
  requestSerialize: passBytes,
  requestDeserialize: passBytes,
  responseSerialize: passBytes,
  responseDeserialize: passBytes,
} as const satisfies grpc.MethodDefinition<Buffer, Buffer>;

export class GrpcJsTransport implements Transport {
  readonly #server: grpc.Server;
  readonly #health: HealthImplementation;

  constructor(open: OpenExchange, options: TransportOptions) {
    this.#server = new grpc.Server({
      "grpc.max_receive_message_length": options.maxReceiveBytes,
      "grpc.max_concurrent_streams": STREAMS_MAX,
    });
    this.#server.addService(
      { Process: processDefinition },
      {
        Process: (call: grpc.ServerDuplexStream<Buffer, Buffer>) => {
          serve(call, open);
        },
      },
    );
    const statuses: ServingStatusMap = { [LIVENESS_NAME]: "SERVING" };
    for (const name of READINESS_NAMES) statuses[name] = "NOT_SERVING";
    this.#health = new HealthImplementation(statuses);
    this.#health.addToServer(this.#server);
  }

  async listen(address: ListenAddress): Promise<ListenAddress> {
    if (address.kind === "unix") {
      await removeStaleSocket(address.path);
      await this.#bind(`unix:${address.path}`);
      return address;
    }
    const port = await this.#bind(`${hostPart(address.host)}:${String(address.port)}`);
    return { ...address, port };
  }

  setReady(ready: boolean): void {
    for (const name of READINESS_NAMES) {
      this.#health.setStatus(name, ready ? "SERVING" : "NOT_SERVING");
    }
  }

  close(graceMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#server.forceShutdown();
        resolve();
      }, graceMs);
      this.#server.tryShutdown(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  #bind(target: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.bindAsync(target, grpc.ServerCredentials.createInsecure(), (error, port) => {
        if (error !== null) reject(error);
        else resolve(port);
      });
    });
  }
}

function hostPart(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

function serve(call: grpc.ServerDuplexStream<Buffer, Buffer>, open: OpenExchange): void {
  let closed = false;
  const exchange: Exchange = {
    send: (reply) => {
      if (!closed) call.write(reply);
    },
    abort: () => {
      if (closed) return;
      call.emit("error", { code: grpc.status.INTERNAL, details: "the stream cannot go on" });
    },
  };
  const handler = open(exchange);
  const close = (): void => {
    if (closed) return;
    closed = true;
    handler.closed();
  };
  call.on("data", (bytes: Buffer) => {
    if (!closed) handler.message(bytes);
  });
  call.on("end", () => {
    close();
    call.end();
  });
  call.on("close", close);
  call.on("cancelled", close);
  call.on("error", close);
}
