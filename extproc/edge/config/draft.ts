// The configuration as far as it is sound: defaults laid under the file, and every value the schema
// refused taken out again. Rules that compare two values run on this, so that one bad number hides
// no other problem and never causes a second one about itself.

import { DEFAULTS } from "./defaults.js";
import { isMapping } from "./overrides.js";
import type { ConfigPath } from "./problem.js";
import type { FileConfig } from "./schema.js";

type Partially<Value> = Value extends readonly (infer Element)[]
  ? readonly (Partially<Element> | undefined)[]
  : Value extends object
    ? { readonly [Key in keyof Value]?: Partially<Value[Key]> | undefined }
    : Value;

/** Any part may be missing: it was refused, or it never had a value. */
export type Draft = Partially<FileConfig>;

/** `refused` are the paths of all values the schema did not accept. */
export function draftOf(root: unknown, refused: readonly ConfigPath[]): Draft {
  let draft: unknown = withDefaults(root);
  for (const path of refused) draft = without(draft, path);
  return isMapping(draft) ? draft : {};
}

function withDefaults(root: unknown): unknown {
  if (!isMapping(root)) return {};
  const merged: Record<string, unknown> = { ...root };
  for (const [section, defaults] of Object.entries(DEFAULTS)) {
    const given = merged[section];
    if (given === undefined) merged[section] = defaults;
    else if (isMapping(given)) merged[section] = { ...defaults, ...given };
  }
  return merged;
}

/** A copy without the value at `path`; an element of a list becomes undefined, so indexes stay. */
function without(value: unknown, path: ConfigPath): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return undefined;
  if (Array.isArray(value)) {
    return value.map((element: unknown, index) =>
      index === step ? without(element, rest) : element,
    );
  }
  if (!isMapping(value) || !Object.hasOwn(value, step)) return value;
  return { ...value, [step]: without(value[step], rest) };
}
