// Turns the checked section `credits` into what the core and the API read.

import type { CreditsConfig } from "../../core/model/config.js";
import type { FileConfig } from "./schema.js";

/** The section as the core reads it. */
export function creditsConfig(section: FileConfig["credits"]): CreditsConfig {
  const { generation, ttl_ms, terminal_retention_secs, required } = section;
  return {
    generation,
    ttl_ms,
    terminal_retention_secs,
    required,
    service_key: serviceKey(section),
  };
}

function serviceKey(section: FileConfig["credits"]): CreditsConfig["service_key"] {
  const { service_key_env: name, service_key_file: path } = section;
  if (name !== undefined) return { kind: "env", name };
  return path === undefined ? undefined : { kind: "file", path };
}
