// Is a direct peer one of the proxies that may send trusted headers? `trust.peers` names them by address,
// by network or by the SPIFFE id of their certificate; an empty list means every peer. An IPv4 address is
// the same written as an IPv6 one, as a socket that listens on both has it.

import { BlockList, isIP } from "node:net";

/**
 * Addresses whose answer is remembered, since looking at the list makes a native object each time. Whoever
 * sends trusted headers is one of a few proxies; of others the list is asked again now and then.
 */
export const REMEMBERED_ADDRESSES_MAX = 1_024;
/** Longer texts are no addresses; an IPv6 one with a zone has at most so many characters. */
const REMEMBERED_MAX_CHARS = 64;

export class PeerList {
  readonly #addresses = new BlockList();
  readonly #names = new Set<string>();
  readonly #remembered = new Map<string, boolean>();
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
    const remembered = this.#remembered.get(address);
    if (remembered !== undefined) return remembered;
    const listed = this.#isListed(address);
    if (address.length > REMEMBERED_MAX_CHARS) return listed;
    if (this.#remembered.size >= REMEMBERED_ADDRESSES_MAX) this.#remembered.clear();
    this.#remembered.set(address, listed);
    return listed;
  }

  #isListed(address: string): boolean {
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
