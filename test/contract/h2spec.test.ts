// Is the h2c server an HTTP/2 server? h2spec says so, case by case. Goal: every case passes, except for
// those in the table, each with its reason. The table is compared exactly, so that a new failure shows,
// and so does one that has gone. Without h2spec and without Go to build it the suite is left out with
// a message, but not where CI is set: there it fails.

import { expect } from "chai";
import { H2cTransport } from "../../extproc/edge/envoy/transport/h2c/h2c-transport.js";
import { BUILD_LIMIT_MS, findH2spec, runH2spec, type H2specResults } from "../support/h2spec.js";

const NO_BODY =
  "waits for DATA, and a request of h2spec (GET /) is answered by headers alone, as gRPC asks; " +
  "flow-control.test.ts and connection.test.ts test the same on calls that are answered";

/** What does not pass, and why that is right. */
const FAILED: Readonly<Record<string, string>> = {
  "generic/2: Sends a WINDOW_UPDATE frame on half-closed (remote) stream": NO_BODY,
  "generic/2: Sends a PRIORITY frame on half-closed (remote) stream": NO_BODY,
  "http2/5.1.2: Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded":
    "its requests are complete, so each is answered and gone before the next one: they are never open " +
    "at the same time. limits.test.ts holds 100,000 streams open and sees the next one refused",
};

/** What h2spec leaves out when an answer has no body. */
const SKIPPED: Readonly<Record<string, string>> = {
  "http2/6.5.3: Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE": NO_BODY,
  "http2/6.9.1: Sends SETTINGS frame to set the initial window size to 1 and sends HEADERS frame":
    NO_BODY,
  "http2/6.9.2: Changes SETTINGS_INITIAL_WINDOW_SIZE after sending HEADERS frame": NO_BODY,
  "http2/6.9.2: Sends a SETTINGS frame for window size to be negative": NO_BODY,
};

/** Cases of the release that is run. */
const CASES = 146;

const found = await findH2spec();
const wanted = "path" in found || process.env["CI"] !== undefined;
if (!wanted) process.stderr.write(`h2spec: left out. ${found.problem}\n`);

if (wanted) {
  describe("h2spec against the h2c server", () => {
    let results: H2specResults;
    const faults: unknown[] = [];

    before(async function () {
      this.timeout(BUILD_LIMIT_MS);
      if ("problem" in found) throw new Error(found.problem);
      const server = new H2cTransport(
        () => ({ message: () => undefined, closed: () => undefined }),
        { maxReceiveBytes: 1_000_000, onFault: (error) => faults.push(error) },
      );
      const address = await server.listen({ kind: "tcp", host: "127.0.0.1", port: 0 });
      try {
        results = await runH2spec(found.path, address.kind === "tcp" ? address.port : 0);
      } finally {
        await server.close(0);
      }
    });

    it("fails in the cases of the table, each with a reason, and in no other", () => {
      expect([...results.failed].sort()).to.deep.equal(Object.keys(FAILED).sort());
    });

    it("leaves out the cases of the table and no other", () => {
      expect([...results.skipped].sort()).to.deep.equal(Object.keys(SKIPPED).sort());
    });

    it("passes all the rest, and meets no fault of ours", () => {
      const { passed, failed, skipped } = results;
      expect(passed + failed.length + skipped.length).to.equal(CASES);
      expect(faults).to.deep.equal([]);
    });
  });
}
