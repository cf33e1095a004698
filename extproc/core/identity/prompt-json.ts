// Writes JSON values of a body into the canonical prompt text: tools, arguments, and whatever is no
// plain text. Blanks outside strings go, and strings are spelled with as few escapes as possible, so
// that a client's way of writing JSON does not matter; the order of keys and the spelling of numbers
// stay, because chat templates keep them. Written in runs: only blanks and strings that may need
// another spelling break one. A media value keeps its place, but its long strings are replaced by
// length and a hash of samples: an image of 20 MB costs as much as a short link, its bytes never fill
// the text, and the same image at the same place is the same prompt. Length and samples are those of
// the bytes in the body, because no client spells one image in two ways.

import { QUOTE, skipBlanks } from "./json-skip.js";
import type { Span } from "./json-scan.js";
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

/** Writes a value as compact JSON; all of its bytes count as text. */
export function writeJson(scan: PromptScan, writer: PromptWriter, value: Span): void {
  writer.count(value.end - value.start);
  write(scan, writer, value, Infinity);
}

/** Writes a media value: compact JSON with stand-ins for its long strings. Nothing counts as text. */
export function writeMedia(scan: PromptScan, writer: PromptWriter, value: Span): void {
  write(scan, writer, value, MEDIA_WHOLE_MAX_BYTES);
}

function write(scan: PromptScan, writer: PromptWriter, value: Span, wholeMaxBytes: number): void {
  const { bytes } = scan;
  let run = value.start;
  let at = run;
  while (at < value.end && !writer.full && scan.stoppedAt === undefined) {
    if (bytes[at] === QUOTE) {
      const { end } = scan.valueAt(at);
      if (end - at > SHORT_STRING_BYTES || hasBackslash(bytes, at, end)) {
        writer.json(bytes, run, at);
        const whole = end - at - 2 <= wholeMaxBytes;
        if (whole) writeString(scan, writer, at, end);
        else writer.mark(reference(bytes, at + 1, end - 1));
        run = end;
      }
      at = end;
    } else {
      const next = skipBlanks(bytes, at);
      if (next !== at || at - run >= RUN_BYTES) {
        writer.json(bytes, run, at);
        run = next;
      }
      at = next === at ? at + 1 : next;
    }
  }
  if (!writer.full && scan.stoppedAt === undefined) writer.json(bytes, run, at);
}

function writeString(scan: PromptScan, writer: PromptWriter, start: number, end: number): void {
  writer.mark('"');
  if (!writer.string(scan.bytes, start + 1, end - 1, true)) scan.stop(start);
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
    const from = start + Math.floor((last * sample) / (MEDIA_SAMPLES - 1));
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
