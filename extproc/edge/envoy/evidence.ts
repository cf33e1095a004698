// What Envoy knows of the caller, taken from the first message of a request: the connection's
// attributes, the dynamic metadata of earlier filters, and the address of the direct peer. Attributes
// come from Envoy itself and cannot be forged by a client; the peer header is overwritten by the
// bootstrap before anything reads it. Without trusted hops the client is the direct peer, and Envoy need not
// be asked for its address (docs/decisions/0012).

import {
  CONNECTION_MTLS,
  PEER_URI_SAN,
  SOURCE_ADDRESS,
  type Evidence,
} from "../../core/identity/evidence.js";
import { PEER_HEADER } from "../../core/identity/control-headers.js";
import type { IdentityMetadata } from "../../core/model/config.js";
import { PeerList } from "../runtime/peer-list.js";
import { EXT_PROC_FILTER, type HeadersMessage, type StructMap } from "./messages.js";
import { structAt, type StructValue } from "./struct.js";

export interface EvidenceOptions {
  readonly identityMetadata: readonly IdentityMetadata[];
  /** CIDRs, addresses and SPIFFE ids of the proxies that may send trusted headers. */
  readonly peers: readonly string[];
  /** Proxies in front of Envoy that vouch for the client's address. */
  readonly trustedHops: number;
}

export class EvidenceReader {
  readonly #identityMetadata: readonly IdentityMetadata[];
  readonly #peers: PeerList;
  readonly #peerIsClient: boolean;

  constructor(options: EvidenceOptions) {
    this.#identityMetadata = options.identityMetadata;
    this.#peers = new PeerList(options.peers);
    this.#peerIsClient = options.trustedHops === 0;
  }

  read(message: HeadersMessage): Evidence {
    const attributes = message.attributes.get(EXT_PROC_FILTER);
    const san =
      attributes?.get(CONNECTION_MTLS) === true ? text(attributes.get(PEER_URI_SAN)) : undefined;
    const peerSanIsProxy = san !== undefined && this.#peers.hasName(san);
    const peers = message.headers.all(PEER_HEADER);
    const peer = peers.length === 1 ? text(peers[0]) : undefined;
    const peerAddressIsProxy = peer !== undefined && this.#peers.hasAddress(peer);
    return {
      metadata: this.#identityMetadata.map(({ namespace, path }) =>
        metadataValue(message.metadata, namespace, path),
      ),
      peerSan: san,
      peerSanIsProxy,
      peerIsProxy: this.#peers.everybody || peerSanIsProxy || peerAddressIsProxy,
      sourceAddress:
        text(attributes?.get(SOURCE_ADDRESS)) ?? (this.#peerIsClient ? peer : undefined),
    };
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
