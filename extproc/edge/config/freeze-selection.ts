// Turns where an engine publishes its KV events into the one spelling that sockets and messages use.
// What is absent gets no endpoint made up for it: without one for replay, what was missed stays missed.

import { invariant } from "../../core/model/invariant.js";
import type { KvEventsConfig } from "../../core/model/selection-config.js";
import { readTcpEndpoint } from "./addresses.js";
import type { FileConfig } from "./schema.js";

type KvEventsSection = FileConfig["workers"][number]["kv_events"];

/** The feed of one worker; undefined = its engine publishes nothing that is read. */
export function kvEventsConfig(section: KvEventsSection): KvEventsConfig | undefined {
  if (section === undefined) return undefined;
  const { replay_endpoint } = section;
  return {
    endpoint: endpoint(section.endpoint),
    replay_endpoint: replay_endpoint === undefined ? undefined : endpoint(replay_endpoint),
    topic: section.topic,
    ranks: section.ranks,
  };
}

function endpoint(text: string): string {
  const read = readTcpEndpoint(text);
  invariant(read !== undefined, `endpoint ${text} passed the schema`);
  return read.text;
}
