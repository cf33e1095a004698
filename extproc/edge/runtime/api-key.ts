// The key that one side wants to be asked with: an engine by Weir, Weir by the allocator. It comes from an
// environment variable or from a file, never from the configuration itself, so that weir.yaml can be
// shown to anybody. A file is read again for every use: keys are rotated by replacing it. A key appears
// in no error and no log; errors name where it should have come from.

import { constants } from "node:fs";
import { open } from "node:fs/promises";
import type { ApiKeySource } from "../../core/model/config.js";

export type ApiKeyResult =
  | { readonly kind: "key"; readonly key: string }
  | { readonly kind: "problem"; readonly problem: string };

/** Longer than any key; a larger file is something else. */
export const API_KEY_CHARS_MAX = 4_096;

/** What a header can carry without quoting. */
const KEY = /^[\x21-\x7e]+$/;

/** Reads a key now; white space around it is dropped. It never throws. */
export async function readApiKey(
  source: ApiKeySource,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Promise<ApiKeyResult> {
  const where =
    source.kind === "env" ? `environment variable ${source.name}` : `file ${source.path}`;
  const problem = (what: string): ApiKeyResult => ({
    kind: "problem",
    problem: `the API key in ${where} ${what}`,
  });
  let text: string | undefined;
  try {
    if (source.kind === "env") text = environment[source.name];
    else {
      text = await readKeyFile(source.path);
      if (text === undefined) return problem("is no regular file");
    }
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "an unknown error";
    return problem(`cannot be read (${code})`);
  }
  if (text === undefined) return problem("is not set");
  const key = text.trim();
  if (key === "") return problem("is empty");
  if (key.length > API_KEY_CHARS_MAX) {
    return problem(`is longer than ${String(API_KEY_CHARS_MAX)} characters`);
  }
  if (!KEY.test(key)) return problem("holds something other than visible ASCII characters");
  return { kind: "key", key };
}

/** White space around a key is no part of it, and there may be a lot of it in a file. */
const FILE_BYTES_MAX = 4 * API_KEY_CHARS_MAX;

/**
 * The beginning of a file, no longer than any key needs; undefined for what is no regular file. Opened
 * without waiting: a pipe that nobody writes to must hold up neither a start nor a poll.
 */
async function readKeyFile(path: string): Promise<string | undefined> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!(await file.stat()).isFile()) return undefined;
    const buffer = Buffer.alloc(FILE_BYTES_MAX);
    const { bytesRead } = await file.read(buffer, 0, FILE_BYTES_MAX, 0);
    return buffer.toString("utf8", 0, bytesRead);
  } finally {
    await file.close();
  }
}
