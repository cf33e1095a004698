// Goal: what Envoy has verified (a token's claim, a client certificate) names the caller, and a
// header overrules it only where the operator says so. Method: the shipped scenarios envoy/jwt and
// envoy/mtls, with only addresses, keys and files replaced by those of the test.
import { generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { parse, stringify } from "yaml";
import {
  expectError,
  forgetSeen,
  seenByWorkers,
  sendChat,
  settledChat,
  type HeaderLines,
} from "../support/chat.js";
import { chatBody, startStack, NOTHING_HELD, type Stack } from "../support/stack.js";
import { postOverTls, tlsFile, type TlsIdentity } from "../support/tls-client.js";

const TENANT = "x-weir-tenant-id";

interface JwtFilter {
  name: string;
  typed_config: {
    providers: { demo: { local_jwks: { inline_string: string } } };
    rules: { match: object; requires: object }[];
  };
}

interface Scenario {
  envoy: { http_filters_before: JwtFilter[]; identity_metadata: unknown; tls: unknown };
  trust: Record<string, unknown>;
}

function shipped(name: string): Scenario {
  const url = new URL(`../../envoy/${name}`, import.meta.url);
  return parse(readFileSync(url, "utf8")) as Scenario;
}

function token(key: KeyObject, claims: object, header: object = {}): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const text = `${part({ alg: "ES256", kid: "demo", typ: "JWT", ...header })}.${part(claims)}`;
  const signature = sign("sha256", Buffer.from(text), { key, dsaEncoding: "ieee-p1363" });
  return `${text}.${signature.toString("base64url")}`;
}

const bearer = (text: string): HeaderLines => [["authorization", `Bearer ${text}`]];
const keys = generateKeyPairSync("ec", { namedCurve: "P-256" });
const strangers = generateKeyPairSync("ec", { namedCurve: "P-256" });

/** The jwt scenario with the test's own key; `optional` lets requests without a token pass. */
function jwtFilters(optional: boolean): JwtFilter[] {
  const filters = shipped("jwt.weir.yaml").envoy.http_filters_before;
  const config = filters[0]?.typed_config;
  if (config === undefined) throw new Error("the jwt scenario has no filter");
  const jwk = { ...keys.publicKey.export({ format: "jwk" }), kid: "demo", alg: "ES256" };
  config.providers.demo.local_jwks.inline_string = JSON.stringify({ keys: [jwk] });
  if (optional) {
    const requires_any = { requirements: [{ provider_name: "demo" }, { allow_missing: {} }] };
    config.rules = [{ match: { prefix: "/" }, requires: { requires_any } }];
  }
  return filters;
}

const claims = (sub: unknown): object => ({ iss: "weir-demo", sub });
const identity_metadata = shipped("jwt.weir.yaml").envoy.identity_metadata;

describe("a verified token through Envoy", () => {
  describe("the shipped jwt scenario, as it stands", () => {
    let stack: Stack;
    before(async () => {
      stack = await startStack({ config: { envoy: shipped("jwt.weir.yaml").envoy } });
    });
    after(() => stack.stop());

    it("takes the tokens of its README, each as its tenant", async () => {
      const readme = readFileSync(new URL("../../envoy/README.md", import.meta.url), "utf8");
      const rows = [...readme.matchAll(/`(auth:team-\w+)`\s*\|\s*`([\w.-]+)`/g)];
      expect(rows).to.have.length(2);
      for (const [, tenant, text = ""] of rows) {
        const { answer, record } = await settledChat(stack, bearer(text));
        expect(answer.status).to.equal(200);
        expect(record.tenant).to.equal(tenant);
      }
    });
  });

  describe("when every request needs one", () => {
    let stack: Stack;
    before(async () => {
      const envoy = { http_filters_before: jwtFilters(false), identity_metadata };
      stack = await startStack({ config: { envoy } });
    });
    after(() => stack.stop());
    beforeEach(async () => {
      await stack.idle();
      stack.clear();
      await forgetSeen(stack);
    });

    it("names the tenant by its claim, and the worker never sees the token", async () => {
      const text = token(keys.privateKey, claims("team-red"));
      const { answer, record } = await settledChat(stack, bearer(text));
      expect(answer.status).to.equal(200);
      expect(record).to.deep.include({ tenant: "auth:team-red", tenantSource: "metadata" });
      expect(seenByWorkers(stack)[0]?.headers).to.not.have.property("authorization");
    });

    const bad: Readonly<Record<string, () => HeaderLines>> = {
      "no token": () => [],
      "a token of another key": () => bearer(token(strangers.privateKey, claims("team-red"))),
      "a token of another issuer": () =>
        bearer(token(keys.privateKey, { iss: "somebody", sub: "team-red" })),
      "a token that has expired": () =>
        bearer(token(keys.privateKey, { iss: "weir-demo", sub: "team-red", exp: 1_600_000_000 })),
      "a token that says it needs no signature": () =>
        bearer(token(keys.privateKey, claims("team-red"), { alg: "none" })),
      "a token whose claims were changed": () => {
        const [head = "", , signature = ""] = token(keys.privateKey, claims("a")).split(".");
        const other = Buffer.from(JSON.stringify(claims("b"))).toString("base64url");
        return bearer(`${head}.${other}.${signature}`);
      },
    };
    for (const [what, headers] of Object.entries(bad)) {
      it(`answers 401 to ${what}; Weir holds nothing and settles nothing`, async () => {
        const answer = await sendChat(stack, headers());
        expectError(answer, { status: 401, code: "unauthenticated" });
        expect(seenByWorkers(stack)).to.deep.equal([]);
        expect(stack.held()).to.deep.equal(NOTHING_HELD);
        // The stream of such a request begins with the answer: the next request finds all well.
        const { record } = await settledChat(
          stack,
          bearer(token(keys.privateKey, claims("team-red"))),
        );
        expect(record.tenant).to.equal("auth:team-red");
        expect(stack.settled).to.have.length(1);
      });
    }

    it("takes the address when the claim is missing or empty", async () => {
      for (const sub of [undefined, ""]) {
        const text = token(keys.privateKey, claims(sub));
        const { record } = await settledChat(stack, bearer(text));
        expect(record).to.deep.include({ tenant: "ip:127.0.0.1", refusedValues: [] });
      }
    });

    it("answers 401 when the claim is no text", async () => {
      for (const sub of [7, ["team-red"]]) {
        const answer = await sendChat(stack, bearer(token(keys.privateKey, claims(sub))));
        expectError(answer, { status: 401, code: "unauthenticated" });
      }
    });

    it("refuses an over-long claim and reports it", async () => {
      const text = token(keys.privateKey, claims("a".repeat(257)));
      const { record } = await settledChat(stack, bearer(text));
      const header = "envoy.filters.http.jwt_authn:claims.sub";
      expect(record).to.deep.include({
        tenant: "ip:127.0.0.1",
        refusedValues: [{ header, reason: "too_long" }],
      });
    });
  });

  describe("beside a trusted header", () => {
    for (const [prefer, tenant] of [
      [false, "auth:b3c2"],
      [true, "header:team-red"],
    ] as const) {
      it(`when claim and header disagree, prefer_tenant_id ${String(prefer)} makes it ${tenant}`, async () => {
        const stack = await startStack({
          config: {
            trust: { tenant_id: true, prefer_tenant_id: prefer, peers: ["127.0.0.1"] },
            envoy: { http_filters_before: jwtFilters(false), identity_metadata },
          },
        });
        try {
          const proof = bearer(token(keys.privateKey, claims("b3c2")));
          const both = await settledChat(stack, [...proof, [TENANT, "team-red"]]);
          expect(both.record.tenant).to.equal(tenant);
          const alone = await settledChat(stack, proof);
          expect(alone.record.tenant).to.equal("auth:b3c2");
          // A header that cannot be read never takes a verified identity away.
          const spoiled = await settledChat(stack, [...proof, [TENANT, "a,b"]]);
          expect(spoiled.record.tenant).to.equal("auth:b3c2");
        } finally {
          await stack.stop();
        }
      });
    }
  });
});

describe("the order of identities through Envoy", () => {
  it("I-1 claim, then trusted header, then client address", async () => {
    const stack = await startStack({
      config: {
        trust: { tenant_id: true, peers: ["127.0.0.1"] },
        envoy: {
          http_filters_before: jwtFilters(true),
          identity_metadata,
          // The address of the row comes from a proxy in front.
          trusted_hops: 1,
        },
      },
    });
    try {
      const address: HeaderLines = [["x-forwarded-for", "203.0.113.42"]];
      const proof = bearer(token(keys.privateKey, claims("b3c2")));
      const authenticated = await settledChat(stack, [...address, ...proof]);
      expect(authenticated.record.tenant).to.equal("auth:b3c2");
      const header = await settledChat(stack, [...address, [TENANT, "team-red"]]);
      expect(header.record.tenant).to.equal("header:team-red");
      const socket = await settledChat(stack, address);
      expect(socket.record.tenant).to.equal("ip:203.0.113.42");
    } finally {
      await stack.stop();
    }
  });

  it("I-1 nothing that names a caller makes it anonymous", async () => {
    // Over a unix socket there is no address either.
    const folder = await mkdtemp(join(tmpdir(), "weir-pipe-"));
    const path = join(folder, "envoy.sock");
    const stack = await startStack({ bootstrap: (yaml) => onPipe(yaml, path) });
    try {
      expect(await statusOverPipe(path)).to.equal(200);
      const [record] = await stack.settlements(1);
      expect(record).to.deep.include({ tenant: "anonymous", tenantSource: "anonymous" });
    } finally {
      await stack.stop();
      await rm(folder, { recursive: true, force: true });
    }
  });
});

interface Listener {
  address: object;
  filter_chains: { transport_socket?: { typed_config: { require_client_certificate: boolean } } }[];
}

/** Changes the listener of a bootstrap. */
function withListener(yaml: string, change: (listener: Listener) => void): string {
  const bootstrap = parse(yaml) as { static_resources: { listeners: Listener[] } };
  const [listener] = bootstrap.static_resources.listeners;
  if (listener === undefined) throw new Error("the bootstrap has no listener");
  change(listener);
  return stringify(bootstrap);
}

function onPipe(yaml: string, path: string): string {
  return withListener(yaml, (listener) => {
    listener.address = { pipe: { path } };
  });
}

function statusOverPipe(socketPath: string): Promise<number | undefined> {
  return new Promise((done, failed) => {
    const sent = httpRequest({
      socketPath,
      method: "POST",
      path: "/v1/chat/completions",
      headers: { host: "weir", "content-type": "application/json" },
      agent: false,
    });
    sent.on("error", failed);
    sent.on("response", (response) => {
      response.resume();
      response.on("end", () => {
        done(response.statusCode);
      });
    });
    sent.end(chatBody());
  });
}

describe("a client certificate through Envoy", () => {
  const files = {
    certificate_file: tlsFile("server.pem"),
    private_key_file: tlsFile("server.key"),
  };

  async function tenantOf(
    stack: Stack,
    identity: TlsIdentity | undefined,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<string | undefined> {
    const before = stack.settled.length;
    const answer = await postOverTls({
      port: stack.port,
      path: "/v1/chat/completions",
      body: chatBody(),
      headers,
      ...(identity === undefined ? {} : { identity }),
    });
    expect(answer.status, answer.body).to.equal(200);
    return (await stack.settlements(before + 1))[before]?.tenant;
  }

  describe("the shipped mtls scenario", () => {
    let stack: Stack;
    before(async () => {
      const { trust } = shipped("mtls.weir.yaml");
      const tls = { ...files, client_ca_file: tlsFile("ca.pem") };
      stack = await startStack({ config: { trust, envoy: { tls } } });
    });
    after(() => stack.stop());
    beforeEach(() => forgetSeen(stack));

    it("names the tenant by the SPIFFE id of the certificate", async () => {
      expect(await tenantOf(stack, "client")).to.equal("auth:spiffe://demo/team-blue");
    });

    it("ignores the tenant header of a certificate that is not listed in trust.peers", async () => {
      const tenant = await tenantOf(stack, "client", { [TENANT]: "team-red" });
      expect(tenant).to.equal("auth:spiffe://demo/team-blue");
      expect(seenByWorkers(stack)[0]?.headers).to.not.have.property(TENANT);
    });

    it("lets a gateway whose id is listed name the tenant", async () => {
      expect(await tenantOf(stack, "gateway", { [TENANT]: "team-red" })).to.equal(
        "header:team-red",
      );
    });

    it("never takes a listed gateway itself for a caller", async () => {
      expect(await tenantOf(stack, "gateway")).to.equal("ip:127.0.0.1");
      const refused = await tenantOf(stack, "gateway", { [TENANT]: "a,b" });
      expect(refused).to.equal("ip:127.0.0.1");
    });

    it("refuses a client without a certificate before any request", async () => {
      const problem: unknown = await tenantOf(stack, undefined).catch((error: unknown) => error);
      expect(problem).to.be.instanceOf(Error);
      expect(String(problem)).to.match(/certificate|ECONNRESET|socket hang up/i);
      expect(seenByWorkers(stack)).to.deep.equal([]);
    });
  });

  it("no certificate asked for: the address is the tenant", async () => {
    const stack = await startStack({ config: { envoy: { tls: files } } });
    try {
      expect(await tenantOf(stack, undefined)).to.equal("ip:127.0.0.1");
      // A certificate nobody asked for is not shown, so it proves nothing.
      expect(await tenantOf(stack, "client")).to.equal("ip:127.0.0.1");
    } finally {
      await stack.stop();
    }
  });

  it("a certificate may be missing: the address is the tenant, and a shown one still counts", async () => {
    const stack = await startStack({
      config: { envoy: { tls: { ...files, client_ca_file: tlsFile("ca.pem") } } },
      bootstrap: (yaml) =>
        withListener(yaml, ({ filter_chains: [chain] }) => {
          const socket = chain?.transport_socket;
          if (socket !== undefined) socket.typed_config.require_client_certificate = false;
        }),
    });
    try {
      expect(await tenantOf(stack, undefined)).to.equal("ip:127.0.0.1");
      expect(await tenantOf(stack, "client")).to.equal("auth:spiffe://demo/team-blue");
    } finally {
      await stack.stop();
    }
  });
});
