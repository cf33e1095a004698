// Does a JSON object that passes by in pieces have an `error` key of its own? Engines put a failure
// in the middle of a stream as one more event, and such an event is no output.
//
// The object is not parsed: an event may be megabytes long and is seen in arbitrary cuts, so this
// follows quotes and braces byte by byte, holds nothing, and needs no second look. Only the top
// level counts (Responses events carry `"error":null` inside `response`), and a null is no error.

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const LETTER_N = 0x6e;
const ERROR = [0x65, 0x72, 0x72, 0x6f, 0x72] as const;
const MISMATCH = -1;

type Expecting = "nothing" | "colon" | "value";

export class ErrorKeyFinder {
  #found = false;
  #depth = 0;
  #inString = false;
  #escaped = false;
  // Characters of `error` that the current top-level string has matched so far, or MISMATCH.
  #matched = MISMATCH;
  #expecting: Expecting = "nothing";

  /** True once a top-level `error` key with a value other than null has begun. */
  get found(): boolean {
    return this.#found;
  }

  reset(): void {
    this.#found = false;
    this.#depth = 0;
    this.#inString = false;
    this.#escaped = false;
    this.#matched = MISMATCH;
    this.#expecting = "nothing";
  }

  /** Reads bytes from..to (exclusive) of the chunk. */
  scan(chunk: Uint8Array, from: number, to: number): void {
    if (this.#found) return;
    for (let at = from; at < to; at += 1) {
      const byte = chunk[at] ?? 0;
      if (this.#inString) this.#insideString(byte);
      else if (byte > 0x20) this.#outsideString(byte);
    }
  }

  #insideString(byte: number): void {
    if (this.#escaped) {
      this.#escaped = false;
    } else if (byte === BACKSLASH) {
      this.#escaped = true;
      this.#matched = MISMATCH;
    } else if (byte === QUOTE) {
      this.#inString = false;
      if (this.#matched === ERROR.length) this.#expecting = "colon";
    } else if (this.#matched !== MISMATCH) {
      this.#matched = byte === ERROR[this.#matched] ? this.#matched + 1 : MISMATCH;
    }
  }

  #outsideString(byte: number): void {
    if (this.#expecting === "colon") {
      // A string that no colon follows was a value (`"type":"error"`), not a key.
      this.#expecting = byte === COLON ? "value" : "nothing";
    } else if (this.#expecting === "value") {
      this.#expecting = "nothing";
      if (byte !== LETTER_N) this.#found = true;
    }
    if (byte === QUOTE) {
      this.#inString = true;
      this.#matched = this.#depth === 1 ? 0 : MISMATCH;
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      this.#depth += 1;
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      this.#depth -= 1;
    }
  }
}
