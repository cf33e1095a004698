// The sections that describe the doors: where Weir listens, how Envoy is set up, and the
// administration interface. They only matter at start and to the bootstrap writer.

import { isIP } from "node:net";
import { z } from "zod";
import { readHostPort, readListenAddress } from "./addresses.js";
import { DEFAULTS } from "./defaults.js";
import { duration, list, mapping, oneOf, text, whole } from "./fields.js";

const ENVOY = DEFAULTS.envoy;

/** Filters that stand before ext_proc; more than a handful is a mistake. */
const FILTERS_MAX = 16;
/** Identity sources; every namespace travels in every message, so few. */
const IDENTITY_SOURCES_MAX = 8;
/** Depth of a claim; more is a mistake. */
const IDENTITY_PATH_MAX = 8;
/** Names the bootstrap itself uses for its filters. */
const OWN_FILTERS = ["envoy.filters.http.ext_proc", "envoy.filters.http.router"];

const listenAddress = text(
  "host:port (IPv6 in brackets, port 1 to 65535) or unix:/absolute/path",
  (value) => readListenAddress(value) !== undefined,
);
const tcpAddress = text(
  "host:port (IPv6 in brackets, port 1 to 65535)",
  (value) => readHostPort(value) !== undefined,
);
const ipAddress = text("an IP address", (value) => isIP(value) !== 0 && !value.includes("%"));
const file = text("the path of a file Envoy can read", (value) =>
  /^[^\s\0][^\0]{0,1023}$/.test(value),
);
const port = whole(1, 65_535);
const filledText = text("text that is not empty", (value) => value.trim() !== "");

const PATH_ALLOWED = "keys with dots between them, or a list of keys";
const PATH_ERROR = { error: `must be ${PATH_ALLOWED}` };
const identityPath = z
  .union(
    [
      text(PATH_ALLOWED, (value) => value.split(".").every((step) => step !== "")),
      z
        .array(z.string(PATH_ERROR).min(1, PATH_ERROR), PATH_ERROR)
        .min(1, PATH_ERROR)
        .max(IDENTITY_PATH_MAX, PATH_ERROR),
    ],
    PATH_ERROR,
  )
  .describe("Keys from the namespace down to a string: claims.sub or [claims, sub].");

const filter = z.looseObject(
  {
    name: text(
      `the name of a filter other than ${OWN_FILTERS.join(" and ")}`,
      (value) => value.trim() !== "" && !OWN_FILTERS.includes(value),
    ).describe("Name of the filter in Envoy."),
  },
  {
    error: (issue) =>
      issue.code === "invalid_type" ? "must be an HTTP filter: name and typed_config" : undefined,
  },
);

export const listenSection = mapping({
  ext_proc: listenAddress
    .default(DEFAULTS.listen.ext_proc)
    .describe("Where Weir takes ext_proc streams from Envoy."),
  transport: oneOf(["auto", "h2c", "http2", "grpc_js"])
    .default(DEFAULTS.listen.transport)
    .describe("Which server carries the streams; auto: h2c on this host, http2 otherwise."),
});

export const adminSection = mapping({
  listen: tcpAddress
    .default(DEFAULTS.admin.listen)
    .describe("Where health, readiness, metrics and state are served over HTTP."),
  log_level: oneOf(["trace", "debug", "info", "warn", "error"])
    .default(DEFAULTS.admin.log_level)
    .describe("Least severe log lines that are written."),
});

export const envoySection = mapping({
  address: ipAddress.default(ENVOY.address).describe("Address clients reach."),
  port: port.default(ENVOY.port).describe("Port clients reach."),
  admin_address: ipAddress.default(ENVOY.admin_address).describe("Address of Envoy's admin."),
  admin_port: port.default(ENVOY.admin_port).describe("Port of Envoy's admin interface."),
  ext_proc_target: listenAddress
    .optional()
    .describe("Where Envoy finds Weir, when that is not listen.ext_proc as written."),
  trusted_hops: whole(0, 10)
    .default(ENVOY.trusted_hops)
    .describe("Proxies in front of Envoy whose X-Forwarded-For entries are believed."),
  message_timeout: duration("200ms", "60s")
    .default(ENVOY.message_timeout)
    .describe("How long Envoy waits for an answer of Weir that asked for no more time."),
  max_message_timeout: duration("6s", "120m")
    .optional()
    .describe(
      "Most time Envoy lets Weir hold a request; the longest queue timeout + 5 s, or more.",
    ),
  stream_idle_timeout: duration("306s", "1440m")
    .optional()
    .describe("Longest silence of a request; the longest queue timeout + 305 s, or more."),
  request_timeout: duration("1s", "60m")
    .default(ENVOY.request_timeout)
    .describe("How long a client may take to send its whole request."),
  http_filters_before: list(filter, FILTERS_MAX)
    .default([...ENVOY.http_filters_before])
    .describe("HTTP filters written before ext_proc as they stand, for instance jwt_authn."),
  identity_metadata: list(
    mapping({
      namespace: filledText.describe("Namespace of Envoy's dynamic metadata."),
      path: identityPath,
    }),
    IDENTITY_SOURCES_MAX,
  )
    .default([...ENVOY.identity_metadata])
    .describe("Where an authenticated caller stands in Envoy's dynamic metadata, in order."),
  tls: mapping({
    certificate_file: file.describe("Certificate chain of the listener (PEM)."),
    private_key_file: file.describe("Private key of the certificate (PEM)."),
    client_ca_file: file
      .optional()
      .describe("Authority that client certificates must come from; set = they are required."),
  })
    .optional()
    .describe("TLS for clients; absent = plain HTTP."),
});
