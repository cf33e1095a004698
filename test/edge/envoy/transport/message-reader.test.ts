// gRPC messages out of bytes. Goal: the same messages however the bytes are cut, views where that is
// safe, and a bound on each message and on all unfinished ones.

import { expect } from "chai";
import fc from "fast-check";
import { MessageReader } from "../../../../extproc/edge/envoy/transport/message-reader.js";
import { grpc, uint32 } from "../../../support/h2c-peer.js";

const OK = 0;
const RESOURCE_EXHAUSTED = 8;
const UNIMPLEMENTED = 12;

function read(
  pieces: readonly Buffer[],
  maxMessageBytes = 1_000_000,
  budget = { bytesLeft: 1_000_000 },
): { status: number; messages: Buffer[]; reader: MessageReader } {
  const reader = new MessageReader(maxMessageBytes, budget);
  const messages: Buffer[] = [];
  const sink = { message: (bytes: Buffer): void => void messages.push(bytes) };
  let status = OK;
  for (const piece of pieces) status ||= reader.push(piece, 0, piece.length, sink);
  return { status, messages, reader };
}

describe("gRPC messages", () => {
  it("are handed on in place when they lie whole in what arrived, several of them too", () => {
    const bytes = Buffer.concat([grpc("one"), grpc(""), grpc("three")]);
    const { messages } = read([bytes]);
    expect(messages.map(String)).to.deep.equal(["one", "", "three"]);
    expect(messages[2]?.buffer === bytes.buffer).to.equal(true);
  });

  it("are the same however their bytes are cut", () => {
    const texts = fc.array(fc.string({ maxLength: 40 }), { maxLength: 8 });
    fc.assert(
      fc.property(texts, fc.array(fc.nat(400), { maxLength: 30 }), (messages, cuts) => {
        const bytes = Buffer.concat(messages.map((message) => grpc(message)));
        const edges = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)), bytes.length];
        edges.sort((a, b) => a - b);
        const pieces = edges.slice(1).map((edge, index) => bytes.subarray(edges[index], edge));
        const result = read(pieces);
        expect(result.messages.map(String)).to.deep.equal(messages);
        expect(result.reader.between).to.equal(true);
      }),
      { seed: 11, numRuns: 300 },
    );
  });

  it("of 20 MB in frames of 16 KiB are put together, and nothing is held afterwards", () => {
    const body = Buffer.alloc(20_000_000);
    for (let at = 0; at < body.length; at += 4_096) body.writeUInt32BE(at, at);
    const bytes = grpc(body);
    const pieces: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += 16_384) pieces.push(bytes.subarray(at, at + 16_384));
    const budget = { bytesLeft: 30_000_000 };
    const { status, messages } = read(pieces, 20_000_000, budget);
    expect(status).to.equal(OK);
    expect(messages).to.have.length(1);
    expect(messages[0]?.equals(body)).to.equal(true);
    expect(budget.bytesLeft).to.equal(30_000_000);
  });

  it("are taken up to the largest size and refused one byte above it, before their bytes come", () => {
    expect(read([grpc("x".repeat(100))], 100).messages).to.have.length(1);
    expect(read([Buffer.concat([Buffer.from([0]), uint32(101)])], 100).status).to.equal(
      RESOURCE_EXHAUSTED,
    );
  });

  it("that are compressed are refused", () => {
    expect(read([grpc("x", 1)]).status).to.equal(UNIMPLEMENTED);
    expect(read([grpc("x", 255)]).status).to.equal(UNIMPLEMENTED);
  });

  it("that are unfinished may hold what the connection has left, and not a byte more", () => {
    const half = grpc("x".repeat(100)).subarray(0, 50);
    expect(read([half], 1_000, { bytesLeft: 100 }).status).to.equal(OK);
    expect(read([half], 1_000, { bytesLeft: 99 }).status).to.equal(RESOURCE_EXHAUSTED);
  });

  it("that were only announced hold little", () => {
    const budget = { bytesLeft: 30_000_000 };
    read([grpc(Buffer.alloc(20_000_000)).subarray(0, 1_000)], 20_000_000, budget);
    expect(30_000_000 - budget.bytesLeft).to.equal(262_144);
  });

  it("give back what they held when they are given up, and the rest is not read", () => {
    const budget = { bytesLeft: 1_000 };
    const { reader, messages } = read([grpc("x".repeat(100)).subarray(0, 50)], 1_000, budget);
    reader.stop();
    expect(budget.bytesLeft).to.equal(1_000);
    const rest = Buffer.concat([Buffer.alloc(55), grpc("more")]);
    expect(
      reader.push(rest, 0, rest.length, { message: (bytes) => messages.push(bytes) }),
    ).to.equal(OK);
    expect(messages).to.deep.equal([]);
  });

  it("behind one at which the reader is stopped are not handed on", () => {
    const reader = new MessageReader(100, { bytesLeft: 1_000 });
    const seen: string[] = [];
    const bytes = Buffer.concat([grpc("one"), grpc("two"), grpc("three").subarray(0, 6)]);
    reader.push(bytes, 0, bytes.length, {
      message: (message) => {
        seen.push(String(message));
        reader.stop();
      },
    });
    expect(seen).to.deep.equal(["one"]);
    expect(reader.between).to.equal(true);
  });
});
