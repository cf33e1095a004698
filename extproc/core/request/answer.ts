// The answer to one request, as far as accounting cares: whose answer it is, when its first byte
// came, and what usage it reports. Owns the usage reader; never changes a byte of the answer.

import type { MonotonicMs } from "../model/time.js";
import {
  answerOrigin,
  type AnswerOrigin,
  type ResponseAttributes,
} from "../settlement/answer-origin.js";
import { CANCELLED_CHARGE, chargeFor, type Charge } from "../settlement/charge.js";
import {
  bodyFormat,
  createUsageReader,
  type BodyFormat,
  type UsageReader,
  type UsageReading,
} from "../settlement/usage-reader.js";
import type { ResponseHead } from "./heads.js";

export interface AnswerEnding {
  /** The request was sent to a worker. */
  readonly dispatched: boolean;
  /** The end of the answer was seen. */
  readonly complete: boolean;
  /** The endpoint answers with output tokens at all. */
  readonly producesOutput: boolean;
  readonly estimateTokens: number;
  /** Weir itself took the work away from the worker. */
  readonly takenAway: boolean;
}

export interface SettledAnswer {
  readonly charge: Charge;
  readonly reading: UsageReading | undefined;
}

export class Answer {
  #origin: AnswerOrigin = "unknown";
  #attributes: ResponseAttributes | undefined;
  #status: number | undefined;
  #format: BodyFormat = "json";
  #reader: UsageReader | undefined;
  #firstByteAt: MonotonicMs | undefined;

  get origin(): AnswerOrigin {
    return this.#origin;
  }

  get codeDetails(): string | undefined {
    return this.#attributes?.codeDetails;
  }

  /** What Envoy says about it; undefined before its headers came. */
  get attributes(): ResponseAttributes | undefined {
    return this.#attributes;
  }

  /** How its body is read. */
  get format(): BodyFormat {
    return this.#format;
  }

  get status(): number | undefined {
    return this.#status;
  }

  /** Its status says that all went well. */
  get succeeded(): boolean {
    const status = this.#status ?? 0;
    return status >= 200 && status < 300;
  }

  get firstByteAt(): MonotonicMs | undefined {
    return this.#firstByteAt;
  }

  /** True for a worker's own answer, also when Envoy does not tell whose it is. */
  get fromWorker(): boolean {
    return this.#origin === "worker" || this.#origin === "unknown";
  }

  headers(head: ResponseHead): void {
    this.#status = head.status;
    this.#origin = answerOrigin(head.attributes);
    this.#attributes = head.attributes;
  }

  /** Starts to read the body for its usage. */
  read(contentType: string | undefined): void {
    this.#format = bodyFormat(contentType);
    this.#reader = createUsageReader(this.#format);
  }

  firstByte(now: MonotonicMs): void {
    this.#firstByteAt ??= now;
  }

  push(bytes: Uint8Array): void {
    this.#reader?.push(bytes);
  }

  /** Gives the reading up: the body is in a coding that cannot be decoded. */
  unreadable(): void {
    this.#reader = undefined;
  }

  /** Ends the reading and works out the charge. Call it once. */
  settle(ending: AnswerEnding): SettledAnswer {
    const reading = this.#reader?.finish();
    this.#reader = undefined;
    if (ending.takenAway) return { charge: CANCELLED_CHARGE, reading };
    const { dispatched, complete, producesOutput, estimateTokens } = ending;
    const charge = chargeFor({
      dispatched,
      origin: this.#origin,
      complete,
      format: this.#format,
      reading,
      producesOutput,
      estimateTokens,
    });
    return { charge, reading };
  }
}
