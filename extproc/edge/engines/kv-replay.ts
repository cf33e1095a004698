// What did an engine publish that did not reach us? Asks its replay endpoint for everything from one
// sequence on: a DEALER socket sends an empty delimiter and the sequence as eight big-endian bytes, and
// the engine answers with one message per batch it still has, oldest first, then with the sequence -1 and
// an empty payload. Engines put the delimiter, and later versions the topic, before sequence and payload,
// so those two are read from the end. Each question has a socket of its own, which is closed after it;
// what comes late can therefore never be taken for the answer to another question. Milliseconds.

import { Dealer } from "zeromq";
import { MESSAGE_MAX_BYTES } from "./kv-batch.js";
import { connectOptions, faultOf, hasCode, nextTurn, readSequence } from "./kv-wire.js";

/** Engines keep 10,000 batches by default; what is older is gone. */
export const REPLAY_MAX_BATCHES = 10_000;
/** Engines answer between two steps, within 200 ms; the rest is for a long list. */
export const REPLAY_WAIT_MS = 5_000;
/**
 * Engines answer without a pause once they have begun. A longer one means that the rest, the end included,
 * was dropped on the way because it came faster than it was taken.
 */
export const REPLAY_PAUSE_MS = 500;

export interface ReplayQuestion {
  readonly endpoint: string;
  /** First sequence wanted. */
  readonly from: number;
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** How the answer ended: the taker had enough, the engine has no more, it broke off, or none came. */
export type ReplayEnd =
  | { readonly kind: "enough" }
  | { readonly kind: "broken_off" }
  | { readonly kind: "end" }
  | { readonly kind: "failed"; readonly detail: string };

const END_SEQUENCE = Buffer.alloc(8, 0xff);

/**
 * Calls `take` for each batch as it comes, until it says false; never rejects. The time that `take` needs
 * does not count as waiting.
 */
export async function askReplay(
  question: ReplayQuestion,
  take: (sequence: number, payload: Buffer) => Promise<boolean>,
): Promise<ReplayEnd> {
  const { endpoint, from, waitMs, signal } = question;
  if (signal.aborted) return { kind: "failed", detail: "the feed has ended" };
  let dealer: Dealer;
  try {
    // A larger message could not be used, and the batches behind it are of no use without it.
    dealer = new Dealer({ ...connectOptions(endpoint), maxMessageSize: MESSAGE_MAX_BYTES });
  } catch (error) {
    return { kind: "failed", detail: faultOf(error) };
  }
  const close = (): void => {
    dealer.close();
  };
  signal.addEventListener("abort", close, { once: true });
  let batches = 0;
  try {
    let deadline = performance.now() + waitMs;
    const start = Buffer.alloc(8);
    start.writeBigUInt64BE(BigInt(from));
    dealer.connect(endpoint);
    await dealer.send([Buffer.alloc(0), start]);
    for (; batches < REPLAY_MAX_BATCHES; batches += 1) {
      const leftMs = Math.max(0, Math.ceil(deadline - performance.now()));
      dealer.receiveTimeout = batches === 0 ? leftMs : Math.min(leftMs, REPLAY_PAUSE_MS);
      const frames = await dealer.receive();
      const sequence = frames.at(-2);
      const payload = frames.at(-1);
      if (sequence === undefined || payload === undefined) {
        return { kind: "failed", detail: "an answer has fewer than two parts" };
      }
      if (END_SEQUENCE.equals(sequence)) return { kind: "end" };
      const number = readSequence(sequence);
      if (number === undefined) return { kind: "failed", detail: "an answer has no sequence" };
      const takenFrom = performance.now();
      if (!(await take(number, payload))) return { kind: "enough" };
      deadline += performance.now() - takenFrom;
      await nextTurn();
    }
    return { kind: "enough" };
  } catch (error) {
    const isBrokenOff = batches > 0 && hasCode(error, "EAGAIN");
    return isBrokenOff ? { kind: "broken_off" } : { kind: "failed", detail: faultOf(error) };
  } finally {
    signal.removeEventListener("abort", close);
    dealer.close();
  }
}
