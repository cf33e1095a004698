// An HTTP/2 client below gRPC, for what a gRPC client does not let one do: windows that stay shut,
// resets at will, and seeing a GOAWAY.

import * as http2 from "node:http2";
import { connect as connectSocket } from "node:net";
import { EXT_PROC_SERVICE } from "./ext-proc-client.js";
import { encodeRequest } from "./oracle.js";

const HEAD = {
  ":method": "POST",
  ":path": `/${EXT_PROC_SERVICE}/Process`,
  "content-type": "application/grpc",
  te: "trailers",
} as const;

/** How a stream ended: its gRPC status, or undefined when it was reset or lost. */
export type StreamEnd = string | undefined;

export class RawStream {
  readonly stream: http2.ClientHttp2Stream;
  readonly ended: Promise<StreamEnd>;
  receivedBytes = 0;

  constructor(stream: http2.ClientHttp2Stream) {
    this.stream = stream;
    let status: StreamEnd;
    const read = (headers: http2.IncomingHttpHeaders): void => {
      const found = headers["grpc-status"];
      if (typeof found === "string") status = found;
    };
    stream.on("response", read);
    stream.on("trailers", read);
    stream.on("data", (bytes: Buffer) => {
      this.receivedBytes += bytes.length;
    });
    stream.on("error", () => undefined);
    this.ended = new Promise((resolve) => {
      stream.on("close", () => {
        resolve(status);
      });
    });
  }

  send(message: object): void {
    const bytes = encodeRequest(message);
    const head = Buffer.alloc(5);
    head.writeUInt32BE(bytes.length, 1);
    this.stream.write(Buffer.concat([head, bytes]));
  }

  end(): void {
    this.stream.end();
  }

  reset(): void {
    this.stream.close(http2.constants.NGHTTP2_CANCEL);
  }
}

export class RawClient {
  readonly session: http2.ClientHttp2Session;
  goaways = 0;

  /** `target` as a gRPC client takes it: host:port or unix:/path. */
  constructor(target: string, settings: http2.Settings = {}) {
    const path = target.startsWith("unix:") ? target.slice("unix:".length) : undefined;
    this.session = http2.connect(path === undefined ? `http://${target}` : "http://localhost", {
      settings,
      ...(path === undefined ? {} : { createConnection: () => connectSocket(path) }),
    });
    this.session.on("error", () => undefined);
    this.session.on("goaway", () => {
      this.goaways += 1;
    });
  }

  get usable(): boolean {
    return !this.session.closed && !this.session.destroyed;
  }

  open(): RawStream {
    return new RawStream(this.session.request(HEAD));
  }

  destroy(): void {
    this.session.destroy();
  }
}
