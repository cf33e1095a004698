/** A broken invariant: a bug in Weir, never the fault of a request or of a configuration. */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

/**
 * Asserts what must always hold. It is the only way in which the core throws; the edge answers 503
 * and logs.
 */
export function invariant(condition: boolean, message: string): asserts condition {
  if (!condition) throw new InvariantError(message);
}

/** Ends an exhaustive switch: reaching it is a compile-time error first, an invariant after that. */
export function assertNever(value: never, what: string): never {
  throw new InvariantError(`unexpected ${what}: ${String(value)}`);
}
