// The bootstrap as Envoy would read it: the YAML is parsed again and looked at by path. Expected
// values follow from the configuration beside them.

import { expect } from "chai";
import { parse, parseDocument } from "yaml";
import { earlyStrip } from "../../../extproc/core/identity/control-headers.js";
import { formatProblem } from "../../../extproc/edge/config/problem.js";
import { loadConfig } from "../../../extproc/edge/config/load.js";
import { bootstrapYaml } from "../../../extproc/edge/envoy/bootstrap.js";
import type { WeirConfig } from "../../../extproc/core/model/config.js";

const WORKER = `workers: [{ url: "http://10.0.0.1:8101", cluster: worker_1, models: [m] }]\n`;

function configOf(text: string): WeirConfig {
  const loaded = loadConfig({ text, file: "weir.yaml", env: {}, flags: [] });
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join("\n"));
  return loaded.config;
}

/** The value at a path such as `static_resources.listeners.0.name`. */
function at(value: unknown, path: string): unknown {
  return path
    .split("/")
    .reduce<unknown>(
      (inner, step) => (inner as Record<string, unknown> | undefined)?.[step],
      value,
    );
}

const written = (text: string): unknown => parse(bootstrapYaml(configOf(text)));

const CHAIN = "static_resources/listeners/0/filter_chains/0";
const managerOf = (text: string): unknown => at(written(text), `${CHAIN}/filters/0/typed_config`);
const filtersOf = (text: string): readonly { readonly name: string }[] =>
  at(managerOf(text), "http_filters") as { name: string }[];
const extProcOf = (text: string): unknown =>
  at(
    filtersOf(text).find(({ name }) => name === "envoy.filters.http.ext_proc"),
    "typed_config",
  );
const clustersOf = (text: string): readonly Record<string, unknown>[] =>
  at(written(text), "static_resources/clusters") as Record<string, unknown>[];
const removedOf = (text: string): string[] => {
  const path = "early_header_mutation_extensions/0/typed_config/mutations";
  const mutations = at(managerOf(text), path) as readonly { readonly remove?: string }[];
  return mutations.flatMap(({ remove }) => (remove === undefined ? [] : [remove]));
};

describe("the Envoy bootstrap", () => {
  it("is YAML without aliases, names its source and explains itself", () => {
    const text = bootstrapYaml(configOf(WORKER), "envoy/demo.weir.yaml");
    expect(text).to.match(/^# Envoy 1\.40 bootstrap, written by: weir bootstrap -c envoy\/demo/);
    expect(parseDocument(text).errors).to.deep.equal([]);
    expect(text).not.to.match(/[&*]a1/);
    for (const key of ["use_remote_address", "failure_mode_allow", "cluster_header"]) {
      expect(text, key).to.match(new RegExp(`# .*\\n *${key}:`));
    }
  });

  it("listens where the configuration says, admin included", () => {
    const bootstrap = written(`${WORKER}envoy: { address: 0.0.0.0, port: 81, admin_port: 82 }`);
    expect(at(bootstrap, "static_resources/listeners/0/address/socket_address")).to.deep.equal({
      address: "0.0.0.0",
      port_value: 81,
    });
    expect(at(bootstrap, "admin/address/socket_address")).to.deep.equal({
      address: "127.0.0.1",
      port_value: 82,
    });
  });

  it("computes the hold from the longest queue timeout: +5 s for a message, +305 s for silence", () => {
    // Class bulk waits longest, up to 300 s.
    expect(at(extProcOf(WORKER), "max_message_timeout")).to.equal("305s");
    expect(at(managerOf(WORKER), "stream_idle_timeout")).to.equal("605s");
    const limiter = `${WORKER}scheduler: { enabled: false, queue_timeout_secs: 7 }`;
    expect(at(extProcOf(limiter), "max_message_timeout")).to.equal("12s");
    expect(at(managerOf(limiter), "stream_idle_timeout")).to.equal("312s");
  });

  it("writes a longer hold and a longer silence when the configuration asks for them", () => {
    const text = `${WORKER}envoy: { max_message_timeout: 305.5s, stream_idle_timeout: 20m }`;
    expect(at(extProcOf(text), "max_message_timeout")).to.equal("305.5s");
    expect(at(managerOf(text), "stream_idle_timeout")).to.equal("1200s");
  });

  it("writes the timeouts of the configuration", () => {
    const text = `${WORKER}envoy: { message_timeout: 250ms, request_timeout: 1.5m }`;
    expect(at(extProcOf(text), "message_timeout")).to.equal("0.25s");
    expect(at(managerOf(text), "request_timeout")).to.equal("90s");
  });

  it("lets Envoy's body buffer stand 1 MiB above the body limit", () => {
    const text = `${WORKER}limits: { body_limit_bytes: 33554432 }`;
    const host = at(managerOf(text), "route_config/virtual_hosts/0");
    expect(at(host, "request_body_buffer_limit")).to.equal(34603008);
  });

  it("takes the client's address from the connection and the trusted hops only", () => {
    expect(at(managerOf(WORKER), "use_remote_address")).to.equal(true);
    expect(at(managerOf(WORKER), "xff_num_trusted_hops")).to.equal(0);
    const behind = managerOf(`${WORKER}envoy: { trusted_hops: 2 }`);
    expect(at(behind, "xff_num_trusted_hops")).to.equal(2);
  });

  it("leaves paths as they were sent, so that Weir can refuse odd ones, and refuses escaped slashes", () => {
    const manager = managerOf(WORKER);
    expect(at(manager, "normalize_path")).to.equal(false);
    expect(at(manager, "merge_slashes")).to.equal(false);
    expect(at(manager, "path_with_escaped_slashes_action")).to.equal("REJECT_REQUEST");
  });

  describe("header stripping", () => {
    it("removes every control header before the route is chosen, as Weir's own table says", () => {
      const { trust, headers } = configOf(WORKER);
      const removed = removedOf(WORKER);
      expect(removed).to.include.members([...earlyStrip(trust, headers)]);
      expect(removed).to.include.members(["x-weir-cluster", "x-weir-tenant-id", "x-smg-tenant-id"]);
      expect(removed).not.to.include("x-weir-priority");
    });

    it("lets the headers of capacity credits through exactly while credits are on", () => {
      const config = configOf(WORKER);
      const on = { ...config, credits: { ...config.credits, generation: "g1" } };
      const names = [
        "x-weir-capacity-credit",
        "x-weir-capacity-credit-generation",
        "x-weir-capacity-credit-request-id",
        "x-weir-fair-share-policy-epoch",
        "x-weir-admission-partition",
      ];
      const removes = (name: string, yaml: string): boolean =>
        new RegExp(`remove: "?${name}"?\\n`).test(yaml);
      for (const name of names) {
        expect(removes(name, bootstrapYaml(config)), name).to.equal(true);
        expect(removes(name, bootstrapYaml(on)), name).to.equal(false);
      }
    });

    it("lets a trusted header through, by its configured name, and never the route", () => {
      const text = `${WORKER}trust: { tenant_id: true, tenant_header_name: x-team, peers: [10.0.0.1] }`;
      const removed = removedOf(text);
      expect(removed).not.to.include("x-team");
      expect(removed).to.include.members(["x-weir-cluster", "x-weir-tenant-id"]);
      expect(removedOf(`${WORKER}trust: { tenant_header_name: x-team }`)).to.include("x-team");
    });

    it("removes the headers by which a client could ask Envoy for retries", () => {
      expect(removedOf(WORKER)).to.include.members([
        "x-envoy-retry-on",
        "x-envoy-max-retries",
        "x-envoy-upstream-rq-timeout-ms",
      ]);
    });

    it("overwrites the peer header with the direct peer's address", () => {
      const path = "early_header_mutation_extensions/0/typed_config/mutations";
      const mutations = at(managerOf(WORKER), path) as unknown[];
      expect(mutations[mutations.length - 1]).to.deep.equal({
        append: {
          header: {
            key: "x-weir-peer",
            value: "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
          },
          append_action: "OVERWRITE_IF_EXISTS_OR_ADD",
        },
      });
    });
  });

  describe("routes", () => {
    const routes = (text: string): unknown =>
      at(managerOf(text), "route_config/virtual_hosts/0/routes");

    it("follow the header Weir sets, without a default, a timeout or retries", () => {
      expect(at(routes(WORKER), "1")).to.deep.equal({
        match: { prefix: "/" },
        route: { cluster_header: "x-weir-cluster", timeout: "0s" },
        request_headers_to_remove: ["x-weir-cluster"],
      });
      expect(routes(WORKER)).to.have.length(2);
      expect(JSON.stringify(written(WORKER))).not.to.match(/retry_policy/);
    });

    it("answer /healthz themselves, past ext_proc and past the filters before it", () => {
      const text = `${WORKER}envoy: { http_filters_before: [{ name: first, typed_config: {} }] }`;
      const health = at(routes(text), "0");
      expect(at(health, "match")).to.deep.equal({ path: "/healthz" });
      expect(at(health, "direct_response")).to.deep.equal({ status: 200 });
      const disabled = at(health, "typed_per_filter_config");
      expect(Object.keys(disabled as object)).to.deep.equal([
        "first",
        "envoy.filters.http.ext_proc",
      ]);
      expect(at(disabled, "first/disabled")).to.equal(true);
    });
  });

  describe("ext_proc", () => {
    it("sends headers, whole requests and answers chunk by chunk, and may be absent", () => {
      const extProc = extProcOf(WORKER);
      expect(at(extProc, "processing_mode")).to.deep.equal({
        request_header_mode: "SEND",
        request_body_mode: "BUFFERED",
        response_header_mode: "SEND",
        response_body_mode: "STREAMED",
        request_trailer_mode: "SKIP",
        response_trailer_mode: "SEND",
      });
      expect(at(extProc, "failure_mode_allow")).to.equal(true);
      expect(at(extProc, "allow_mode_override")).to.equal(true);
      expect(at(extProc, "send_body_without_waiting_for_header_response")).to.equal(true);
      expect(at(extProc, "allow_content_length_header")).to.equal(true);
      expect(at(extProc, "status_on_error/code")).to.equal("ServiceUnavailable");
    });

    it("asks for a caller's attributes only where they say more than the peer header", () => {
      const files = { certificate_file: "/c.pem", private_key_file: "/k.pem" };
      const address = ["source.address"];
      const certificate = ["connection.mtls", "connection.uri_san_peer_certificate"];
      const table: readonly (readonly [envoy: object, readonly string[] | undefined])[] = [
        [{}, undefined],
        [{ trusted_hops: 1 }, address],
        [{ tls: files }, undefined],
        [{ tls: { ...files, client_ca_file: "/ca.pem" } }, certificate],
        [
          { trusted_hops: 2, tls: { ...files, client_ca_file: "/ca.pem" } },
          [...address, ...certificate],
        ],
      ];
      for (const [envoy, expected] of table) {
        const text = JSON.stringify(envoy);
        const asked = at(extProcOf(`${WORKER}envoy: ${text}`), "request_attributes");
        expect(asked, text).to.deep.equal(expected);
      }
    });

    it("asks for the attributes that tell whose answer it is", () => {
      expect(at(extProcOf(WORKER), "response_attributes")).to.deep.equal([
        "xds.cluster_name",
        "upstream.address",
        "upstream.request_attempt_count",
        "response.code_details",
        "response.flags",
      ]);
    });

    it("forwards exactly the namespaces identities come from, each once", () => {
      expect(at(extProcOf(WORKER), "metadata_options")).to.deep.equal({
        receiving_namespaces: { untyped: ["weir"] },
      });
      const text = `${WORKER}envoy: { identity_metadata: [{ namespace: n, path: a }, { namespace: n, path: b }, { namespace: o, path: c }] }`;
      expect(at(extProcOf(text), "metadata_options/forwarding_namespaces")).to.deep.equal({
        untyped: ["n", "o"],
      });
    });

    it("stands after the operator's filters, which are written as they are, and before the router", () => {
      const filter = { name: "first", typed_config: { "@type": "x", deep: [1, { a: null }] } };
      const text = `${WORKER}envoy: { http_filters_before: [${JSON.stringify(filter)}] }`;
      expect(filtersOf(text).map(({ name }) => name)).to.deep.equal([
        "first",
        "envoy.filters.http.ext_proc",
        "envoy.filters.http.router",
      ]);
      expect(filtersOf(text)[0]).to.deep.equal(filter);
    });

    it("closes finished streams gracefully and renews connections before Node's reset limit", () => {
      const layer = at(written(WORKER), "layered_runtime/layers/0/static_layer");
      expect(layer).to.deep.equal({
        "envoy.reloadable_features.ext_proc_graceful_grpc_close": true,
      });
      const options = at(clustersOf(WORKER)[1], "typed_extension_protocol_options");
      const http = at(options, "envoy.extensions.upstreams.http.v3.HttpProtocolOptions");
      expect(at(http, "common_http_protocol_options")).to.deep.equal({
        max_requests_per_connection: 900,
      });
      expect(at(http, "explicit_http_config/http2_protocol_options")).to.deep.equal({
        max_concurrent_streams: 100000,
        connection_keepalive: { interval: "5s", timeout: "2s" },
      });
    });
  });

  describe("clusters", () => {
    const endpoint = (cluster: Record<string, unknown> | undefined): unknown =>
      at(cluster, "load_assignment/endpoints/0/lb_endpoints/0/endpoint/address");

    it("are one per worker: an address stands as it is, a name is resolved", () => {
      const clusters = clustersOf(`workers:
  - { url: "http://10.0.0.1:80", cluster: a, models: [m] }
  - { url: "http://[fd00::1]:8102", cluster: b, models: [m] }
  - { url: "http://worker-3:8103", cluster: c, models: [m] }
`);
      expect(clusters.map(({ name }) => name)).to.deep.equal(["a", "b", "c", "ext_proc"]);
      expect(clusters.map(({ type }) => type)).to.deep.equal([
        ...["STATIC", "STATIC", "STRICT_DNS", "STATIC"],
      ]);
      expect(clusters.slice(0, 3).map(endpoint)).to.deep.equal([
        { socket_address: { address: "10.0.0.1", port_value: 80 } },
        { socket_address: { address: "fd00::1", port_value: 8102 } },
        { socket_address: { address: "worker-3", port_value: 8103 } },
      ]);
      for (const cluster of clusters) {
        expect(at(cluster, "load_assignment/cluster_name")).to.equal(cluster["name"]);
      }
    });

    it("do not limit what Weir's slots already limit, and drop idle connections before servers do", () => {
      const [worker] = clustersOf(WORKER);
      expect(at(worker, "circuit_breakers/thresholds/0")).to.deep.equal({
        max_connections: 100000,
        max_pending_requests: 100000,
        max_requests: 100000,
      });
      const options = at(worker, "typed_extension_protocol_options");
      const http = at(options, "envoy.extensions.upstreams.http.v3.HttpProtocolOptions");
      expect(at(http, "common_http_protocol_options/idle_timeout")).to.equal("4s");
    });

    it("reach Weir at its listener, its socket, over loopback, or where they are told", () => {
      const weir = (text: string): unknown => endpoint(clustersOf(`${WORKER}${text}`)[1]);
      const tcp = (address: string, port_value: number): unknown => ({
        socket_address: { address, port_value },
      });
      expect(weir("")).to.deep.equal(tcp("127.0.0.1", 9002));
      expect(weir("listen: { ext_proc: unix:/run/w.sock }")).to.deep.equal({
        pipe: { path: "/run/w.sock" },
      });
      expect(weir("listen: { ext_proc: 0.0.0.0:9002 }")).to.deep.equal(tcp("127.0.0.1", 9002));
      expect(weir('listen: { ext_proc: "[::]:9002" }')).to.deep.equal(tcp("::1", 9002));
      const told = "envoy: { ext_proc_target: weir:9003 }";
      expect(weir(told)).to.deep.equal(tcp("weir", 9003));
      expect(clustersOf(`${WORKER}${told}`)[1]?.["type"]).to.equal("STRICT_DNS");
    });
  });

  describe("TLS", () => {
    const socketOf = (fields: string): unknown =>
      at(written(`${WORKER}envoy: { ${fields} }`), `${CHAIN}/transport_socket/typed_config`);
    const files = "certificate_file: c.pem, private_key_file: k.pem";

    it("is absent unless it is configured", () => {
      expect(socketOf("")).to.equal(undefined);
    });

    it("offers HTTP/2 and asks for no client certificate by itself", () => {
      expect(socketOf(`tls: { ${files} }`)).to.deep.include({
        common_tls_context: {
          alpn_protocols: ["h2", "http/1.1"],
          tls_certificates: [
            { certificate_chain: { filename: "c.pem" }, private_key: { filename: "k.pem" } },
          ],
        },
      });
      expect(at(socketOf(`tls: { ${files} }`), "require_client_certificate")).to.equal(undefined);
    });

    it("requires and checks client certificates when their authority is named", () => {
      const socket = socketOf(`tls: { ${files}, client_ca_file: ca.pem }`);
      expect(at(socket, "require_client_certificate")).to.equal(true);
      expect(at(socket, "common_tls_context/validation_context")).to.deep.equal({
        trusted_ca: { filename: "ca.pem" },
      });
    });
  });

  describe("Envoy's own answers", () => {
    interface Mapper {
      readonly filter: {
        readonly extension_filter: { readonly typed_config: { expression: string } };
      };
      readonly headers_to_add: readonly { readonly header: { key: string; value: string } }[];
      readonly body_format_override: { readonly json_format: { readonly error: object } };
    }
    const mappers = at(managerOf(WORKER), "local_reply_config/mappers") as readonly Mapper[];

    it("have the shape of all errors and the code as a header", () => {
      for (const { body_format_override, headers_to_add } of mappers) {
        const { error } = body_format_override.json_format;
        expect(error).to.have.all.keys("type", "code", "message", "param");
        expect(error).to.include({ message: "%RESPONSE_CODE_DETAILS%", param: null });
        const code = headers_to_add.find(({ header }) => header.key === "x-weir-error-code");
        expect(code?.header.value).to.equal((error as { code: string }).code);
      }
    });

    it("are told from Weir's by their details, so that no global format rewrites a refusal", () => {
      expect(mappers.length).to.be.above(5);
      for (const { filter } of mappers) {
        const { expression } = filter.extension_filter.typed_config;
        expect(expression).to.match(
          /response\.code_details (== '[a-z_]+'|!= '' && !response\.code_details\.startsWith\('weir'\))/,
        );
      }
      expect(at(managerOf(WORKER), "local_reply_config/body_format")).to.equal(undefined);
    });

    it("ask the client to come back in a second when Weir is away", () => {
      const away = mappers.find(({ filter }) =>
        filter.extension_filter.typed_config.expression.includes("cluster_not_found"),
      );
      expect(away?.headers_to_add.map(({ header }) => `${header.key}: ${header.value}`)).to.include(
        "retry-after: 1",
      );
    });
  });
});
