// Writes JSON values of a body into the canonical prompt text: tools, arguments, and whatever is no
// plain text. Blanks outside strings go, and strings are spelled with as few escapes as possible, so
// that a client's way of writing JSON does not matter; the order of keys and the spelling of numbers
// stay, because chat templates keep them. Written in runs: only blanks and strings that may need
// another spelling break one. A picture keeps its place, but its long strings are replaced by length
// and a hash of samples: an image of 20 MB costs as much as a short link, its bytes never fill the
// text, and the same image at the same place is the same prompt. Length and samples are those of the
// bytes in the body, because no client spells one image in two ways. Text is never sampled: pages
// that differ in a number are different prompts.

import { QUOTE, type Span } from "./json-skip.js";
import type { PromptScan } from "./prompt-scan.js";
import { REFERENCE, type PromptWriter } from "./prompt-writer.js";

/** Samples of a long media string, evenly spaced; the first and the last bytes are among them. */
const MEDIA_SAMPLES = 64;
/** Bytes of one sample. Compressed media differ almost everywhere once they differ at all. */
const MEDIA_SAMPLE_BYTES = 8;
/** Media strings up to here (links, identifiers) are written whole: samples would cover them anyway. */
export const MEDIA_WHOLE_MAX_BYTES = MEDIA_SAMPLES * MEDIA_SAMPLE_BYTES;
/** Strings up to here are looked at for escapes and stay in their run. */
const SHORT_STRING_BYTES = 64;
/** A run is written at this length, so that a full text ends the walk soon. */
const RUN_BYTES = 4_096;
const BACKSLASH = 0x5c;
/** Data URIs whose data are text: small differences in them matter and would not be sampled. */
const TEXT_URIS = ["data:text", "data:application/json", "data:application\\/json"];
/** By byte value: base64 in both alphabets, and the backslash of escaped slashes and line ends. */
const isDataByte = Uint8Array.from({ length: 256 }, (_, byte) =>
  /[A-Za-z0-9+/=_\\-]/.test(String.fromCharCode(byte)) ? 1 : 0,
);

/** Writes a value as compact JSON; all of its bytes count as text. */
export function writeJson(scan: PromptScan, writer: PromptWriter, value: Span): void {
  write(scan, writer, value, "whole");
  writer.count((scan.stoppedAt ?? value.end) - value.start);
}

/** Writes a value as compact JSON that is no text of the prompt. */
export function writeUncounted(scan: PromptScan, writer: PromptWriter, value: Span): void {
  write(scan, writer, value, "whole");
}

/** Writes a media value: compact JSON with stand-ins for its long strings. Nothing counts as text. */
export function writeMedia(scan: PromptScan, writer: PromptWriter, value: Span): void {
  write(scan, writer, value, "media");
}

/**
 * Writes a value that may hold media or text: only long strings that look like data get stand-ins, and
 * all the rest counts as text.
 */
export function writeMixed(scan: PromptScan, writer: PromptWriter, value: Span): void {
  const replacedBytes = write(scan, writer, value, "mixed");
  writer.count((scan.stoppedAt ?? value.end) - value.start - replacedBytes);
}

/** Which long strings get a stand-in: none, all, those that look like data. */
type Manner = "whole" | "media" | "mixed";

/** Writes a value until the text is full; how many bytes got stand-ins, of mixed values also behind. */
function write(scan: PromptScan, writer: PromptWriter, value: Span, manner: Manner): number {
  const { bytes } = scan;
  let replacedBytes = 0;
  let run = value.start;
  let at = run;
  const isWanted = (): boolean =>
    scan.stoppedAt === undefined && (manner === "mixed" || !writer.full);
  while (at < value.end && isWanted()) {
    if (bytes[at] === QUOTE) {
      const { end } = scan.valueAt(at);
      if (scan.stoppedAt !== undefined) break;
      if (end - at > SHORT_STRING_BYTES || hasBackslash(bytes, at, end)) {
        writer.json(bytes, run, at);
        if (isReplaced(bytes, at + 1, end - 1, manner)) {
          if (!writer.full) writer.mark(reference(bytes, at + 1, end - 1));
          replacedBytes += end - at;
        } else {
          writeString(scan, writer, at, end);
        }
        run = end;
      }
      at = end;
    } else {
      const next = scan.pass(at, value.end);
      const end = next < value.end ? scan.blanks(next) : next;
      if (end !== next || next - run >= RUN_BYTES) {
        writer.json(bytes, run, next);
        run = end;
      }
      at = end;
    }
  }
  if (scan.stoppedAt === undefined) writer.json(bytes, run, at);
  return replacedBytes;
}

function isReplaced(bytes: Uint8Array, start: number, end: number, manner: Manner): boolean {
  if (manner === "whole" || end - start <= MEDIA_WHOLE_MAX_BYTES) return false;
  return manner === "media" || looksLikeData(bytes, start, end);
}

/**
 * Whether a long string is a file rather than text: a data URI of anything but text, or letters, digits
 * and the signs of base64 at all places that a stand-in samples. A page of any language has blanks,
 * points or characters beyond ASCII there. With a larger `stride` fewer places are looked at.
 */
export function looksLikeData(bytes: Uint8Array, start: number, end: number, stride = 1): boolean {
  if (beginsWith(bytes, start, "data:")) {
    return !TEXT_URIS.some((uri) => beginsWith(bytes, start, uri));
  }
  const last = Math.max(0, end - start - MEDIA_SAMPLE_BYTES);
  for (let sample = 0; sample < MEDIA_SAMPLES; sample += stride) {
    const from = start + sampleAt(last, sample);
    for (let at = from; at < from + MEDIA_SAMPLE_BYTES; at += 1) {
      if (!isDataByte[bytes[at] ?? 0]) return false;
    }
  }
  return true;
}

/** Whether the bytes from `start` on spell an ASCII text. */
export function beginsWith(bytes: Uint8Array, start: number, prefix: string): boolean {
  for (let index = 0; index < prefix.length; index += 1) {
    if (bytes[start + index] !== prefix.charCodeAt(index)) return false;
  }
  return true;
}

/** Where a sample begins, from the start of a string whose last sample begins at `last`. */
function sampleAt(last: number, sample: number): number {
  return Math.floor((last * sample) / (MEDIA_SAMPLES - 1));
}

function writeString(scan: PromptScan, writer: PromptWriter, start: number, end: number): void {
  writer.mark('"');
  writer.string(scan.bytes, start + 1, end - 1, true);
  writer.mark('"');
}

function hasBackslash(bytes: Uint8Array, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) if (bytes[at] === BACKSLASH) return true;
  return false;
}

/**
 * The stand-in for a long string. The hash is there to tell media apart, not to withstand forgery:
 * who forges one gains a wrong routing hint for their own request.
 */
function reference(bytes: Uint8Array, start: number, end: number): string {
  const last = end - start - MEDIA_SAMPLE_BYTES;
  // FNV-1a over the bytes and over their neighbours' mix: two lanes of 32 bits.
  let low = 0x811c9dc5;
  let high = 0x01000193;
  for (let sample = 0; sample < MEDIA_SAMPLES; sample += 1) {
    const from = start + sampleAt(last, sample);
    for (let at = from; at < from + MEDIA_SAMPLE_BYTES; at += 1) {
      low = Math.imul(low ^ (bytes[at] ?? 0), 0x01000193);
      high = Math.imul(high ^ (bytes[at] ?? 0) ^ (low >>> 16), 0x85ebca6b);
    }
  }
  return `${REFERENCE}${(end - start).toString()}:${hex(high)}${hex(low)}`;
}

function hex(word: number): string {
  return (word >>> 0).toString(16).padStart(8, "0");
}
