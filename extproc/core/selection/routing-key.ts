// Which worker belongs to a routing key? Highest random weight (Thaler and Ravishankar, "Using
// name-based mappings to increase hit rates"): key and worker together are hashed to a weight, and the
// candidate with the highest one gets the request. A worker that leaves moves only its own keys, and
// nothing is remembered. The hash has no secret and no seed: every Weir process agrees on it.
//
// FNV-1a over the UTF-16 code units, finished by the 32-bit mixer of MurmurHash3, whose avalanche
// FNV lacks. Both are bijective in the state, so two workers tie on a key only by chance of 2^-32.

import { invariant } from "../model/invariant.js";
import type { Worker } from "../workers/worker.js";

const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/** The worker of a key among one or more; the lower url on a tie. */
export function workerOfKey(key: string, workers: readonly Worker[]): Worker {
  const keyState = absorb(mix(FNV_OFFSET), key);
  let best = workers[0];
  invariant(best !== undefined, "the worker of a key among no workers was asked for");
  let bestWeight = -1;
  for (const worker of workers) {
    const { url } = worker.identity;
    const weight = mix(absorb(mix(keyState), url));
    if (weight < bestWeight || (weight === bestWeight && url >= best.identity.url)) continue;
    best = worker;
    bestWeight = weight;
  }
  return best;
}

function absorb(state: number, text: string): number {
  let hash = state;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    hash = Math.imul(hash ^ (unit & 0xff), FNV_PRIME);
    hash = Math.imul(hash ^ (unit >>> 8), FNV_PRIME);
  }
  return hash;
}

function mix(state: number): number {
  let hash = state ^ (state >>> 16);
  hash = Math.imul(hash, 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
