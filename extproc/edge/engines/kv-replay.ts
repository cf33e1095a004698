// What did an engine publish that did not reach us? Asks its replay endpoint for everything from one
// sequence on: a DEALER socket sends an empty delimiter and the sequence as eight big-endian bytes, and
// the engine answers with one message per batch it still has, oldest first, then with the sequence -1 and
// an empty payload. Engines put the delimiter, and later versions the topic, before sequence and payload,
// so those two are read from the end. Each question has a socket of its own, which is closed after it;
// what comes late can therefore never be taken for the answer to another question. Milliseconds.

import { Dealer } from "zeromq";
import { connectOptions, MESSAGE_MAX_WIRE_BYTES, nextTurn, readSequence } from "./kv-wire.js";

/** Engines keep 10,000 batches by default; what is older is gone. */
export const REPLAY_MAX_BATCHES = 10_000;
/** Engines answer between two steps, within 200 ms; the rest is for a long list. */
export const REPLAY_WAIT_MS = 5_000;

export interface ReplayQuestion {
  readonly endpoint: string;
  /** First sequence wanted. */
  readonly from: number;
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

/** How the answer ended: the taker had enough, the engine has no more, or it broke off. */
export type ReplayEnd =
  | { readonly kind: "enough" }
  | { readonly kind: "end" }
  | { readonly kind: "failed"; readonly detail: string };

const END_SEQUENCE = Buffer.alloc(8, 0xff);

/** Calls `take` for each batch as it comes, until it returns false; never rejects. */
export async function askReplay(
  question: ReplayQuestion,
  take: (sequence: number, payload: Buffer) => boolean,
): Promise<ReplayEnd> {
  const { endpoint, from, waitMs, signal } = question;
  if (signal.aborted) return { kind: "failed", detail: "the feed has ended" };
  const dealer = new Dealer({
    ...connectOptions(endpoint),
    receiveHighWaterMark: REPLAY_MAX_BATCHES,
    maxMessageSize: MESSAGE_MAX_WIRE_BYTES,
  });
  const close = (): void => {
    dealer.close();
  };
  signal.addEventListener("abort", close, { once: true });
  try {
    const deadline = performance.now() + waitMs;
    const start = Buffer.alloc(8);
    start.writeBigUInt64BE(BigInt(from));
    dealer.connect(endpoint);
    await dealer.send([Buffer.alloc(0), start]);
    for (let batches = 0; batches < REPLAY_MAX_BATCHES; batches += 1) {
      dealer.receiveTimeout = Math.max(0, Math.ceil(deadline - performance.now()));
      const frames = await dealer.receive();
      const sequence = frames.at(-2);
      const payload = frames.at(-1);
      if (sequence === undefined || payload === undefined) {
        return { kind: "failed", detail: "an answer has fewer than two parts" };
      }
      if (END_SEQUENCE.equals(sequence)) return { kind: "end" };
      const number = readSequence(sequence);
      if (number === undefined) return { kind: "failed", detail: "an answer has no sequence" };
      if (!take(number, payload)) return { kind: "enough" };
      await nextTurn();
    }
    return { kind: "enough" };
  } catch (error) {
    return { kind: "failed", detail: error instanceof Error ? error.message : "a fault" };
  } finally {
    signal.removeEventListener("abort", close);
    dealer.close();
  }
}
