// How did a stream that is gone end? Frames of a stream that we ended may still be on the way and are
// ignored; frames of one that the peer ended itself are its error. The last thousand are remembered:
// what comes later than that is answered as if nothing were known.

/** Power of two: a stream's place is its number modulo this. */
const REMEMBERED = 1_024;

/** `ours`: we may have ended it before the peer did. `theirs`: the peer had said its last word. */
export type StreamEnd = "ours" | "theirs";

export class ClosedStreams {
  readonly #ids = new Uint32Array(REMEMBERED);
  readonly #ours = new Uint8Array(REMEMBERED);

  add(streamId: number, end: StreamEnd): void {
    const place = placeOf(streamId);
    this.#ids[place] = streamId;
    this.#ours[place] = end === "ours" ? 1 : 0;
  }

  /** Undefined for a stream that is not remembered. */
  endOf(streamId: number): StreamEnd | undefined {
    const place = placeOf(streamId);
    if (this.#ids[place] !== streamId) return undefined;
    return this.#ours[place] === 1 ? "ours" : "theirs";
  }
}

/** Clients use odd numbers only. */
function placeOf(streamId: number): number {
  return (streamId >>> 1) % REMEMBERED;
}
