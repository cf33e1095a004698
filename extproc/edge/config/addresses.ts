// Reads the small grammars inside values: listener addresses, worker URLs, TCP endpoints, peers, durations, tenant
// keys and header names. Each reader returns the value or undefined and never throws; the schema turns
// undefined into a message that says what is allowed.

import { isIP } from "node:net";
import { formatAddress, parseAddress } from "../../core/identity/address.js";
import { refusal } from "../../core/identity/trusted-header.js";
import type { ListenAddress } from "../../core/model/config.js";

/** Longest path of a unix socket on Linux (108 bytes with the closing zero). */
const UNIX_PATH_MAX_BYTES = 107;
const HOST_NAME = /^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$/;
const HOST_PORT = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+)):(\d{1,5})$/;

/** Where something else can be connected to; `text` is its one spelling, `tcp://host:port`. */
export interface TcpEndpoint {
  readonly host: string;
  readonly port: number;
  readonly text: string;
}

/** `127.0.0.1:9002`, `[::1]:9002`, `localhost:9002` or `unix:/run/weir.sock`. */
export function readListenAddress(text: string): ListenAddress | undefined {
  if (text.startsWith("unix:")) {
    const path = text.slice("unix:".length);
    const fits = new TextEncoder().encode(path).length <= UNIX_PATH_MAX_BYTES;
    return /^\/[^\s/]/.test(path) && !path.includes("\0") && fits
      ? { kind: "unix", path }
      : undefined;
  }
  return readHostPort(text);
}

/** True when only processes of this host can connect: a unix socket, or a loopback address. */
export function isLocal(address: ListenAddress): boolean {
  if (address.kind === "unix" || address.host === "localhost") return true;
  return address.host === "::1" || (isIP(address.host) === 4 && address.host.startsWith("127."));
}

/** `host:port` with a port from 1 to 65535; IPv6 in brackets. */
export function readHostPort(
  text: string,
): { readonly kind: "tcp"; readonly host: string; readonly port: number } | undefined {
  const match = HOST_PORT.exec(text);
  if (match === null) return undefined;
  const [, bracketed, plain, digits] = match;
  const port = Number(digits);
  if (port < 1 || port > 65_535) return undefined;
  if (bracketed !== undefined) {
    return isIP(bracketed) === 6 ? { kind: "tcp", host: canonicalIp6(bracketed), port } : undefined;
  }
  const host = (plain ?? "").toLowerCase();
  // Digits and dots alone must be a whole IPv4 address: 127.1 is a typing error, not a name.
  const sound = /^[\d.]+$/.test(host) ? isIP(host) === 4 : HOST_NAME.test(host);
  return sound ? { kind: "tcp", host, port } : undefined;
}

function canonicalIp6(address: string): string {
  return new URL(`http://[${address}]`).hostname.slice(1, -1);
}

/** `http://host:port` in one spelling (lower case, no slash at the end), undefined when it is not. */
export function readWorkerUrl(text: string): string | undefined {
  if (!/^http:\/\//i.test(text)) return undefined;
  const address = readHostPort(text.slice("http://".length).replace(/\/$/, ""));
  if (address === undefined) return undefined;
  const host = address.host.includes(":") ? `[${address.host}]` : address.host;
  return `http://${host}:${String(address.port)}`;
}

/** `tcp://host:port` in one spelling (lower case), undefined when it is not. */
export function readTcpEndpoint(text: string): TcpEndpoint | undefined {
  if (!/^tcp:\/\//i.test(text)) return undefined;
  const address = readHostPort(text.slice("tcp://".length));
  if (address === undefined) return undefined;
  const { host, port } = address;
  const written = host.includes(":") ? `[${host}]` : host;
  return { host, port, text: `tcp://${written}:${String(port)}` };
}

/** A single address, a CIDR, or an exact SPIFFE id with a path. */
export function isPeer(text: string): boolean {
  if (text.startsWith("spiffe://")) {
    return /^spiffe:\/\/[a-z0-9._-]{1,255}(\/[A-Za-z0-9._-]+)+$/.test(text);
  }
  const [address = "", bits, more] = text.split("/");
  const version = isIP(address);
  if (version === 0 || address.includes("%") || more !== undefined) return false;
  if (bits === undefined) return true;
  // Shorter than the prefix of mapped addresses, it would cover IPv4 peers or none by accident.
  if (/^::ffff:/i.test(address) && Number(bits) < 96) return false;
  return /^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128);
}

const UNIT_MS = { ms: 1, s: 1000, m: 60_000 } as const;

/** `500ms`, `2s`, `1.5s` or `1m` in milliseconds; undefined when it is not a duration. */
export function readDurationMs(text: string): number | undefined {
  const match = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m)$/.exec(text);
  if (match === null) return undefined;
  return Math.round(Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS]);
}

/**
 * True for a key that a request can have: `auth:<id>`, `header:<id>`, `ip:<address>` in its one
 * spelling, or `anonymous`. A key in another spelling would silently apply to nobody.
 */
export function isTenantKey(text: string): boolean {
  if (text === "anonymous") return true;
  const colon = text.indexOf(":");
  const id = text.slice(colon + 1);
  switch (text.slice(0, Math.max(0, colon))) {
    case "auth":
      return refusal(id, { commas: true }) === undefined;
    case "header":
      return refusal(id, { commas: false }) === undefined;
    case "ip": {
      const address = parseAddress(id);
      return address !== undefined && formatAddress(address) === id;
    }
    default:
      return false;
  }
}

/** Headers that mean something to HTTP, to Envoy or to Weir and so cannot name a tenant. */
const TAKEN_HEADERS = new Set(
  (
    "host authorization cookie set-cookie connection keep-alive te trailer transfer-encoding upgrade " +
    "expect user-agent date server via forwarded origin referer range cache-control pragma " +
    "if-match if-none-match if-modified-since if-unmodified-since if-range x-request-id x-api-key"
  ).split(" "),
);
const TAKEN_PREFIXES = [
  "accept",
  "content-",
  "proxy-",
  "x-envoy-",
  "x-forwarded-",
  "x-gateway-",
  "x-llm-d-",
  "x-smg-",
  "x-weir-",
];
const TENANT_HEADERS = new Set([
  "x-weir-tenant-id",
  "x-smg-tenant-id",
  "x-gateway-inference-fairness-id",
  "x-llm-d-inference-fairness-id",
]);

/** True for a header name that may carry the tenant, in any case of letters. */
export function isTenantHeaderName(text: string): boolean {
  const name = text.toLowerCase();
  if (!/^[a-z0-9][a-z0-9-]{0,63}$/.test(name)) return false;
  if (TENANT_HEADERS.has(name)) return true;
  return !TAKEN_HEADERS.has(name) && !TAKEN_PREFIXES.some((prefix) => name.startsWith(prefix));
}
