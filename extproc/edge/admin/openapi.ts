// The OpenAPI 3.1 document of the admin port: the capacity-credit API and the pages that are only read. The
// schemas are those that check the requests, so the document cannot promise something else; only the
// policy epoch is written out here, because its number form cannot be said in a schema of text.

import { z } from "zod";
import { CREDITS_PATH } from "./credit-routes.js";
import { codesOf } from "./credit-errors.js";
import {
  armed,
  armRequest,
  capabilities,
  creditToken,
  errorBody,
  issued,
  issueRequest,
  policyEpoch,
} from "./credit-schemas.js";

type Described = Readonly<Record<string, unknown>>;

const JSON_TYPE = "application/json";
const MEANINGS: Readonly<Record<number, string>> = {
  400: "The body, a field of it, the tenant header or the credit is not valid.",
  401: "The service key is missing or wrong.",
  404: "Capacity credits are off.",
  409: "The credit or the request id is not what the caller takes it for.",
  413: "The body is too large.",
  415: "The body is not application/json.",
  429: "The partition has no free slot now.",
  500: "A fault of Weir's, or its service key cannot be read.",
  503: "The process is stopping.",
};
const RETRY_AFTER = {
  "retry-after": {
    description: "Whole seconds after which coming again may help.",
    schema: { type: "integer", minimum: 1 },
  },
};
const CREDIT = {
  name: "credit",
  in: "path",
  required: true,
  description: "The token of the credit.",
  schema: jsonSchema(creditToken),
};

/** @param tenantHeader the trusted header that names the tenant */
export function openApiDocument(tenantHeader: string): object {
  return {
    openapi: "3.1.0",
    info: {
      title: "Weir admin port",
      version: "1",
      description:
        "Capacity credits for an external allocator, and pages about the state of the process.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    paths: { ...creditPaths(tenantHeader), ...pagePaths() },
    components: {
      schemas: {
        Capabilities: jsonSchema(capabilities),
        IssueRequest: jsonSchema(issueRequest),
        Issued: jsonSchema(issued),
        ArmRequest: jsonSchema(armRequest),
        Armed: jsonSchema(armed),
      },
      securitySchemes: {
        serviceKey: { type: "http", scheme: "bearer", description: "The allocator's service key." },
      },
    },
  };
}

function creditPaths(tenantHeader: string): Described {
  const tenant = {
    name: tenantHeader,
    in: "header",
    required: true,
    description: "The tenant whose request the credit is for; read from a trusted peer only.",
    schema: { type: "string", minLength: 1 },
  };
  const base = { tags: ["capacity credits"], security: [{ serviceKey: [] }] };
  return {
    [`${CREDITS_PATH}/capabilities`]: {
      get: {
        ...base,
        operationId: "capabilities",
        summary: "What this API can do.",
        responses: { 200: success("Capabilities", "The versions."), ...errors([401, 404, 500]) },
      },
    },
    [CREDITS_PATH]: {
      post: {
        ...base,
        operationId: "issue",
        summary: "Takes a slot for a request to come, at once or not at all.",
        parameters: [tenant],
        requestBody: body("IssueRequest"),
        responses: {
          200: success("Issued", "The credit, or the same one again."),
          ...errors([400, 401, 404, 413, 415, 500]),
          409: error(409, RETRY_AFTER),
          429: error(429, RETRY_AFTER),
          503: error(503, RETRY_AFTER),
        },
      },
    },
    [`${CREDITS_PATH}/{credit}/arm`]: {
      post: {
        ...base,
        operationId: "arm",
        summary: "Gives a credit its life once more, for one dispatch.",
        parameters: [CREDIT, tenant],
        requestBody: body("ArmRequest"),
        responses: {
          200: success("Armed", "It is armed, now or by an earlier call of the same dispatch."),
          ...errors([400, 401, 404, 409, 413, 415, 500]),
          503: error(503, RETRY_AFTER),
        },
      },
    },
    [`${CREDITS_PATH}/{credit}`]: {
      delete: {
        ...base,
        operationId: "cancel",
        summary: "Gives the slot of an active credit back; any other token changes nothing.",
        parameters: [CREDIT],
        responses: {
          204: { description: "Done, or there was nothing to do." },
          ...errors([400, 401, 500]),
          404: { description: MEANINGS[404] },
        },
      },
    },
  };
}

function pagePaths(): Described {
  const page = (operationId: string, summary: string, responses: Described, more = {}): object => ({
    get: { tags: ["pages"], operationId, summary, security: [], responses, ...more },
  });
  const text = (description: string): object => ({
    description,
    content: { "text/plain": { schema: { type: "string" } } },
  });
  const json = (description: string): object => ({
    description,
    content: { [JSON_TYPE]: { schema: { type: "object" } } },
  });
  const tenant = {
    name: "tenant",
    in: "query",
    description: "The key of the one tenant to show.",
    schema: { type: "string" },
  };
  return {
    "/healthz": page("healthz", "Does the process run?", { 200: text("It does.") }),
    "/readyz": page("readyz", "Can it serve new requests?", {
      200: text("It can."),
      503: text("Not now."),
    }),
    "/metrics": page("metrics", "Metrics for Prometheus.", { 200: text("All metrics.") }),
    "/state": page("state", "Workers, partitions, and what is in flight.", {
      200: json("The state."),
    }),
    "/state/fair-share": page(
      "fairShare",
      "Standing of the tenants, and who is next.",
      { 200: json("The shares.") },
      { parameters: [tenant] },
    ),
    "/state/admission": page("admission", "What was learned from the engines.", {
      200: json("The limits."),
    }),
    "/state/selection": page("selection", "How workers are chosen, and what their caches hold.", {
      200: json("The choices, and what is known of each worker."),
    }),
    "/state/seeding": page("seeding", "Seeds under way, and the room of each worker for one.", {
      200: json("Leases, guarded prefixes, room, and counts since the start."),
    }),
    "/openapi.json": page("openApi", "This document.", { 200: json("The document.") }),
  };
}

/** Draft 2020-12, which OpenAPI 3.1 speaks. */
function jsonSchema(schema: z.ZodType): Described {
  const made = z.toJSONSchema(schema, {
    io: "input",
    target: "draft-2020-12",
    override: ({ zodSchema, jsonSchema: epoch }) => {
      if (zodSchema !== policyEpoch) return;
      const { type, pattern } = epoch;
      delete epoch.type;
      delete epoch.pattern;
      epoch.anyOf = [
        { type: "integer", format: "uint64", minimum: 0 },
        { type: type ?? "string", pattern: pattern ?? "" },
      ];
    },
  });
  // The document says itself which dialect its schemas speak.
  delete made.$schema;
  return { ...made };
}

function body(schema: string): object {
  return { required: true, content: content(schema) };
}

function success(schema: string, description: string): object {
  return { description, content: content(schema) };
}

function content(schema: string): object {
  return { [JSON_TYPE]: { schema: { $ref: `#/components/schemas/${schema}` } } };
}

function errors(statuses: readonly number[]): Described {
  return Object.fromEntries(statuses.map((status) => [status, error(status)]));
}

function error(status: number, headers: object = {}): object {
  return {
    description: MEANINGS[status],
    headers,
    content: { [JSON_TYPE]: { schema: jsonSchema(errorBody(codesOf(status))) } },
  };
}
