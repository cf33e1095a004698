// From a request body to the facts that admission needs: which model, which partition, how it
// streams. Refuses what cannot be served at all, before it takes a place in any queue.

import type { Caller } from "../identity/caller.js";
import type { ModelNames } from "../identity/model-names.js";
import type { PartitionRules } from "../identity/partition.js";
import { choosePartition } from "../identity/partition.js";
import { producesOutputTokens, type Endpoint } from "../identity/paths.js";
import type { LocatedRoot } from "../identity/json-located.js";
import type { JsonReader } from "../identity/json-reader.js";
import { readPrompt } from "../identity/prompt.js";
import { readShape, shapeReader, type RequestShape } from "../identity/shape.js";
import type { ModelId, PartitionName } from "../model/ids.js";
import { reject, type Rejection } from "../model/rejection.js";
import type { AdmissionAsk } from "../scheduler/admission.js";
import type { AdmissionProof } from "../scheduler/admission-proof.js";
import { creditPlace } from "./credit-place.js";
import type { RequestHead } from "./heads.js";
import type { SelectionQuery } from "../selection/decision.js";
import type { HashedPrompt } from "../selection/ownership.js";
import type { WorkerSelector } from "../selection/selector.js";

export interface AdmissionPlan {
  readonly model: ModelId;
  readonly partition: PartitionName;
  readonly unknownPartitionHeader: boolean;
  readonly shape: RequestShape;
  /** What the choice of a worker keeps of the prompt; undefined when there is none, or not yet. */
  readonly prompt: HashedPrompt | undefined;
  /** Output that the request asks for at most, in tokens; undefined = no limit given. */
  readonly outputLimitTokens: number | undefined;
}

export interface AdmissionRules {
  readonly names: ModelNames;
  /** The model of a request that may name none, when only one is served. */
  readonly onlyModel: ModelId | undefined;
  readonly partitions: PartitionRules;
  readonly selector: WorkerSelector;
  readonly bodyLimitBytes: number;
}

export type Planned =
  | {
      readonly ok: true;
      /** As yet without the prompt. */
      readonly plan: AdmissionPlan;
      /**
       * Reads and hashes the prompt, which is most of the work on a body: to be called when nothing
       * but its prompt can refuse the request any more.
       */
      readonly withPrompt: () => AdmissionPlan;
    }
  | { readonly ok: false; readonly rejection: Rejection };

/** The model a proxy vouched for; it chooses the shares that apply, never the route. */
export function accountingModel(rules: AdmissionRules, caller: Caller): ModelId | undefined {
  const { requestModel } = caller;
  return requestModel.kind === "value" ? rules.names.canonical(requestModel.value) : undefined;
}

/** What a planned request asks of whoever admits it. */
export function admissionAsk<Request>(
  rules: AdmissionRules,
  request: Request,
  caller: Caller,
  { partition }: AdmissionPlan,
  proof: AdmissionProof | undefined,
): AdmissionAsk<Request> {
  return {
    request,
    partition,
    rank: caller.priority.effective,
    tenant: caller.tenant,
    model: accountingModel(rules, caller),
    estimateTokens: caller.estimate.tokens,
    proof,
  };
}

/** What the choice of a worker for a planned request goes by. */
export function workerQuery(plan: AdmissionPlan, caller: Caller): SelectionQuery {
  return {
    model: plan.model,
    partition: plan.partition,
    prompt: plan.prompt,
    outputLimitTokens: plan.outputLimitTokens,
    routingKey: caller.routingKey,
    targetWorkerUrl: caller.targetWorkerUrl,
    excludedWorkerUrls: caller.excludedWorkerUrls,
  };
}

/**
 * Largest body that is read in one step, in bytes: a millisecond at worst. Most requests are smaller,
 * and of the larger ones most are done in a few steps.
 */
export const ONE_STEP_MAX_BYTES = 65_536;

/**
 * The reader of a body that has to be read in steps, because other requests would wait for it;
 * undefined for a smaller body, and for one that is refused unread.
 */
export function steppedReader(rules: AdmissionRules, body: Uint8Array): JsonReader | undefined {
  const isLarge = body.length > ONE_STEP_MAX_BYTES && body.length <= rules.bodyLimitBytes;
  return isLarge ? shapeReader(body) : undefined;
}

/** Plans one inference request from its whole body, which the reader has read as far as it has. */
export function planAdmission(
  rules: AdmissionRules,
  caller: Caller,
  endpoint: Endpoint,
  reader: JsonReader,
): Planned {
  const { length } = reader.bytes;
  if (length > rules.bodyLimitBytes) {
    return { ok: false, rejection: bodyTooLarge(length, rules.bodyLimitBytes) };
  }
  if (caller.workerConstraintRefused) {
    return {
      ok: false,
      rejection: reject(
        "invalid_request",
        "the header that names or excludes workers is not one list of worker urls",
      ),
    };
  }
  const read = readShape(endpoint, reader);
  if (!read.ok) return read;
  const named = read.shape.model;
  const model = named === undefined ? rules.onlyModel : rules.names.canonical(named);
  if (model === undefined) return { ok: false, rejection: unknownModel(named) };
  const { partitions } = rules;
  const place =
    creditPlace(partitions, caller) ?? choosePartition(partitions, caller.partitionHint, model);
  if ("rejection" in place) return { ok: false, rejection: place.rejection };
  if (!rules.selector.isServed(model, place.partition)) {
    return {
      ok: false,
      rejection: reject(
        "model_not_found",
        `no worker of the partition "${place.partition}" serves the model "${model}"`,
      ),
    };
  }
  const planWith = (prompt: HashedPrompt | undefined): AdmissionPlan => ({
    model,
    partition: place.partition,
    unknownPartitionHeader: place.unknownHeader,
    shape: read.shape,
    prompt,
    outputLimitTokens: producesOutputTokens(endpoint) ? read.shape.outputLimitTokens : 0,
  });
  const withPrompt = (): AdmissionPlan =>
    planWith(hashedPrompt(rules.selector, model, endpoint, reader, read.root));
  return { ok: true, plan: planWith(undefined), withPrompt };
}

/** The prompt as the keys of its blocks: its text must not be kept for as long as the request waits. */
function hashedPrompt(
  selector: WorkerSelector,
  model: ModelId,
  endpoint: Endpoint,
  { bytes }: JsonReader,
  root: LocatedRoot,
): HashedPrompt | undefined {
  const content = readPrompt(endpoint, bytes, selector.promptLimits(model), root);
  return content === undefined ? undefined : selector.hash(model, content);
}

/** What the headers of an inference request alone make impossible. */
export function refusedByHead(head: RequestHead, bodyLimitBytes: number): Rejection | undefined {
  const { contentLength, contentEncoding, endOfStream } = head;
  if (contentLength !== undefined && contentLength > bodyLimitBytes) {
    return bodyTooLarge(contentLength, bodyLimitBytes);
  }
  if (contentEncoding !== undefined) {
    return reject(
      "invalid_request",
      `the request body must not be compressed, got content-encoding "${contentEncoding}"`,
    );
  }
  if (endOfStream) return reject("invalid_request", "the request has no body; JSON is expected");
  return undefined;
}

/** The refusal of a body over the limit; `bytes` is what arrived or was announced. */
function bodyTooLarge(bytes: number, limitBytes: number): Rejection {
  return reject(
    "body_too_large",
    `the request body has ${String(bytes)} bytes; at most ${String(limitBytes)} are allowed`,
  );
}

/** Characters of an unknown model's name that are repeated to the client. */
const QUOTED_NAME_MAX_CHARS = 200;

function unknownModel(named: string | undefined): Rejection {
  if (named === undefined) {
    return reject("invalid_request", 'the field "model" is missing and several models are served');
  }
  const quoted = named.slice(0, QUOTED_NAME_MAX_CHARS);
  return reject("model_not_found", `the model "${quoted}" is not served here`);
}
