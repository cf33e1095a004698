// What Envoy knows of the caller, taken from the first message of a request: the connection's
// attributes, the dynamic metadata of earlier filters, and the address of the direct peer. Attributes
// come from Envoy itself and cannot be forged by a client; the peer header is overwritten by the
// bootstrap before anything reads it.

import { BlockList, isIP } from "node:net";
import type { Evidence } from "../../core/identity/evidence.js";
import { PEER_HEADER } from "../../core/identity/control-headers.js";
import type { IdentityMetadata } from "../../core/model/config.js";
import { EXT_PROC_FILTER, type HeadersMessage, type StructMap } from "./messages.js";
import { structAt, type StructValue } from "./struct.js";

export interface EvidenceOptions {
  readonly identityMetadata: readonly IdentityMetadata[];
  /** CIDRs, addresses and SPIFFE ids of the proxies that may send trusted headers. */
  readonly peers: readonly string[];
}

export class EvidenceReader {
  readonly #identityMetadata: readonly IdentityMetadata[];
  readonly #addresses = new BlockList();
  readonly #names = new Set<string>();
  readonly #everyPeer: boolean;

  constructor(options: EvidenceOptions) {
    this.#identityMetadata = options.identityMetadata;
    this.#everyPeer = options.peers.length === 0;
    for (const peer of options.peers) this.#addPeer(peer);
  }

  read(message: HeadersMessage): Evidence {
    const attributes = message.attributes.get(EXT_PROC_FILTER);
    const san =
      attributes?.get("connection.mtls") === true
        ? text(attributes.get("connection.uri_san_peer_certificate"))
        : undefined;
    const peerSanIsProxy = san !== undefined && this.#names.has(san);
    const peer = message.headers.all(PEER_HEADER);
    return {
      metadata: this.#identityMetadata.map(({ namespace, path }) =>
        metadataValue(message.metadata, namespace, path),
      ),
      peerSan: san,
      peerSanIsProxy,
      peerIsProxy: this.#everyPeer || peerSanIsProxy || this.#hasAddress(peer),
      sourceAddress: text(attributes?.get("source.address")),
    };
  }

  #addPeer(peer: string): void {
    if (peer.includes("://")) {
      this.#names.add(peer);
      return;
    }
    const [address = "", prefix] = peer.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    if (prefix === undefined) this.#addresses.addAddress(address, family);
    else this.#addresses.addSubnet(address, Number(prefix), family);
  }

  #hasAddress(values: readonly string[]): boolean {
    const [address] = values;
    if (address === undefined || values.length !== 1) return false;
    const family = isIP(address);
    return family !== 0 && this.#addresses.check(address, family === 6 ? "ipv6" : "ipv4");
  }
}

function metadataValue(
  metadata: StructMap,
  namespace: string,
  path: readonly string[],
): string | undefined {
  const fields = metadata.get(namespace);
  return fields === undefined ? undefined : text(structAt(fields, path));
}

function text(value: StructValue | undefined): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}
