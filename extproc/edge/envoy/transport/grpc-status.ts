// The gRPC status codes Weir's own servers end a call with, and the text Envoy logs beside each.
// Numbers are those of the gRPC protocol.

export const OK = 0;
export const NOT_FOUND = 5;
export const RESOURCE_EXHAUSTED = 8;
export const UNIMPLEMENTED = 12;
export const INTERNAL = 13;
export const UNAVAILABLE = 14;

/** Every status that is used; plain ASCII without `%`, so that no text needs escaping. */
export const STATUS_TEXTS: ReadonlyMap<number, string> = new Map([
  [OK, ""],
  [NOT_FOUND, "unknown service"],
  [RESOURCE_EXHAUSTED, "a message is larger than this server takes"],
  [UNIMPLEMENTED, "unknown method, or a compressed message"],
  [INTERNAL, "the stream cannot go on"],
  [UNAVAILABLE, "the server is shutting down"],
]);
