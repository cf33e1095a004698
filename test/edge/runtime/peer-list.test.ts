import { expect } from "chai";
import { PeerList, REMEMBERED_ADDRESSES_MAX } from "../../../extproc/edge/runtime/peer-list.js";

describe("PeerList", () => {
  it("is everybody when nobody is named", () => {
    expect(new PeerList([]).everybody).to.equal(true);
    expect(new PeerList(["10.0.0.1"]).everybody).to.equal(false);
  });

  it("finds addresses and networks of both families, and an IPv4 address in the dress of IPv6", () => {
    const peers = new PeerList(["10.0.0.1", "192.168.0.0/16", "::1", "fd00::/8"]);
    for (const address of ["10.0.0.1", "::ffff:10.0.0.1", "192.168.7.7", "::1", "fd12::5"]) {
      expect(peers.hasAddress(address), address).to.equal(true);
    }
    for (const address of ["10.0.0.2", "::ffff:10.0.0.2", "192.169.0.0", "::2", "fe00::1"]) {
      expect(peers.hasAddress(address), address).to.equal(false);
    }
    for (const text of ["", "10.0.0", "localhost", "10.0.0.1:80", "10.0.0.1, 10.0.0.1"]) {
      expect(peers.hasAddress(text), text).to.equal(false);
    }
  });

  it("says the same the second time, and when it has to forget what it remembered", () => {
    const peers = new PeerList(["10.0.0.0/23"]);
    const address = (index: number): string =>
      `10.0.${String(Math.floor(index / 256))}.${String(index % 256)}`;
    // The last one is one more than is remembered, so all before it are looked up anew.
    for (const round of [1, 2, 3]) {
      for (let index = 0; index <= REMEMBERED_ADDRESSES_MAX; index += 1) {
        const listed = peers.hasAddress(address(index));
        expect(listed, `round ${String(round)}, ${address(index)}`).to.equal(index < 512);
      }
    }
    expect(peers.hasAddress("x".repeat(100_000))).to.equal(false);
  });

  it("finds SPIFFE ids exactly", () => {
    const peers = new PeerList(["spiffe://a/gateway"]);
    expect(peers.hasName("spiffe://a/gateway")).to.equal(true);
    expect(peers.hasName("spiffe://a/gateway2")).to.equal(false);
    expect(peers.hasAddress("spiffe://a/gateway")).to.equal(false);
  });
});
