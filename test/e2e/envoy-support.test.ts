// Goal: the helper that runs Envoy for other tests tells the truth. Method: a bootstrap with one
// listener that answers by itself, so nothing but Envoy is tested.
import { expect } from "chai";
import { startEnvoy, type EnvoyProcess } from "../support/envoy.js";
import { request } from "../support/http-client.js";

const HCM =
  "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const STDOUT_LOG = "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog";
const ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const BOOTSTRAP = `
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
  - name: ingress
    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": ${HCM}
          stat_prefix: ingress
          access_log:
          - name: envoy.access_loggers.stdout
            typed_config:
              "@type": ${STDOUT_LOG}
              log_format: { json_format: { code: "%RESPONSE_CODE%", path: "%REQ(:PATH)%" } }
          route_config:
            virtual_hosts:
            - { name: all, domains: ["*"], routes: [{ match: { prefix: / }, direct_response: { status: 204 } }] }
          http_filters:
          - { name: envoy.filters.http.router, typed_config: { "@type": ${ROUTER} } }
`;

async function problemOf(promise: Promise<unknown>): Promise<string> {
  return await promise.then(
    () => "no problem",
    (error: unknown) => (error as Error).message,
  );
}

describe("Envoy for tests", () => {
  let envoy: EnvoyProcess;
  before(async () => {
    envoy = await startEnvoy(BOOTSTRAP);
  });
  after(async () => {
    await envoy.stop();
  });

  it("serves on the port it reports and counts what it served", async () => {
    const before = await envoy.stat("http.ingress.downstream_rq_completed");
    const answer = await request({ port: envoy.port, path: "/counted" });
    expect(answer.status).to.equal(204);
    const log = await envoy.waitForAccessLog(1);
    expect(log.at(-1)).to.deep.equal({ code: 204, path: "/counted" });
    expect(await envoy.stat("http.ingress.downstream_rq_completed")).to.equal(before + 1);
  });

  it("refuses to read a counter that does not exist as zero", async () => {
    expect(await problemOf(envoy.stat("http.ingress.mistyped"))).to.equal(
      "Envoy has no counter or gauge named http.ingress.mistyped",
    );
  });

  it("fails with Envoy's own words when the bootstrap is wrong", async () => {
    const problem = await problemOf(startEnvoy(BOOTSTRAP.replace("domains", "domanis")));
    expect(problem).to.include("Envoy did not start");
    expect(problem).to.include("domanis");
  });
});
