// The cipher under which prompts are remembered: AES-128 in CBC mode of the runtime's own library, which
// uses the processor's instructions for it, and the runtime's way of writing a text as bytes.

import { createCipheriv } from "node:crypto";
import { CIPHER_BYTES, type PrefixCipher } from "../../core/prefixes/cbc-mac.js";

/** Bytes of a key. */
export const PREFIX_KEY_BYTES = 16;

/** @param key PREFIX_KEY_BYTES secret bytes */
export function createPrefixCipher(key: Uint8Array): PrefixCipher {
  const cipher = createCipheriv("aes-128-cbc", key, new Uint8Array(CIPHER_BYTES));
  cipher.setAutoPadding(false);
  return {
    encrypt: (bytes) => cipher.update(bytes),
    write: (text, encoding, into, at) => {
      Buffer.from(into.buffer, into.byteOffset, into.length).write(text, at, encoding);
    },
  };
}
