// The exported JSON Schema and the page about the configuration, both held to the shipped examples
// and to the defaults. The check below knows the few words of JSON Schema that the export uses and
// fails on any other, so that it cannot pass by not looking.

import { readdirSync, readFileSync } from "node:fs";
import { expect } from "chai";
import { parse } from "yaml";
import { configJsonSchema } from "../../../extproc/edge/config/json-schema.js";

interface Schema {
  readonly [word: string]: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
}

const IGNORED = new Set(["$schema", "title", "description", "default"]);
const isMapping = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  object: isMapping,
  array: Array.isArray,
  string: (value) => typeof value === "string",
  boolean: (value) => typeof value === "boolean",
  number: (value) => typeof value === "number",
  integer: Number.isInteger,
};

const WORDS: Readonly<Record<string, (value: unknown, word: never, schema: Schema) => boolean>> = {
  type: (value, word: string) => TYPES[word]?.(value) ?? false,
  const: (value, word: unknown) => value === word,
  enum: (value, word: readonly unknown[]) => word.includes(value),
  minimum: (value, word: number) => (value as number) >= word,
  maximum: (value, word: number) => (value as number) <= word,
  exclusiveMinimum: (value, word: number) => (value as number) > word,
  minLength: (value, word: number) => (value as string).length >= word,
  minItems: (value, word: number) => (value as unknown[]).length >= word,
  maxItems: (value, word: number) => (value as unknown[]).length <= word,
  items: (value, word: Schema) => (value as unknown[]).every((item) => accepts(word, item)),
  anyOf: (value, word: readonly Schema[]) => word.some((schema) => accepts(schema, value)),
  required: (value, word: readonly string[]) => word.every((key) => key in (value as object)),
  propertyNames: (value, word: Schema) =>
    Object.keys(value as object).every((k) => accepts(word, k)),
  properties: (value, word: Readonly<Record<string, Schema>>) =>
    Object.entries(value as object).every(([key, inner]) => {
      const schema = word[key];
      return schema === undefined || accepts(schema, inner);
    }),
  additionalProperties: (value, word: Schema | false, schema) =>
    Object.entries(value as object)
      .filter(([key]) => schema.properties?.[key] === undefined)
      .every(([, inner]) => word !== false && accepts(word, inner)),
};

function accepts(schema: Schema, value: unknown): boolean {
  return Object.entries(schema).every(([name, word]) => {
    if (IGNORED.has(name)) return true;
    const check = WORDS[name];
    if (check === undefined) throw new Error(`the check does not know the word ${name}`);
    return check(value, word as never, schema);
  });
}

/** Every key with its path as the page writes it. */
function keysOf(schema: Schema, path = ""): { path: string; schema: Schema }[] {
  const own = Object.entries(schema.properties ?? {}).flatMap(([key, inner]) => {
    const here = path === "" ? key : `${path}.${key}`;
    return [{ path: here, schema: inner }, ...keysOf(inner, here)];
  });
  const named = isMapping(schema["additionalProperties"])
    ? keysOf(schema["additionalProperties"], `${path}.<name>`)
    : [];
  return [
    ...own,
    ...named,
    ...(schema.items === undefined ? [] : keysOf(schema.items, `${path}[]`)),
  ];
}

const schema = configJsonSchema() as Schema;
const folder = new URL("../../../envoy/", import.meta.url);
const examples = readdirSync(folder).filter((name) => name.endsWith(".weir.yaml"));
const read = (name: string): unknown => parse(readFileSync(new URL(name, folder), "utf8"));

describe("the JSON Schema of weir.yaml", () => {
  it("accepts every shipped example", () => {
    expect(examples.length).to.be.at.least(6);
    for (const name of examples) expect(accepts(schema, read(name)), name).to.equal(true);
  });

  it("refuses unknown keys, wrong kinds, values out of bounds and missing workers", () => {
    const demo = read("demo.weir.yaml") as Record<string, unknown>;
    expect(accepts(schema, demo)).to.equal(true);
    const wrong: readonly Record<string, unknown>[] = [
      { ...demo, sheduler: {} },
      { ...demo, scheduler: { queue_size: -1 } },
      { ...demo, scheduler: { queue_size: "5" } },
      { ...demo, scheduler: { queue_timeout_status: 500 } },
      { ...demo, scheduler: { adaptive_capacity: "on" } },
      { ...demo, adaptive_admission: { mode: 1 } },
      { ...demo, adaptive_admission: { estimator_half_life_secs: 0 } },
      { ...demo, adaptive_admission: { min_load_coverage: 1.1 } },
      { ...demo, workers: [] },
      { ...demo, workers: [{ url: "http://h:1", cluster: "a" }] },
      { ...demo, models: { m: { policy: "random" } } },
      { ...demo, models: { m: { ownership: "trees" } } },
      { ...demo, selection: { balance_rel_threshold: 0.9 } },
      { ...demo, selection: { overload_token_usage_threshold: 0 } },
      { ...demo, workers: [{ url: "http://h:1", cluster: "a", models: ["m"], kv_events: {} }] },
    ];
    for (const value of wrong)
      expect(accepts(schema, value), JSON.stringify(value)).to.equal(false);
    expect(accepts(schema, {})).to.equal(false);
    const adaptive = { mode: "Enforce", estimator_half_life_secs: 0.5, min_load_coverage: 1 };
    for (const adaptive_capacity of ["auto", true, false]) {
      const right = { ...demo, adaptive_admission: adaptive, scheduler: { adaptive_capacity } };
      expect(accepts(schema, right)).to.equal(true);
    }
  });

  it("describes every key and carries the defaults", () => {
    const keys = keysOf(schema);
    expect(keys.length).to.be.above(70);
    for (const { path, schema: key } of keys) {
      expect(key["description"], path).to.be.a("string");
    }
    const queue = keys.find(({ path }) => path === "scheduler.queue_size");
    expect(queue?.schema["default"]).to.equal(100);
  });
});

describe("docs/configuration.md", () => {
  const page = readFileSync(new URL("../../../docs/configuration.md", import.meta.url), "utf8");
  const rows = page.split("\n").filter((line) => line.startsWith("|"));

  it("has a row for every key, with its default", () => {
    for (const { path, schema: key } of keysOf(schema)) {
      // A section is a heading, not a row.
      if (!path.includes(".") && !path.includes("[")) {
        expect(page, path).to.contain(`\n## ${path}\n`);
        continue;
      }
      const row = rows.find((line) => line.startsWith(`| \`${path}\` `));
      expect(row, `no row for ${path}`).to.be.a("string");
      const value = key["default"];
      if (value === undefined) continue;
      const shown = typeof value === "string" && value !== "" ? value : JSON.stringify(value);
      expect(row, path).to.contain(`\`${shown}\``);
    }
  });

  it("has no row for a key that does not exist", () => {
    const known = new Set(keysOf(schema).map(({ path }) => path));
    for (const row of rows) {
      const key = /^\| `([a-z_]+(?:\.|\[\])[^`]*)` /.exec(row)?.[1];
      if (key !== undefined) expect(known.has(key), key).to.equal(true);
    }
  });
});
