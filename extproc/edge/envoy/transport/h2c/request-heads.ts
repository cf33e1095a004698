// What kind of request does a header block begin? Checks what HTTP/2 asks of a request's fields
// (RFC 9113, section 8.2 and 8.3) and keeps the few that matter. Envoy sends the same block for every
// stream once the tables have settled, so the last answer is kept and given again for equal bytes.

import { HpackDecoder } from "./hpack-decoder.js";

export interface RequestHead {
  /** The path of a gRPC request (POST, content-type application/grpc); undefined for any other. */
  readonly path: string | undefined;
  /** The announced length of the body; undefined when none is. */
  readonly contentLength: number | undefined;
}

/** `malformed`: a stream error, the connection goes on. */
export type HeadReading = RequestHead | "malformed";

const PSEUDO_FIELDS: ReadonlySet<string> = new Set([":method", ":scheme", ":path", ":authority"]);
/** Fields that speak of a connection have no place in HTTP/2. */
const CONNECTION_FIELDS: ReadonlySet<string> = new Set([
  ...["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"],
]);
const UPPER_CASE = /[A-Z]/;
const CONTENT_LENGTH = /^\d{1,15}$/;

export class RequestHeads {
  readonly #decoder = new HpackDecoder();
  #lastBlock: Buffer = Buffer.alloc(0);
  #lastChanges = -1;
  #lastReading: HeadReading = "malformed";

  /** The head in a block that opens a stream. Throws ConnectionError. */
  read(block: Buffer): HeadReading {
    const before = this.#decoder.changes;
    if (before === this.#lastChanges && block.equals(this.#lastBlock)) return this.#lastReading;
    const fields = new Fields();
    this.#decoder.decode(block, fields.add);
    const reading = fields.reading();
    if (this.#decoder.changes === before) {
      // A copy: the block shares memory with all that arrived with it.
      this.#lastBlock = Buffer.from(block);
      this.#lastChanges = before;
      this.#lastReading = reading;
    }
    return reading;
  }

  /** Reads a block that ends a stream, or one of a closed stream; true when it is well-formed. */
  readTrailers(block: Buffer): boolean {
    const fields = new Fields();
    this.#decoder.decode(block, fields.add);
    return fields.areTrailers();
  }
}

class Fields {
  readonly #pseudo = new Map<string, string>();
  #contentType = "";
  #contentLength: number | undefined;
  #regular = false;
  #malformed = false;

  readonly add = (name: string, value: string): void => {
    if (name.startsWith(":")) {
      const misplaced = this.#regular || this.#pseudo.has(name) || !PSEUDO_FIELDS.has(name);
      this.#malformed ||= misplaced;
      this.#pseudo.set(name, value);
      return;
    }
    this.#regular = true;
    this.#malformed ||= name === "" || UPPER_CASE.test(name) || CONNECTION_FIELDS.has(name);
    if (name === "te") this.#malformed ||= value !== "trailers";
    else if (name === "content-type") this.#contentType = value;
    else if (name === "content-length") {
      this.#malformed ||= !CONTENT_LENGTH.test(value);
      this.#contentLength = Number(value);
    }
  };

  reading(): HeadReading {
    const method = this.#pseudo.get(":method");
    const path = this.#pseudo.get(":path");
    const scheme = this.#pseudo.get(":scheme");
    if (this.#malformed || method === undefined || scheme === undefined) return "malformed";
    if (path === undefined || path === "") return "malformed";
    const isGrpc = method === "POST" && this.#contentType.startsWith("application/grpc");
    return { path: isGrpc ? path : undefined, contentLength: this.#contentLength };
  }

  areTrailers(): boolean {
    return !this.#malformed && this.#pseudo.size === 0;
  }
}
