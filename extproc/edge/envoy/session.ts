// One ext_proc stream: turns Envoy's messages into calls on the core and the core's verdicts into
// replies. It survives every order of messages seen in practice: a stream that begins with response
// headers (a filter before this one answered), Envoy's own local replies, messages after the end, and
// an end at any point. Rules that must not break:
//
// - a request that was not let through is never answered by ending the stream: Envoy would then let
//   it pass unseen. Internal failures, and messages in an order that lets nobody decide, answer 503.
// - after a refusal nothing more is written.
// - the request is settled once, at the end of its answer or at the end of the stream.
// - a failure stays with its own stream: every call that comes in from outside (message, end, timer,
//   decoder, a verdict out of another request's turn) goes through #guard.

import { NO_HEADERS, type HeaderSource } from "../../core/model/headers.js";
import type { JsonReader } from "../../core/identity/json-reader.js";
import type { RequestDesk } from "../../core/request/request-desk.js";
import type { RequestLife } from "../../core/request/request-life.js";
import type { Verdict } from "../../core/request/verdict.js";
import { reject } from "../../core/model/rejection.js";
import type { MonotonicMs } from "../../core/model/time.js";
import type { SlicedWork } from "../runtime/sliced-work.js";
import { createBodyDecoder, type BodyDecoder } from "./body-decoder.js";
import { readBody, SLOW_READING_SHARE } from "./body-reading.js";
import type { Codec } from "./codec.js";
import type { EvidenceReader } from "./evidence.js";
import { contentEncoding, requestHead, responseHead } from "./heads.js";
import type { BodyMessage, HeadersMessage, InboundMessage } from "./messages.js";
import type { RequestPhase } from "./replies.js";
import type { Exchange, ExchangeHandler } from "./transport/transport.js";

/** How long a decoder may go on after the end of a stream before its usage counts as missing. */
export const DECODER_GRACE_MS = 1_000;

const INTERNAL_ERROR = reject("internal_error", "the request could not be processed");

export interface SessionDeps {
  readonly desk: RequestDesk;
  readonly evidence: EvidenceReader;
  readonly codec: Codec;
  readonly now: () => MonotonicMs;
  readonly decodeMaxBytes: number;
  /** Reads large bodies, of all sessions together. */
  readonly work: SlicedWork;
  /** How long Envoy waits for a reply. */
  readonly messageTimeoutMs: number;
  /** A message that could not be handled: a bug, or a peer that is not Envoy. It must not throw. */
  readonly onFault: (error: unknown) => void;
  /** Envoy sent no response attributes, so answers cannot be told apart. */
  readonly onMissingAttributes: () => void;
}

export class Session implements ExchangeHandler {
  readonly #deps: SessionDeps;
  readonly #exchange: Exchange;
  #request: RequestLife | undefined;
  /** Of the request. */
  #headers: HeaderSource = NO_HEADERS;
  /** Time to ask of Envoy when its body takes long to read; undefined when nobody reads it. */
  #readingMs: number | undefined;
  /** The phase whose reply is owed when a held request is decided. */
  #owed: RequestPhase | undefined;
  /** Envoy was told to wait for the reply; it heeds that once. */
  #waits = false;
  /** Nothing may be written any more: the request was refused. */
  #silent = false;
  /** Envoy has the reply that lets the request go, or a message of the response has come. */
  #letThrough = false;
  #sawFirstByte = false;
  #decoder: BodyDecoder | undefined;
  /** Set while the request has ended for Envoy and its decoder has not: was the end seen? */
  #ending: { readonly complete: boolean; readonly timer: NodeJS.Timeout } | undefined;

  constructor(deps: SessionDeps, exchange: Exchange) {
    this.#deps = deps;
    this.#exchange = exchange;
  }

  message(bytes: Buffer): void {
    if (this.#silent) return;
    this.#guard(() => {
      // A request keeps the headers of its first message, which must not keep all that arrived with it.
      const kept = this.#request === undefined ? Buffer.from(bytes) : bytes;
      this.#handle(this.#deps.codec.decode(kept));
    });
  }

  closed(): void {
    this.#silent = true;
    this.#guard(() => {
      this.#end(false);
    });
  }

  #handle(message: InboundMessage): void {
    if (message.kind.startsWith("response_")) this.#letThrough = true;
    else if (this.#request === undefined && message.kind !== "request_headers") {
      throw new Error(`${message.kind} before request_headers`);
    }
    switch (message.kind) {
      case "request_headers":
        this.#requestHeaders(message);
        return;
      case "request_body":
        this.#requestBody(message);
        return;
      case "response_headers":
        this.#responseHeaders(message);
        return;
      case "response_body":
        this.#responseBody(message);
        return;
      case "request_trailers":
        this.#exchange.send(this.#deps.codec.proceed("request_trailers"));
        return;
      case "response_trailers":
        this.#exchange.send(this.#deps.codec.proceed("response_trailers"));
        this.#end(true);
    }
  }

  #requestHeaders(message: HeadersMessage): void {
    if (this.#request !== undefined) throw new Error("request_headers twice");
    const head = requestHead(message, this.#deps.evidence);
    this.#headers = head.headers;
    this.#owed = "request_headers";
    const { request, verdict, readingMs } = this.#deps.desk.open(
      head,
      (later) => {
        this.#guard(() => {
          this.#carryOut(later);
        });
      },
      this.#deps.now(),
    );
    this.#request = request;
    this.#readingMs = readingMs;
    this.#carryOut(verdict);
  }

  #requestBody(message: BodyMessage): void {
    const request = this.#request;
    if (request === undefined || this.#letThrough) {
      this.#exchange.send(this.#deps.codec.proceed("request_body"));
      return;
    }
    // A second body of a held request cannot be answered: "continue" would let it go unrouted.
    if (this.#owed !== undefined) throw new Error("request_body twice");
    this.#owed = "request_body";
    const { body } = message;
    const { desk, now } = this.#deps;
    const reader = this.#readingMs === undefined ? undefined : desk.bodyReader(body);
    if (reader === undefined) this.#carryOut(desk.body(request, body, now()));
    else this.#readBody(request, reader);
  }

  /** Reads a large body while others have their turns; the request may end meanwhile, in any way. */
  #readBody(request: RequestLife, reader: JsonReader): void {
    const { desk, now, work, messageTimeoutMs } = this.#deps;
    const reading = {
      reader,
      slowMs: messageTimeoutMs * SLOW_READING_SHARE,
      isOver: () => request.ended,
      onSlow: () => {
        this.#hold(this.#readingMs ?? 0);
      },
    };
    void readBody(work, now, reading).then(
      () => {
        this.#guard(() => {
          if (!request.ended) this.#carryOut(desk.body(request, reader.bytes, now(), reader));
        });
      },
      (error: unknown) => {
        this.#fail(error);
      },
    );
  }

  #responseHeaders(message: HeadersMessage): void {
    const request = this.#request;
    if (request === undefined) {
      this.#exchange.send(this.#deps.codec.proceed("response_headers"));
      return;
    }
    const head = responseHead(message);
    if (head.attributes.codeDetails === undefined) this.#deps.onMissingAttributes();
    const read = this.#deps.desk.responseHeaders(request, head, this.#deps.now());
    if (read) this.#openDecoder(message, request);
    this.#exchange.send(
      read ? this.#deps.codec.readResponseBody() : this.#deps.codec.proceed("response_headers"),
    );
  }

  #openDecoder(message: HeadersMessage, request: RequestLife): void {
    const encoding = contentEncoding(message.headers);
    if (encoding === undefined) return;
    this.#decoder = createBodyDecoder(encoding, {
      maxDecodedBytes: this.#deps.decodeMaxBytes,
      onData: (bytes) => {
        this.#guard(() => {
          request.responseBody(bytes);
        });
      },
      onDone: (result) => {
        this.#guard(() => {
          // What was read of an answer that broke off still counts; a broken coding does not.
          if (result === "failed" && this.#ending?.complete !== false) request.usageUnreadable();
          this.#settle(request);
        });
      },
    });
    if (this.#decoder === undefined) request.usageUnreadable();
  }

  #responseBody(message: BodyMessage): void {
    // Envoy waits for this reply before it passes the chunk on, so it goes out first.
    this.#exchange.send(this.#deps.codec.proceed("response_body"));
    const request = this.#request;
    if (request === undefined || request.ended) return;
    if (message.body.length > 0) {
      if (!this.#sawFirstByte) {
        this.#sawFirstByte = true;
        request.firstByte(this.#deps.now());
      }
      if (this.#decoder === undefined) request.responseBody(message.body);
      else this.#decoder.write(message.body);
    }
    if (message.endOfStream) this.#end(true);
  }

  /**
   * Ends the request. A decoder at work is waited for, at most DECODER_GRACE_MS: slot and live load
   * stay held until then.
   */
  #end(complete: boolean): void {
    const request = this.#request;
    if (request === undefined || request.ended || this.#ending !== undefined) return;
    const decoder = this.#decoder;
    if (decoder === undefined) {
      this.#deps.desk.end(request, complete, this.#deps.now());
      return;
    }
    const timer = setTimeout(() => {
      decoder.destroy();
      this.#guard(() => {
        if (complete) request.usageUnreadable();
        this.#settle(request);
      });
    }, DECODER_GRACE_MS);
    this.#ending = { complete, timer };
    decoder.end();
  }

  /** Settles a request whose decoder is done, or was given up. */
  #settle(request: RequestLife): void {
    const ending = this.#ending;
    if (ending === undefined) return;
    clearTimeout(ending.timer);
    this.#deps.desk.end(request, ending.complete, this.#deps.now());
  }

  #carryOut(verdict: Verdict): void {
    if (this.#silent) return;
    if (verdict.kind === "refuse") {
      // Also without a reply that is owed: Envoy then resets the worker and answers the client.
      this.#owed = undefined;
      this.#silent = true;
      this.#exchange.send(this.#deps.codec.refusal(verdict.rejection));
      return;
    }
    const phase = this.#owed;
    if (phase === undefined) return;
    switch (verdict.kind) {
      case "continue":
        this.#owed = undefined;
        this.#exchange.send(this.#deps.codec.proceed(phase));
        return;
      case "route":
        this.#owed = undefined;
        this.#exchange.send(
          this.#deps.codec.route(phase, verdict.worker.cluster, this.#headers, verdict.facts),
        );
        this.#letThrough = true;
        return;
      case "hold":
        this.#hold(verdict.budgetMs);
    }
  }

  #hold(budgetMs: number): void {
    if (this.#waits) return;
    this.#waits = true;
    this.#exchange.send(this.#deps.codec.hold(budgetMs));
  }

  #guard(step: () => void): void {
    try {
      step();
    } catch (error) {
      this.#fail(error);
    }
  }

  /**
   * A fault of ours, or bytes that are no message. A request that was not let through must not pass
   * unseen, so it is refused; one that runs already goes on without Weir, which an error on the
   * stream tells Envoy. Whatever fails in here as well must not keep the rest from being done.
   */
  #fail(error: unknown): void {
    const { codec, desk, now, onFault } = this.#deps;
    onFault(error);
    const answered = this.#silent;
    const letThrough = this.#letThrough;
    this.#silent = true;
    this.#owed = undefined;
    clearTimeout(this.#ending?.timer);
    this.#decoder?.destroy();
    const steps = [
      () => {
        if (answered) return;
        if (letThrough) this.#exchange.abort();
        else this.#exchange.send(codec.refusal(INTERNAL_ERROR));
      },
      () => {
        const request = this.#request;
        if (request === undefined) return;
        if (letThrough) desk.end(request, this.#ending?.complete ?? false, now());
        else desk.fail(request, now());
      },
      () => {
        desk.turn(now());
      },
    ];
    for (const step of steps) {
      try {
        step();
      } catch (another) {
        onFault(another);
      }
    }
  }
}
