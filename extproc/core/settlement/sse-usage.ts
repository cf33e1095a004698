// Usage in the tail of an event stream. Engines send it cumulatively, so the last event that has a
// number says it all: the final chunk, the last of many, `response.completed`, `message_delta`.
// Events are read from the end and only those that name a usage object are parsed, so a long stream
// costs a parse or two.
//
// Two dialects need more. A stream's first event may carry a number that only opens the count
// (Messages: `message_start`; some chat servers: 0): when other events follow it and none of them
// has a number, it was seen but is not the terminal usage. SGLang streams a batch as one event per
// prompt, told apart by `index`, and each index counts for itself.

import { batchIndexOf, parseJson, sumOf, usageOf, type UsageCounts } from "./usage-fields.js";

/** What the tail of an answer says about its usage. */
export interface TailUsage {
  /** Output tokens of the terminal usage. */
  readonly output: number | undefined;
  /** Output tokens last seen, terminal or not. */
  readonly lastSeen: number | undefined;
  readonly prompt: number | undefined;
  readonly cached: number | undefined;
}

interface EventUsage extends UsageCounts {
  /** Place among the events of the tail. */
  readonly place: number;
  readonly batchIndex: number | undefined;
}

const USAGE_OBJECT = /"(?:usage|meta_info)"\s*:\s*\{/;

/**
 * Reads the last usage of the events in `text`. `whole` tells that `text` begins where the stream
 * began; otherwise the first event lost its head and is left out. An event that the end cut off
 * counts when its data is whole. Undefined: no event has a number.
 */
export function usageInEvents(text: string, whole: boolean): TailUsage | undefined {
  const events = dataOfEvents(text, whole);
  const last = lastUsage(events, events.length);
  if (last === undefined) return undefined;
  const lastSeen =
    last.batchIndex === undefined ? last.output : sumOfBatch(events, last, last.batchIndex);
  const opening = whole && last.place === 0 && events.length > 1;
  const first = whole ? eventUsage(events, 0) : undefined;
  return {
    output: opening ? undefined : lastSeen,
    lastSeen,
    // Messages streams say the prompt in the first event and repeat it, or write 0, in the last.
    prompt: largerOf(first?.prompt, last.prompt),
    cached: largerOf(first?.cached, last.cached),
  };
}

/** The data of every event that has some, `[DONE]` left out. */
function dataOfEvents(text: string, whole: boolean): readonly string[] {
  const lines = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
  const events = lines.split("\n\n");
  if (!whole) events.shift();
  return events.map(dataOf).filter((data) => data !== "" && data !== "[DONE]");
}

function dataOf(event: string): string {
  const data: string[] = [];
  for (const line of event.split("\n")) {
    if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
  }
  return data.join("\n").trim();
}

function lastUsage(events: readonly string[], before: number): EventUsage | undefined {
  for (let place = before - 1; place >= 0; place -= 1) {
    const usage = eventUsage(events, place);
    if (usage?.output !== undefined) return usage;
  }
  return undefined;
}

function eventUsage(events: readonly string[], place: number): EventUsage | undefined {
  const data = events[place];
  if (data === undefined || !USAGE_OBJECT.test(data)) return undefined;
  const value = parseJson(data);
  const { output, prompt, cached } = usageOf(value);
  return { output, prompt, cached, place, batchIndex: batchIndexOf(value) };
}

function sumOfBatch(
  events: readonly string[],
  last: EventUsage,
  lastIndex: number,
): number | undefined {
  const counted = new Set([lastIndex]);
  let sum = last.output;
  let earlier = lastUsage(events, last.place);
  while (earlier !== undefined) {
    if (earlier.batchIndex !== undefined && !counted.has(earlier.batchIndex)) {
      counted.add(earlier.batchIndex);
      sum = sumOf(sum, earlier.output);
    }
    earlier = lastUsage(events, earlier.place);
  }
  return sum;
}

function largerOf(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return Math.max(a, b);
}
