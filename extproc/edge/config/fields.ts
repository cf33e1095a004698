// The kinds of values a configuration is made of, as schemas with one message each. A message says
// what is allowed; the loader adds the value that was found. Every failure of one value gives that
// same message, so a person never has to fix a number twice.

import { z } from "zod";
import { isTenantKey, readDurationMs } from "./addresses.js";

const LONGEST_NAME_CHARS = 256;

export const onOff = z.boolean({ error: "must be true or false" });

/** A whole number within bounds, both included. */
export function whole(min: number, max: number): z.ZodInt {
  const error = `must be a whole number from ${String(min)} to ${String(max)}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
}

/** A number within bounds, both included; fractions allowed, never infinite or NaN. */
export function decimal(min: number, max: number): z.ZodNumber {
  const error = `must be a number from ${String(min)} to ${String(max)}`;
  return z.number({ error }).min(min, { error }).max(max, { error });
}

/** A number above `min` and up to `max`, the latter included; never infinite or NaN. */
export function above(min: number, max?: number): z.ZodNumber {
  const error =
    max === undefined
      ? `must be a finite number above ${String(min)}`
      : `must be a number above ${String(min)} and up to ${String(max)}`;
  const open = z.number({ error }).gt(min, { error });
  return max === undefined ? open : open.max(max, { error });
}

/** A number without an upper bound; fractions allowed, never infinite or NaN. */
export function atLeast(min: number): z.ZodNumber {
  const error = `must be a finite number of ${String(min)} or more`;
  return z.number({ error }).min(min, { error });
}

/** Text that a reader accepts. `allowed` completes the sentence "must be …". */
export function text(allowed: string, accepts: (value: string) => boolean): z.ZodString {
  const error = `must be ${allowed}`;
  return z.string({ error }).refine(accepts, { error });
}

/** One of a few words, numbers or switches. */
export function oneOf<const Value extends string | number | boolean>(
  values: readonly Value[],
): z.ZodLiteral<Value> {
  return z.literal(values, { error: `must be one of ${values.join(", ")}` });
}

/** Names of models, aliases and partitions: 1 to 256 characters, no blanks around, no controls. */
export const name = text(
  `a name of 1 to ${String(LONGEST_NAME_CHARS)} characters without blanks around it`,
  isName,
);

function isName(value: string): boolean {
  if (value.length < 1 || value.length > LONGEST_NAME_CHARS || value !== value.trim()) return false;
  return !/\p{Cc}/u.test(value);
}

/** A key of a tenant that a request can have; any other would silently apply to nobody. */
export const tenantName = text(
  "a tenant key: auth:<id>, header:<id>, ip:<address> in its shortest spelling, or anonymous",
  isTenantKey,
);

/** A duration with its unit, between two such durations, both included. */
export function duration(min: string, max: string): z.ZodString {
  const least = readDurationMs(min) ?? 0;
  const most = readDurationMs(max) ?? 0;
  return text(`a duration such as 2s or 500ms, from ${min} to ${max}`, (value) => {
    const ms = readDurationMs(value);
    return ms !== undefined && ms >= least && ms <= most;
  });
}

/** A mapping with exactly these keys; unknown ones are reported by the loader. */
export function mapping<Shape extends z.core.$ZodLooseShape>(
  shape: Shape,
): z.ZodObject<Shape, z.core.$strict> {
  return z.strictObject(shape, {
    error: (issue) => (issue.code === "invalid_type" ? "must be a mapping of keys" : undefined),
  });
}

/** A mapping from names to values of one kind. */
export function named<Value extends z.ZodType>(
  value: Value,
  key: z.ZodString = name,
): z.ZodRecord<z.ZodString, Value> {
  return z.record(key, value, {
    error: (issue) => (issue.code === "invalid_type" ? "must be a mapping of names" : undefined),
  });
}

/** A mapping from some of a few words to values of one kind; others are reported by the loader. */
export function someOf<const Key extends string, Value extends z.ZodType>(
  keys: readonly Key[],
  value: Value,
): z.ZodRecord<z.ZodLiteral<Key> & z.core.$partial, Value> {
  return z.partialRecord(z.literal(keys), value, {
    error: (issue) =>
      issue.code === "invalid_type" ? `must be a mapping of ${keys.join(", ")}` : undefined,
  });
}

/** A list of at most `max` elements. */
export function list<Element extends z.ZodType>(
  element: Element,
  max: number,
  min = 0,
): z.ZodArray<Element> {
  const error = `must be a list of ${String(min)} to ${String(max)} elements`;
  return z.array(element, { error }).min(min, { error }).max(max, { error });
}

/** A value another version has: any other than `value` is refused with a sentence that says so. */
export function onlyThisVersion<const Value extends string | boolean>(
  value: Value,
  later: readonly (string | boolean)[],
): z.ZodLiteral<Value> {
  return z.literal(value, {
    error: (issue) =>
      later.some((other) => other === issue.input)
        ? `${String(issue.input)} is not available in this version; it must be ${String(value)}`
        : `must be ${String(value)}`,
  });
}
