// Internet addresses in one spelling each. A tenant key and a peer list must not depend on how an
// address was written: `::ffff:1.2.3.4` is the client 1.2.3.4 on a dual-stack socket, and `::0001`
// is `::1`. Addresses are byte arrays of length 4 or 16; IPv4-mapped ones become length 4.

/** 4 or 16 bytes, most significant first. */
export type AddressBytes = readonly number[];

/** Longest text of an address: a full IPv6 with dotted tail is 45 characters; a zone adds some. */
const ADDRESS_MAX_CHARS = 64;
const OCTET = /^(?:0|[1-9][0-9]{0,2})$/;
const GROUP = /^[0-9a-fA-F]{1,4}$/;
const PORT = /^[0-9]{1,5}$/;
const ZONE = /%[0-9A-Za-z._-]{1,16}$/;

/** Reads `ip`, `ip:port`, `v6` or `[v6]:port`; undefined when it is anything else. */
export function parseEndpoint(text: string): AddressBytes | undefined {
  if (text.startsWith("[")) {
    const close = text.indexOf("]");
    if (close === -1 || !isPortSuffix(text.slice(close + 1))) return undefined;
    return parseV6(text.slice(1, close));
  }
  const colon = text.indexOf(":");
  if (colon !== -1 && colon === text.lastIndexOf(":")) {
    return isPortSuffix(text.slice(colon)) ? parseV4(text.slice(0, colon)) : undefined;
  }
  return parseAddress(text);
}

/** Reads a bare address; undefined when it is none. */
export function parseAddress(text: string): AddressBytes | undefined {
  return text.includes(":") ? parseV6(text) : parseV4(text);
}

/** Writes an address; IPv6 in the short form of RFC 5952. */
export function formatAddress(bytes: AddressBytes): string {
  if (bytes.length === 4) return bytes.join(".");
  const groups: number[] = [];
  for (let at = 0; at < 16; at += 2) groups.push(((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0));
  const { start, length } = longestZeroRun(groups);
  const hex = (part: readonly number[]): string =>
    part.map((group) => group.toString(16)).join(":");
  if (length < 2) return hex(groups);
  return `${hex(groups.slice(0, start))}::${hex(groups.slice(start + length))}`;
}

function isPortSuffix(text: string): boolean {
  return text === "" || (text.startsWith(":") && PORT.test(text.slice(1)));
}

function parseV4(text: string): AddressBytes | undefined {
  if (text.length > ADDRESS_MAX_CHARS) return undefined;
  const parts = text.split(".");
  if (parts.length !== 4) return undefined;
  const bytes: number[] = [];
  for (const part of parts) {
    if (!OCTET.test(part) || Number(part) > 255) return undefined;
    bytes.push(Number(part));
  }
  return bytes;
}

function parseV6(text: string): AddressBytes | undefined {
  if (text.length > ADDRESS_MAX_CHARS) return undefined;
  const halves = text.replace(ZONE, "").split("::");
  if (halves.length > 2) return undefined;
  const split = halves.length === 2;
  const head = parseGroups(halves[0] ?? "", { dottedTail: !split });
  const tail = split ? parseGroups(halves[1] ?? "", { dottedTail: true }) : [];
  if (head === undefined || tail === undefined) return undefined;
  const missing = 16 - head.length - tail.length;
  if (split ? missing < 2 : missing !== 0) return undefined;
  const bytes = [...head, ...new Array<number>(missing).fill(0), ...tail];
  const mapped = bytes.slice(0, 10).every((byte) => byte === 0) && bytes[10] === 255;
  return mapped && bytes[11] === 255 ? bytes.slice(12) : bytes;
}

/** Groups between colons as bytes; at the very end a dotted IPv4 may stand for two of them. */
function parseGroups(
  text: string,
  options: { readonly dottedTail: boolean },
): number[] | undefined {
  if (text === "") return [];
  const bytes: number[] = [];
  const parts = text.split(":");
  for (const [index, part] of parts.entries()) {
    if (options.dottedTail && index === parts.length - 1 && part.includes(".")) {
      const dotted = parseV4(part);
      if (dotted === undefined) return undefined;
      bytes.push(...dotted);
      continue;
    }
    if (!GROUP.test(part)) return undefined;
    const group = Number.parseInt(part, 16);
    bytes.push(group >> 8, group & 255);
  }
  return bytes;
}

function longestZeroRun(groups: readonly number[]): { start: number; length: number } {
  let best = { start: 0, length: 0 };
  let length = 0;
  for (const [index, group] of groups.entries()) {
    length = group === 0 ? length + 1 : 0;
    if (length > best.length) best = { start: index - length + 1, length };
  }
  return best;
}
