// Who may import whom? The rules of the house as a tool checks them (`npm run arch`):
//   - core is pure, and a room of it imports only the rooms listed above it;
//   - an edge imports core, telemetry and runtime, never another edge; nothing imports the roof;
//   - each foreign library is seen by the one edge it belongs to;
//   - envoy/ (demo and mock worker) knows nothing of extproc/ and runs on Node alone, but for the mock's
//     publisher of KV events;
//   - tests may import everything, and nothing imports tests.
// rules.test.ts plants one fault for each rule and sees it fire.

/** Rooms of extproc/core in their order. */
const ROOMS = [
  "model",
  "identity",
  "workers",
  "capacity",
  "fairshare",
  "scheduler",
  "prefixes",
  "selection",
  "seeding",
  "settlement",
  "request",
];

/** A rule against imports from `from` to `to`; each is a regular expression or a condition. */
function forbid(name, comment, from, to) {
  return { name, comment, severity: "error", from, to };
}

/** A rule that keeps some packages to the files of one edge. */
function keep(name, packages, home) {
  return forbid(
    name,
    `${packages.join(", ")}: only ${home} may import it`,
    { path: "^extproc/", pathNot: `^${home}` },
    { path: `node_modules/(${packages.join("|")})/` },
  );
}

const roomOrder = ROOMS.slice(0, -1).map((room, index) =>
  forbid(
    `${room}-imports-only-rooms-above`,
    "a room of core imports only rooms listed above it",
    { path: `^extproc/core/${room}/` },
    { path: `^extproc/core/(${ROOMS.slice(index + 1).join("|")})/` },
  ),
);

module.exports = {
  forbidden: [
    forbid(
      "core-is-pure",
      "core imports core only: no package, no node: module, no edge",
      { path: "^extproc/core/" },
      { pathNot: "^extproc/core/" },
    ),
    forbid(
      "core-has-no-other-room",
      "a new room needs its place in the order",
      { path: `^extproc/core/(?!(${ROOMS.join("|")})/)` },
      {},
    ),
    forbid(
      "edges-do-not-know-each-other",
      "edges meet in the composition root",
      { path: "^extproc/edge/([^/]+)/" },
      { path: "^extproc/edge/", pathNot: "^extproc/edge/($1|telemetry|runtime)/" },
    ),
    forbid(
      "nothing-imports-the-roof",
      "app.ts and main.ts are the top",
      { path: "^extproc/(core|edge)/" },
      { path: "^extproc/[^/]+\\.ts$" },
    ),
    keep(
      "only-envoy-edge-touches-grpc",
      ["@grpc", "google-protobuf", "grpc-health-check"],
      "extproc/edge/envoy/",
    ),
    keep(
      "only-telemetry-touches-prom-and-pino",
      ["prom-client", "pino"],
      "extproc/edge/telemetry/",
    ),
    keep("only-config-and-admin-touch-zod", ["zod"], "extproc/edge/(config|admin)/"),
    keep(
      "only-config-and-bootstrap-touch-yaml",
      ["yaml"],
      "extproc/edge/(config/|envoy/bootstrap[^/]*\\.ts$)",
    ),
    forbid(
      "envoy-knows-nothing-of-extproc",
      "the demo and the mock worker stand for the outside world",
      { path: "^envoy/" },
      { path: "^extproc/" },
    ),
    forbid(
      "envoy-runs-on-node-alone",
      "set-up and mock worker need no package; only publishing KV events takes ZeroMQ",
      { path: "^envoy/", pathNot: "^envoy/mock-worker/kv-publisher\\.ts$" },
      { path: "node_modules/" },
    ),
    forbid(
      "source-never-imports-tests",
      "test code is not shipped",
      { path: "^(extproc|envoy)/" },
      { path: "^test/" },
    ),
    forbid("no-circular", "a circle has no order to read it in", {}, { circular: true }),
    forbid("no-unresolvable", "an import that leads nowhere", {}, { couldNotResolve: true }),
    forbid(
      "no-dev-dep-in-source",
      "production installs have no development packages",
      { path: "^extproc/" },
      { dependencyTypes: ["npm-dev"], dependencyTypesNot: ["type-only"] },
    ),
    ...roomOrder,
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    doNotFollow: { path: "node_modules" },
    exclude: { path: "^test/fixtures/" },
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["import", "require", "node", "types", "default"],
    },
  },
};
