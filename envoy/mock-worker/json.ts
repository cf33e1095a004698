// JSON as it comes from a client, and events as they go to one. Small readers that never trust a
// type, and the text form of a server-sent event.

export type Json = string | number | boolean | null | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [key: string]: Json | undefined;
}

export interface SseEvent {
  /** Written as an `event:` line when present. */
  readonly event?: string;
  readonly data: JsonObject | "[DONE]";
}

export function sseText(event: SseEvent): string {
  const name = event.event === undefined ? "" : `event: ${event.event}\n`;
  const data = event.data === "[DONE]" ? event.data : JSON.stringify(event.data);
  return `${name}data: ${data}\n\n`;
}

/** Parses a JSON object; anything else is undefined. */
export function parseObject(text: string): JsonObject | undefined {
  try {
    return asObject(JSON.parse(text) as Json);
  } catch {
    return undefined;
  }
}

export function asObject(value: Json | undefined): JsonObject | undefined {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? (value as JsonObject) : undefined;
}

export function asList(value: Json | undefined): readonly Json[] | undefined {
  return Array.isArray(value) ? (value as readonly Json[]) : undefined;
}

export function asText(value: Json | undefined): string | undefined {
  return typeof value === "string" ? value : undefined;
}
