// The text of a capacity credit's token: 32 random bytes as base64url without padding. The encoding is
// written here because the core has no Buffer. Possession of the text is the whole authority, so it never
// appears in a log line, a metric, an error or a page.

/** Random bytes of a token: nobody guesses 256 bits. */
export const TOKEN_BYTES = 32;

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/** 42 full characters and one that carries the last 4 bits: its 2 spare bits must be 0. */
const TOKEN = /^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/;

/**
 * Encodes bytes as base64url without padding. The text is made in one piece: one that grows by a
 * character at a time would be kept as a chain of its prefixes, ten times as large.
 */
export function encodeBase64Url(bytes: Uint8Array): string {
  const codes: number[] = [];
  let pending = 0;
  let bits = 0;
  for (const byte of bytes) {
    pending = (pending << 8) | byte;
    bits += 8;
    while (bits >= 6) {
      bits -= 6;
      codes.push(ALPHABET.charCodeAt((pending >> bits) & 63));
    }
    pending &= (1 << bits) - 1;
  }
  if (bits > 0) codes.push(ALPHABET.charCodeAt((pending << (6 - bits)) & 63));
  return String.fromCharCode(...codes);
}

/** True for the one text that 32 bytes have; anything else never was a token. */
export function isCreditToken(text: string): boolean {
  return TOKEN.test(text);
}
