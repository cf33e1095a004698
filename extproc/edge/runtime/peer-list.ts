// Is a direct peer one of the proxies that may send trusted headers? `trust.peers` names them by address,
// by network or by the SPIFFE id of their certificate; an empty list means every peer. An IPv4 address is
// the same written as an IPv6 one, as a socket that listens on both has it.

import { BlockList, isIP } from "node:net";

export class PeerList {
  readonly #addresses = new BlockList();
  readonly #names = new Set<string>();
  /** No peer is named, so every peer is trusted. */
  readonly everybody: boolean;

  /** @param peers addresses, CIDRs and SPIFFE ids */
  constructor(peers: readonly string[]) {
    this.everybody = peers.length === 0;
    for (const peer of peers) this.#add(peer);
  }

  hasName(spiffeId: string): boolean {
    return this.#names.has(spiffeId);
  }

  /** False also for a text that is no address. */
  hasAddress(address: string): boolean {
    const family = isIP(address);
    return family !== 0 && this.#addresses.check(address, family === 6 ? "ipv6" : "ipv4");
  }

  #add(peer: string): void {
    if (peer.includes("://")) {
      this.#names.add(peer);
      return;
    }
    const [address = "", prefix] = peer.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    if (prefix === undefined) this.#addresses.addAddress(address, family);
    else this.#addresses.addSubnet(address, Number(prefix), family);
  }
}
