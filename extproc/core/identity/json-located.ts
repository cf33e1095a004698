// Which values of a JSON text somebody wants to know the places of, and what a reader says about them:
// where they stand, or what is wrong with the text. Positions are byte offsets.

import { namesByLength, type NameTable } from "./json-scan.js";
import type { LongStringEnds, Span } from "./json-skip.js";

export type JsonFault =
  | { readonly kind: "malformed"; readonly at: number }
  | { readonly kind: "not_utf8"; readonly at: number }
  | { readonly kind: "too_deep" }
  | { readonly kind: "not_an_object"; readonly found: string };

/** Keys of an object to be located, and keys of objects among their values. */
export interface WantedKeys {
  readonly names: NameTable;
  readonly inner: ReadonlyMap<string, WantedKeys>;
}

export interface LocatedValue extends Span {
  /** The value is a container with nothing in it. */
  readonly empty: boolean;
  /** The wanted ones of its values, when the value is an object that some are wanted of. */
  readonly inner: LocatedValues | undefined;
}
export type LocatedValues = ReadonlyMap<string, LocatedValue>;

/** Where values of a root object stand: found once, for everyone who reads the same text. */
export interface LocatedRoot {
  readonly ok: true;
  readonly values: LocatedValues;
  readonly ends: LongStringEnds;
}
export type LocatedRootResult = LocatedRoot | { readonly ok: false; readonly fault: JsonFault };

export function wantedKeys(
  names: readonly string[],
  inner: Readonly<Record<string, WantedKeys>> = {},
): WantedKeys {
  return { names: namesByLength(names), inner: new Map(Object.entries(inner)) };
}
