// Does a caller know the allocator's key? The comparison takes the same time whatever is sent: both sides
// are hashed first, so neither the length nor a common beginning shows. The key is read again when it is
// older than a second, so that it can be replaced while Weir runs, and a flood of calls does not become
// a flood of reads. Without a readable key nobody gets in.

import { createHash, timingSafeEqual } from "node:crypto";
import type { MonotonicMs } from "../../core/model/time.js";
import type { ApiKeyResult } from "../runtime/api-key.js";

/** Age at which the key is read again. */
export const SERVICE_KEY_AGE_MAX_MS = 1_000;

/** `unreadable`: there is no key to compare with. */
export type KeyVerdict = "accepted" | "refused" | "unreadable";

export interface ServiceKeyOptions {
  readonly read: () => Promise<ApiKeyResult>;
  /** Hears why the key cannot be read; the text names its place only. */
  readonly onProblem: (problem: string) => void;
  readonly now: () => MonotonicMs;
}

const BEARER = /^bearer +([\x21-\x7e]+) *$/i;

export class ServiceKey {
  readonly #options: ServiceKeyOptions;
  #reading: { readonly at: MonotonicMs; readonly digest: Promise<Buffer | undefined> } | undefined;

  constructor(options: ServiceKeyOptions) {
    this.#options = options;
  }

  /** @param lines the values of the header `authorization`, one per line */
  async check(lines: readonly string[]): Promise<KeyVerdict> {
    const expected = await this.#digest();
    if (expected === undefined) return "unreadable";
    const [line = "", ...more] = lines;
    const given = more.length === 0 ? BEARER.exec(line)?.[1] : undefined;
    return timingSafeEqual(digestOf(given ?? ""), expected) && given !== undefined
      ? "accepted"
      : "refused";
  }

  #digest(): Promise<Buffer | undefined> {
    const now = this.#options.now();
    if (this.#reading === undefined || now - this.#reading.at >= SERVICE_KEY_AGE_MAX_MS) {
      this.#reading = { at: now, digest: this.#read() };
    }
    return this.#reading.digest;
  }

  async #read(): Promise<Buffer | undefined> {
    const result = await this.#options.read();
    if (result.kind === "key") return digestOf(result.key);
    this.#options.onProblem(result.problem);
    return undefined;
  }
}

function digestOf(key: string): Buffer {
  return createHash("sha256").update(key, "latin1").digest();
}
