// Where a secret key is found: an environment variable or a file, never the configuration itself. A
// refused place is not shown, because a key pasted there by mistake would stand in the log.

import { z } from "zod";

const NOT_SHOWN = "what stands there is not shown, because it may be the key itself";

/** Name of an environment variable that holds a key. */
export const keyVariable = hidden(
  "the name of an environment variable (1 to 256 letters, digits and _, no digit first)",
  (value) => /^[A-Za-z_][A-Za-z0-9_]{0,255}$/.test(value),
);

/** Path of a file that holds a key. */
export const keyFile = hidden("the path of a file (1 to 4096 characters, no controls)", (value) =>
  /^\P{Cc}{1,4096}$/u.test(value),
);

/** Text whose found value appears in no message: the sentence does not begin with "must". */
function hidden(what: string, accepts: (value: string) => boolean): z.ZodString {
  const error = `is not ${what}; ${NOT_SHOWN}`;
  return z.string({ error }).refine(accepts, { error });
}
