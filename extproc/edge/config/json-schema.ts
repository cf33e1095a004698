// The JSON Schema of weir.yaml, for editors and for checks in a pipeline. It is made from the schema
// that the loader uses. Rules across keys and the grammar inside some texts cannot be said in it:
// what it accepts, the loader may still refuse, never the other way round.

import { z } from "zod";
import { configSchema } from "./schema.js";

/** JSON Schema (draft 2020-12) of what a person writes, defaults and descriptions included. */
export function configJsonSchema(): object {
  return {
    title: "weir.yaml",
    ...z.toJSONSchema(configSchema, { io: "input", target: "draft-2020-12" }),
  };
}
