// What Envoy vouches for about one request, beside its headers: the only facts from which a caller
// may be derived. Everything here comes from Envoy itself (dynamic metadata, connection attributes,
// the peer header it overwrites), never from something a client can write.

/** Names of Envoy's attributes of a request. */
export const SOURCE_ADDRESS = "source.address";
export const CONNECTION_MTLS = "connection.mtls";
export const PEER_URI_SAN = "connection.uri_san_peer_certificate";

/** Facts about the sender of one request. */
export interface Evidence {
  /** One entry per `envoy.identity_metadata`, in that order; undefined = not there or no string. */
  readonly metadata: readonly (string | undefined)[];
  /** URI subject alternative name of the client certificate that Envoy verified. */
  readonly peerSan: string | undefined;
  /** The direct peer may send trusted headers: it is one of `trust.peers`, or none are named. */
  readonly peerIsProxy: boolean;
  /** The SAN is listed in `trust.peers`: it names a proxy, never a caller. */
  readonly peerSanIsProxy: boolean;
  /** Of the client: `ip:port`, `[v6]:port` or a bare address, as Envoy writes addresses. */
  readonly sourceAddress: string | undefined;
}
