// The head of a request out of a block. Goal: a block that is read from memory is one that still means
// the same: the table under it has not moved.

import { expect } from "chai";
import { ConnectionError } from "../../../../../extproc/edge/envoy/transport/h2c/frames.js";
import { RequestHeads } from "../../../../../extproc/edge/envoy/transport/h2c/request-heads.js";
import { HEAD, literals } from "../../../../support/h2c-peer.js";

const PSEUDO = literals(HEAD.filter(([name]) => name === ":method" || name === ":scheme"));
const GRPC = literals([["content-type", "application/grpc"]]);
/** `:path` with this value, which also becomes the newest entry of the table. */
const namingPath = (path: string): Buffer =>
  Buffer.concat([PSEUDO, Buffer.from([0x44, path.length]), Buffer.from(path), GRPC]);
/** `:path` by the newest entry of the table, whatever that is. */
const PATH_OF_TABLE = Buffer.concat([PSEUDO, Buffer.from([0xbe]), GRPC]);

const pathOf = (heads: RequestHeads, block: Buffer): string | undefined => {
  const head = heads.read(block);
  return head === "malformed" ? head : head.path;
};

describe("request heads", () => {
  it("are read anew when the table has changed under an equal block", () => {
    const heads = new RequestHeads();
    expect(pathOf(heads, namingPath("/a"))).to.equal("/a");
    expect(pathOf(heads, PATH_OF_TABLE)).to.equal("/a");
    expect(pathOf(heads, PATH_OF_TABLE)).to.equal("/a");
    expect(pathOf(heads, namingPath("/b"))).to.equal("/b");
    expect(pathOf(heads, PATH_OF_TABLE)).to.equal("/b");
    // Also by a change of the table's size to 0, in trailers.
    expect(heads.readTrailers(Buffer.from([0x20]))).to.equal(true);
    expect(() => heads.read(PATH_OF_TABLE)).to.throw(ConnectionError);
  });

  it("do not follow the bytes of the last block when those are used for something else", () => {
    const heads = new RequestHeads();
    const block = literals(HEAD);
    const path = pathOf(heads, block);
    block.fill(0xff);
    expect(pathOf(heads, literals(HEAD))).to.equal(path);
  });
});
