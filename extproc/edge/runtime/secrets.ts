// Secret numbers of this process, from the runtime's secure source; never from a seed.

import { randomFillSync } from "node:crypto";

/** Four unsigned 32-bit words. */
export function secretWords(): readonly [number, number, number, number] {
  const [a = 0, b = 0, c = 0, d = 0] = randomFillSync(new Uint32Array(4));
  return [a, b, c, d];
}
