// Turns the checked section `seeding` into what the core reads.

import type { SeedingConfig } from "../../core/model/config.js";
import { partitionName } from "../../core/model/ids.js";
import type { FileConfig } from "./schema.js";

/** The section as the core reads it. */
export function seedingConfig(section: FileConfig["seeding"]): SeedingConfig {
  return { ...section, partitions: section.partitions.map(partitionName) };
}
