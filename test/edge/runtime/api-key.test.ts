import { execFileSync } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { API_KEY_CHARS_MAX, readApiKey } from "../../../extproc/edge/runtime/api-key.js";

describe("readApiKey", () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "weir-api-key-"));
  });
  after(() => rm(folder, { recursive: true }));

  const fromEnv = (value?: string): ReturnType<typeof readApiKey> =>
    readApiKey({ kind: "env", name: "ENGINE_KEY" }, { ENGINE_KEY: value });

  it("reads a key from the environment, without the white space around it", async () => {
    expect(await fromEnv(" sk-1 \n")).to.deep.equal({ kind: "key", key: "sk-1" });
  });

  it("reads a file anew each time: a replaced key is used at once", async () => {
    const path = join(folder, "key");
    for (const key of ["first", "second"]) {
      await writeFile(path, `${key}\n`);
      expect(await readApiKey({ kind: "file", path })).to.deep.equal({ kind: "key", key });
    }
  });

  it("reads regular files only: a pipe nobody writes to and a device without an end hold up nothing", async () => {
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    for (const path of [pipe, "/dev/zero", folder]) {
      const result = await readApiKey({ kind: "file", path });
      expect(result.kind, path).to.equal("problem");
    }
  });

  it("takes a key of the largest size and not one character more", async () => {
    expect((await fromEnv("x".repeat(API_KEY_CHARS_MAX))).kind).to.equal("key");
    expect(await fromEnv("x".repeat(API_KEY_CHARS_MAX + 1))).to.deep.equal({
      kind: "problem",
      problem: "the API key in environment variable ENGINE_KEY is longer than 4096 characters",
    });
  });

  for (const [value, what] of [
    [undefined, "is not set"],
    [" ", "is empty"],
    ["secret key", "holds something other than visible ASCII characters"],
    ["secret\nkey", "holds something other than visible ASCII characters"],
    ["schlüssel", "holds something other than visible ASCII characters"],
  ] as const) {
    it(`says where it looked, and never what it found: ${what}`, async () => {
      expect(await fromEnv(value)).to.deep.equal({
        kind: "problem",
        problem: `the API key in environment variable ENGINE_KEY ${what}`,
      });
    });
  }

  it("names the file that cannot be read, and why", async () => {
    const path = join(folder, "none");
    expect(await readApiKey({ kind: "file", path })).to.deep.equal({
      kind: "problem",
      problem: `the API key in file ${path} cannot be read (ENOENT)`,
    });
  });
});
