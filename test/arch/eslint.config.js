// How must the code be written? The strictest type-aware rules everywhere, size limits, and in
// extproc/core the bans that keep it pure: no clock, no timer, no randomness, no async, no throw.
// lint.test.ts plants one fault for each ban and sees it fire.
import { resolve } from "node:path";
import js from "@eslint/js";
import { defineConfig } from "eslint/config";
import n from "eslint-plugin-n";
import tseslint from "typescript-eslint";

const REPOSITORY = resolve(import.meta.dirname, "../..");
const IMPURE_GLOBALS = [
  ...["Date", "performance", "setTimeout", "setInterval", "setImmediate", "queueMicrotask"],
  ...["process", "crypto", "fetch", "console", "Buffer"],
];
const NODE_GLOBALS = [
  ...[
    "AbortController",
    "AbortSignal",
    "Buffer",
    "URL",
    "clearInterval",
    "clearTimeout",
    "console",
  ],
  ...["fetch", "performance", "process", "setImmediate", "setInterval", "setTimeout"],
];
const COMMONJS_GLOBALS = ["__dirname", "__filename", "exports", "module", "require"];

const MODULE_SHAPE = [
  { selector: "ExportDefaultDeclaration", message: "export it by name" },
  { selector: "ExportAllDeclaration", message: "import from the file that has it, not a barrel" },
];
const SYNCHRONOUS = [
  { selector: ":function[async=true]", message: "core is synchronous" },
  { selector: "AwaitExpression", message: "core is synchronous" },
  { selector: "NewExpression[callee.name='Promise']", message: "core is synchronous" },
];
const NO_THROW = {
  selector: "ThrowStatement",
  message: "return a Rejection, or call invariant()",
};
const SIZE_LIMITS = {
  "max-lines-per-function": ["error", { max: 70, skipComments: true, skipBlankLines: true }],
  "max-lines": ["error", { max: 300, skipComments: true, skipBlankLines: true }],
};

function globals(...names) {
  return Object.fromEntries(names.map((name) => [name, "readonly"]));
}

export default defineConfig(
  { ignores: ["dist/**", "test/fixtures/**"] },
  js.configs.recommended,
  {
    plugins: { n },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: { "n/prefer-node-protocol": "error", eqeqeq: "error", ...SIZE_LIMITS },
  },
  {
    files: ["**/*.{js,mjs,cjs}"],
    languageOptions: { globals: globals(...NODE_GLOBALS) },
  },
  {
    files: ["**/*.cjs"],
    languageOptions: { sourceType: "commonjs", globals: globals(...COMMONJS_GLOBALS) },
  },
  {
    files: ["**/*.{ts,mts}"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: REPOSITORY } },
    rules: {
      "@typescript-eslint/switch-exhaustiveness-check": [
        "error",
        { considerDefaultExhaustiveForUnions: false, requireDefaultForNonUnion: true },
      ],
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/explicit-module-boundary-types": "error",
      "no-restricted-syntax": ["error", ...MODULE_SHAPE],
    },
  },
  {
    files: ["extproc/core/**/*.ts"],
    rules: {
      "no-restricted-globals": ["error", ...IMPURE_GLOBALS],
      "no-restricted-properties": [
        "error",
        { object: "Math", property: "random", message: "take an Rng" },
      ],
      "no-restricted-syntax": ["error", ...MODULE_SHAPE, ...SYNCHRONOUS, NO_THROW],
    },
  },
  {
    files: ["extproc/core/model/invariant.ts"],
    rules: { "no-restricted-syntax": ["error", ...MODULE_SHAPE, ...SYNCHRONOUS] },
  },
  {
    files: ["test/**"],
    rules: { "max-lines-per-function": "off", "max-lines": "off" },
  },
  {
    files: ["test/**/*.ts"],
    rules: { "@typescript-eslint/no-unused-expressions": "off" },
  },
);
