// Which ports does the demo take? The usual ones, or a family that begins at WEIR_PORT_BASE so that
// a second copy, or a host that has the usual ones in use, can have its own. The numbers are the
// same that `weir demo` writes into its configuration.
import { createServer } from "node:net";

/** Highest base that leaves room for the last port of the family, base + 13. */
const LAST_BASE = 65_535 - 13;

/**
 * `{ base, ports }`: ports is a list of { name, port } in the order envoy, envoyAdmin, weirAdmin,
 * extProc, worker1 to worker3, each with what it is `for`. Throws when the base is no port.
 */
export function demoPorts(baseText) {
  if (baseText === undefined || baseText === "") {
    return { base: undefined, ports: family([10_000, 9901, 9190, 9002, 8101, 8102, 8103]) };
  }
  const base = Number(baseText);
  if (!/^\d+$/.test(baseText) || base < 1 || base > LAST_BASE) {
    throw new Error(
      `WEIR_PORT_BASE=${baseText}: must be a whole number from 1 to ${LAST_BASE}, for base + 13 is used`,
    );
  }
  return { base, ports: family([0, 1, 2, 3, 11, 12, 13].map((offset) => base + offset)) };
}

function family([envoy, envoyAdmin, weirAdmin, extProc, ...workers]) {
  return [
    { name: "envoy", port: envoy, for: "Envoy" },
    { name: "envoyAdmin", port: envoyAdmin, for: "Envoy's admin page" },
    { name: "weirAdmin", port: weirAdmin, for: "Weir's admin page" },
    { name: "extProc", port: extProc, for: "Weir's ext_proc server" },
    ...workers.map((port, index) => {
      return { name: `worker${index + 1}`, port, for: `mock worker ${index + 1}` };
    }),
  ];
}

/** Rejects naming each port that cannot be listened on, what it is for, and the way out. */
export async function requireFreePorts(ports) {
  const problems = [];
  for (const entry of ports) {
    const code = await tryToListen(entry.port);
    if (code === undefined) continue;
    const what = code === "EADDRINUSE" ? "is in use" : `cannot be used (${code})`;
    problems.push(`port ${entry.port} (${entry.for}) ${what}`);
  }
  if (problems.length === 0) return;
  const way =
    "Stop what listens there, or set WEIR_PORT_BASE=B to use the ports B to B+3 and B+11 to B+13.";
  throw new Error([...problems, way].join("\n"));
}

/** The error code of listening on 127.0.0.1:`port`; undefined when it works. */
function tryToListen(port) {
  return new Promise((done) => {
    const server = createServer();
    server.once("error", (error) => done(error.code));
    server.listen({ host: "127.0.0.1", port, exclusive: true }, () => {
      server.close(() => done(undefined));
    });
  });
}
