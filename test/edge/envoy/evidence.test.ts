// What is taken from Envoy's word about a caller, and what is not.

import { expect } from "chai";
import type { Evidence } from "../../../extproc/core/identity/evidence.js";
import { headersFrom } from "../../../extproc/core/model/headers.js";
import { EvidenceReader } from "../../../extproc/edge/envoy/evidence.js";
import { EXT_PROC_FILTER, type HeadersMessage } from "../../../extproc/edge/envoy/messages.js";
import type { StructValue } from "../../../extproc/edge/envoy/struct.js";

type Fields = Readonly<Record<string, StructValue>>;
const map = (fields: Fields): ReadonlyMap<string, StructValue> => new Map(Object.entries(fields));

interface Sketch {
  readonly peer?: string | readonly string[];
  readonly attributes?: Fields;
  readonly metadata?: Readonly<Record<string, Fields>>;
}

function message({ peer, attributes = {}, metadata = {} }: Sketch): HeadersMessage {
  return {
    kind: "request_headers",
    headers: headersFrom(peer === undefined ? {} : { "x-weir-peer": peer }),
    endOfStream: false,
    attributes: new Map([[EXT_PROC_FILTER, map(attributes)]]),
    metadata: new Map(Object.entries(metadata).map(([name, fields]) => [name, map(fields)])),
  };
}

const CLAIMS = [
  { namespace: "jwt", path: ["claims", "sub"] },
  { namespace: "jwt", path: ["claims", "https://acme.test/team"] },
];

function read(peers: readonly string[], sketch: Sketch, trustedHops = 0): Evidence {
  const options = { peers, identityMetadata: CLAIMS, trustedHops };
  return new EvidenceReader(options).read(message(sketch));
}

const isProxy = (peers: readonly string[], peer: string | readonly string[] | undefined): boolean =>
  read(peers, peer === undefined ? {} : { peer }).peerIsProxy;

const withSan = (san: string, mtls = true): Fields => ({
  "connection.mtls": mtls,
  "connection.uri_san_peer_certificate": san,
});

describe("EvidenceReader", () => {
  it("lets every peer send trusted headers when none are named", () => {
    expect(read([], { attributes: withSan("spiffe://acme/app") })).to.include({
      peerIsProxy: true,
      peerSanIsProxy: false,
    });
  });

  it("matches networks and single addresses, IPv4 also in its IPv6 spelling", () => {
    const table: readonly (readonly [string, string, boolean])[] = [
      ["10.0.0.0/8", "10.255.0.1", true],
      ["10.0.0.0/8", "11.0.0.1", false],
      ["192.168.4.0/22", "192.168.7.255", true],
      ["192.168.4.0/22", "192.168.8.0", false],
      ["0.0.0.0/0", "8.8.8.8", true],
      ["0.0.0.0/0", "::1", false],
      ["127.0.0.1", "127.0.0.1", true],
      ["127.0.0.1", "127.0.0.2", false],
      ["10.0.0.0/8", "::ffff:10.0.0.1", true],
      ["::1", "0:0:0:0:0:0:0:1", true],
      ["2001:db8::/33", "2001:db8:7fff::1", true],
      ["2001:db8::/33", "2001:db8:8000::1", false],
    ];
    for (const [peer, address, expected] of table) {
      expect(isProxy([peer], address), `${peer} ${address}`).to.equal(expected);
    }
  });

  it("finds no proxy in a missing, repeated, unreadable or forged peer address", () => {
    const forged = [undefined, "", "10.0.0.1,10.0.0.2", "10.0.0.1:80", "localhost", "*"];
    for (const address of [...forged, ["10.0.0.1", "10.0.0.1"]]) {
      expect(isProxy(["10.0.0.0/8"], address), String(address)).to.equal(false);
    }
  });

  it("knows a proxy by its certificate, exactly spelled, and only over mutual TLS", () => {
    const peers = ["spiffe://acme/gateway"];
    const judge = (san: string, mtls = true): [boolean, boolean] => {
      const evidence = read(peers, { peer: "192.0.2.1", attributes: withSan(san, mtls) });
      return [evidence.peerIsProxy, evidence.peerSanIsProxy];
    };
    expect(judge("spiffe://acme/gateway")).to.deep.equal([true, true]);
    expect(judge("spiffe://acme/gateway", false)).to.deep.equal([false, false]);
    for (const san of ["spiffe://acme/gateway/x", "spiffe://acme/Gateway", "spiffe://acme", ""]) {
      expect(judge(san), san).to.deep.equal([false, false]);
    }
  });

  it("keeps the certificate of a proxy by address as an identity unless that is listed too", () => {
    const evidence = read(["10.0.0.0/8"], {
      peer: "10.0.0.1",
      attributes: withSan("spiffe://a/b"),
    });
    expect(evidence).to.include({
      peerIsProxy: true,
      peerSanIsProxy: false,
      peerSan: "spiffe://a/b",
    });
  });

  it("reads claims by path, in the configured order, and leaves out what is no text", () => {
    const claims = (fields: Fields): readonly (string | undefined)[] =>
      read([], { metadata: { jwt: { claims: map(fields) } } }).metadata;
    expect(claims({ sub: "b3c2", "https://acme.test/team": "blue" })).to.deep.equal([
      "b3c2",
      "blue",
    ]);
    expect(claims({ sub: 7, "https://acme.test/team": map({ sub: "x" }) })).to.deep.equal([
      undefined,
      undefined,
    ]);
    expect(read([], { metadata: { other: { claims: map({ sub: "x" }) } } }).metadata).to.deep.equal(
      [undefined, undefined],
    );
    expect(read([], { metadata: { jwt: { claims: "sub" } } }).metadata[0]).to.equal(undefined);
  });

  it("takes the client for the direct peer where Envoy says nothing else and no hop is trusted", () => {
    const attributes = { "source.address": "10.1.1.1:5" };
    const table: readonly (readonly [Sketch, hops: number, string | undefined])[] = [
      [{ attributes }, 0, "10.1.1.1:5"],
      [{ attributes, peer: "10.2.2.2" }, 0, "10.1.1.1:5"],
      [{ attributes, peer: "10.2.2.2" }, 1, "10.1.1.1:5"],
      [{ peer: "10.2.2.2" }, 0, "10.2.2.2"],
      [{ peer: "2001:db8::1" }, 0, "2001:db8::1"],
      // Behind a trusted hop the peer is a proxy and nobody's client.
      [{ peer: "10.2.2.2" }, 1, undefined],
      [{ peer: ["10.2.2.2", "10.3.3.3"] }, 0, undefined],
      [{ peer: "" }, 0, undefined],
      [{}, 0, undefined],
    ];
    for (const [sketch, hops, expected] of table) {
      const shown = `${JSON.stringify(sketch)}, ${String(hops)} hops`;
      expect(read([], sketch, hops).sourceAddress, shown).to.equal(expected);
    }
  });
});
