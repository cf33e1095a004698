// Values for the schemas of an OpenAPI document: those a schema allows, those that are nearly allowed, and
// those nobody would send. It knows the few words that the document uses and fails on any other.

import fc from "fast-check";

export interface Schema {
  readonly [word: string]: unknown;
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly anyOf?: readonly Schema[];
}

const KNOWN_WORDS = new Set([
  ...["type", "properties", "required", "additionalProperties", "anyOf", "const"],
  ...["pattern", "minLength", "maxLength", "minimum", "maximum", "format", "description"],
]);

/** Values that the schema allows. */
export function allowed(schema: Schema): fc.Arbitrary<unknown> {
  for (const word of Object.keys(schema)) {
    if (!KNOWN_WORDS.has(word)) throw new Error(`the generator does not know the word ${word}`);
  }
  const { anyOf, properties, type } = schema;
  if (anyOf !== undefined) return fc.oneof(...anyOf.map(allowed));
  if (properties !== undefined) {
    const members = Object.entries(properties).map(
      ([key, inner]) => [key, allowed(inner)] as const,
    );
    return fc.record(Object.fromEntries(members));
  }
  if (type === "integer") return integers(schema);
  if (type === "string") return texts(schema);
  throw new Error(`the generator does not know the type ${String(type)}`);
}

function integers({
  minimum = 0,
  maximum = Number.MAX_SAFE_INTEGER,
}: Schema): fc.Arbitrary<number> {
  const [min, max] = [Number(minimum), Number(maximum)];
  return fc.oneof(fc.integer({ min, max }), fc.constantFrom(min, max));
}

function texts({ pattern, minLength = 0, maxLength = 64 }: Schema): fc.Arbitrary<string> {
  return typeof pattern === "string"
    ? fc.stringMatching(new RegExp(pattern))
    : fc.string({ minLength: Number(minLength), maxLength: Number(maxLength), unit: "binary" });
}

/** Objects of the schema with one member too many, too few, or of another value. */
export function nearlyAllowed(schema: Schema): fc.Arbitrary<unknown> {
  const keys = Object.keys(schema.properties ?? {});
  return fc
    .tuple(allowed(schema), fc.constantFrom(...keys, "more"), hostile(), fc.boolean())
    .map(([value, key, other, remove]) => {
      const copy: Record<string, unknown> = { ...(value as object) };
      if (remove) Reflect.deleteProperty(copy, key);
      else copy[key] = other;
      return copy;
    });
}

/** Whatever JSON can carry, with names and numbers that have broken programs before. */
export function hostile(): fc.Arbitrary<unknown> {
  return fc.oneof(
    fc.jsonValue({ maxDepth: 4 }),
    fc.constantFrom<unknown>(
      ...[-1, 0, 1e308, 1.5, 4_294_967_296, 18_446_744_073_709_551_616, null, true, "", " "],
      ...["__proto__", "constructor", "\u0000", "\ud800", "x".repeat(300), "é".repeat(65)],
      JSON.parse('{"__proto__":{"generation":"g1"}}'),
    ),
  );
}
