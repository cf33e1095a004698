// How many events of a stream carried output? The number is a floor for the charge of a stream that
// never says its usage, so that leaving usage out does not make tokens free.
//
// Counted as bytes pass and never parsed: a line is judged by its first bytes, line ends are found
// with indexOf, and nothing of a line is kept, so a two-megabyte event without a newline costs one
// pass. Every state survives a cut at any byte. A content event is a complete event (ended by a blank
// line) with data that is neither `[DONE]` nor an error, and that is not the stream's first: engines
// open a stream with the role or with metadata.

import { ErrorKeyFinder } from "./error-key.js";

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf] as const;
const DATA_FIELD = [0x64, 0x61, 0x74, 0x61, 0x3a] as const;
const DONE = [0x5b, 0x44, 0x4f, 0x4e, 0x45, 0x5d] as const;
const MISMATCH = -1;

export class SseEventCounter {
  #contentEvents = 0;
  #dataEvents = 0;
  #markBytes = 0;
  #afterCarriageReturn = false;
  // The current line: its bytes, how much of `data:` and then of `[DONE]` it matched, value bytes.
  #lineBytes = 0;
  #fieldMatched = 0;
  #doneMatched = 0;
  #valueBytes = 0;
  // The current event.
  #hasPayload = false;
  readonly #error = new ErrorKeyFinder();

  /** Content events that were complete when the last pushed byte had passed. */
  get contentEvents(): number {
    return this.#contentEvents;
  }

  push(chunk: Uint8Array): void {
    let start = 0;
    if (this.#afterCarriageReturn && chunk.length > 0) {
      this.#afterCarriageReturn = false;
      if (chunk[0] === LINE_FEED) start = 1;
    }
    // Each search result is kept until it is passed, so a chunk is searched once per kind of end.
    let lineFeed = chunk.indexOf(LINE_FEED, start);
    let carriageReturn = chunk.indexOf(CARRIAGE_RETURN, start);
    while (lineFeed >= 0 || carriageReturn >= 0) {
      const byReturn = carriageReturn >= 0 && (lineFeed < 0 || carriageReturn < lineFeed);
      const end = byReturn ? carriageReturn : lineFeed;
      this.#extendLine(chunk, start, end);
      this.#endLine();
      start = end + 1;
      if (byReturn) {
        if (start === chunk.length) this.#afterCarriageReturn = true;
        else if (start === lineFeed) start += 1;
        carriageReturn = chunk.indexOf(CARRIAGE_RETURN, start);
      }
      if (lineFeed >= 0 && lineFeed < start) lineFeed = chunk.indexOf(LINE_FEED, start);
    }
    this.#extendLine(chunk, start, chunk.length);
  }

  #extendLine(chunk: Uint8Array, from: number, to: number): void {
    let at = from;
    while (at < to && this.#markBytes < BYTE_ORDER_MARK.length) {
      if (chunk[at] === BYTE_ORDER_MARK[this.#markBytes]) {
        this.#markBytes += 1;
        at += 1;
      } else this.#markBytes = BYTE_ORDER_MARK.length;
    }
    this.#lineBytes += to - at;
    const field = DATA_FIELD.length;
    for (; at < to && this.#fieldMatched >= 0 && this.#fieldMatched < field; at += 1) {
      this.#fieldMatched =
        chunk[at] === DATA_FIELD[this.#fieldMatched] ? this.#fieldMatched + 1 : MISMATCH;
    }
    if (this.#fieldMatched !== field) return;
    while (at < to && this.#valueBytes === 0 && isBlank(chunk[at])) at += 1;
    const valueStart = at;
    for (; at < to && this.#doneMatched !== MISMATCH; at += 1) {
      if (chunk[at] === DONE[this.#doneMatched]) this.#doneMatched += 1;
      else if (this.#doneMatched !== DONE.length || !isBlank(chunk[at])) {
        this.#doneMatched = MISMATCH;
      }
    }
    this.#valueBytes += to - valueStart;
    this.#error.scan(chunk, valueStart, to);
  }

  #endLine(): void {
    // Once any line has ended, a byte order mark can no longer follow.
    this.#markBytes = BYTE_ORDER_MARK.length;
    if (this.#lineBytes === 0) this.#endEvent();
    else if (this.#valueBytes > 0 && this.#doneMatched !== DONE.length) this.#hasPayload = true;
    this.#lineBytes = 0;
    this.#fieldMatched = 0;
    this.#doneMatched = 0;
    this.#valueBytes = 0;
  }

  #endEvent(): void {
    if (this.#hasPayload) {
      this.#dataEvents += 1;
      if (this.#dataEvents > 1 && !this.#error.found) this.#contentEvents += 1;
    }
    this.#hasPayload = false;
    this.#error.reset();
  }
}

function isBlank(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x09;
}
