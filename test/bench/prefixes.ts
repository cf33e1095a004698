// What knowing prefixes costs as they become many: hashing a prompt; then noting and finding distinct
// prefixes of one block, with up to ten million of them among eight workers, and as many through one
// worker's limit, where each new one evicts. Printed as time per call, its ratio to the smallest index,
// the bytes against the limit and the longest call, which would show a table that grows at one stroke
// (a busy machine and the collection of other garbage show in it too).

import { testHasher } from "../support/prefix-hasher.js";
import { modelId } from "../../extproc/core/model/ids.js";
import { createRng } from "../../extproc/core/model/rng.js";
import { monotonicMs } from "../../extproc/core/model/time.js";
import type { BlockKeys } from "../../extproc/core/prefixes/block-keys.js";
import { CommittedIndex } from "../../extproc/core/prefixes/committed-index.js";
import type { Print } from "./print.js";

const BLOCK_CHARS = 256;
const PROMPT_BLOCKS = 256;
/** The default of `selection.max_tree_size`. */
const BYTES_PER_WORKER = 64 * 1_024 * 1_024;
const TTL_MS = 600_000;

/** Distinct prefixes of one block, the same ones from one seed. */
class Prefixes {
  readonly #rng = createRng(1);
  readonly #keys: BlockKeys = { words: new Uint32Array(4), count: 1 };

  next(): BlockKeys {
    for (let word = 0; word < 4; word += 1) this.#keys.words[word] = this.#rng.uint32();
    return this.#keys;
  }
}

/** CPU time of this process so far, in microseconds. */
function cpuMicros(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}

/** CPU microseconds per call. */
function timed(calls: number, call: () => void): number {
  const start = cpuMicros();
  for (let count = 0; count < calls; count += 1) call();
  return (cpuMicros() - start) / calls;
}

class Load {
  readonly index = new CommittedIndex({ maxBytesPerWorker: BYTES_PER_WORKER, ttlMs: TTL_MS });
  longestMs = 0;
  slowestThousandMs = 0;
  readonly #prefixes = new Prefixes();
  readonly #workers: number;
  #committed = 0;

  constructor(workers: number) {
    this.#workers = workers;
  }

  commit(): void {
    const now = monotonicMs(this.#committed / 1_000);
    this.index.commit(this.#prefixes.next(), this.#committed % this.#workers, now);
    this.#committed += 1;
  }

  /** Commits new prefixes until there are `total`; each call and each thousand calls are timed. */
  fillTo(total: number): void {
    while (this.#committed < total) {
      const thousand = timed(1_000, () => {
        const start = performance.now();
        this.commit();
        this.longestMs = Math.max(this.longestMs, performance.now() - start);
      });
      this.slowestThousandMs = Math.max(this.slowestThousandMs, thousand);
    }
  }

  /** What was slow so far does not count: the compiler was at work. */
  warmedUp(): void {
    this.longestMs = 0;
    this.slowestThousandMs = 0;
  }

  /** CPU microseconds per lookup of prefixes from the first on. */
  match(calls: number): number {
    const again = new Prefixes();
    const now = monotonicMs(this.#committed / 1_000);
    return timed(calls, () => this.index.match(again.next(), now));
  }
}

function printGrowth(print: Print, title: string, workers: number, smoke: boolean): void {
  const load = new Load(workers);
  const calls = smoke ? 1_000 : 100_000;
  const sizes = smoke ? [1_000, 10_000, 100_000] : [10_000, 1_000_000, 10_000_000];
  const limit = workers * BYTES_PER_WORKER;
  print(`  ${title}`);
  let first: readonly [number, number] | undefined;
  for (const size of sizes) {
    load.fillTo(size);
    const match = load.match(Math.min(calls, size));
    const commit = timed(calls, () => {
      load.commit();
    });
    if (first === undefined) {
      first = [commit, match];
      load.warmedUp();
    }
    const [commitRatio, matchRatio] = [commit / first[0], match / first[1]];
    const parts = [
      `${size.toLocaleString("en")} prefixes`.padEnd(22),
      `commit ${commit.toFixed(2)} us (${commitRatio.toFixed(2)}x)`.padEnd(24),
      `match ${match.toFixed(2)} us (${matchRatio.toFixed(2)}x)`.padEnd(23),
      `${(load.index.bytes / 1_048_576).toFixed(1)} MiB of ${(limit / 1_048_576).toFixed(0)}`,
    ];
    print(`    ${parts.join(" ")}`);
  }
  const slowest = `slowest thousand calls ${load.slowestThousandMs.toFixed(2)} ms of CPU`;
  print(`    ${slowest}, longest call ${load.longestMs.toFixed(2)} ms by the clock`);
}

function printHashing(print: Print, smoke: boolean): void {
  const hasher = testHasher();
  const model = modelId("bench");
  const text = "the quick brown fox jumps over the lazy dog ".repeat(2_000);
  const tokens = Uint32Array.from({ length: 16 * PROMPT_BLOCKS }, (_, index) => index);
  const calls = smoke ? 20 : 1_000;
  const hash = {
    text: () => hasher.text(model, text, BLOCK_CHARS, PROMPT_BLOCKS),
    tokens: () => hasher.tokens(model, tokens, 16, PROMPT_BLOCKS),
  };
  timed(calls, hash.text);
  const perText = timed(calls, hash.text) / PROMPT_BLOCKS;
  timed(calls, hash.tokens);
  const perTokens = timed(calls, hash.tokens) / PROMPT_BLOCKS;
  print(`  hashing a block of ${String(BLOCK_CHARS)} characters ${perText.toFixed(2)} us`);
  print(`  hashing a block of 16 tokens ${perTokens.toFixed(2)} us`);
  const load = new Load(8);
  load.fillTo(calls * 10);
  const keys = hash.text();
  for (let worker = 0; worker < 8; worker += 1) load.index.commit(keys, worker, monotonicMs(0));
  const match = timed(calls, () => load.index.match(keys, monotonicMs(1)));
  const commit = timed(calls, () => {
    load.index.commit(keys, 3, monotonicMs(1));
  });
  const whole = `a prompt of ${String(PROMPT_BLOCKS)} blocks that 8 workers hold:`;
  print(`  ${whole} match ${match.toFixed(1)} us, commit ${commit.toFixed(1)} us`);
}

export function benchPrefixes(print: Print, smoke: boolean): void {
  print("Prefixes: hashing them, noting who holds them, and finding that again");
  printHashing(print, smoke);
  printGrowth(print, "distinct prefixes among 8 workers, all kept", 8, smoke);
  printGrowth(print, "distinct prefixes of 1 worker, most evicted", 1, smoke);
}
