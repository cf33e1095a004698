// Every bound of an h2c connection, at the limit and one past it.

import { expect } from "chai";
import { FrameReader } from "../../../../../extproc/edge/envoy/transport/h2c/frame-reader.js";
import { RateBucket } from "../../../../../extproc/edge/envoy/transport/h2c/rate-bucket.js";
import {
  data,
  END_HEADERS,
  END_STREAM,
  frame,
  grpc,
  H2cPeer,
  HEAD,
  literals,
  open,
  settings,
  TYPE,
  uint32,
  words,
} from "../../../../support/h2c-peer.js";

const CALM = 11;
const SIZE = 6;
const REFUSED = 7;

function lastWords(peer: H2cPeer, ...bytes: readonly Buffer[]): string {
  const last = peer.send(...bytes).at(-1);
  return last === undefined ? "" : words(last);
}

describe("the limits of an h2c connection", () => {
  it("let a frame of 1 MiB pass, and refuse a longer one at its head", () => {
    const peer = H2cPeer.greeted({ maxMessageBytes: 2_000_000 });
    const message = "x".repeat(1_048_576 - 5);
    expect(peer.send(open(1), data(1, grpc(message)))).to.deep.equal([]);
    expect(peer.exchange().messages[0]?.length).to.equal(message.length);
    const head = frame(TYPE.data, 0, 1);
    head.writeUIntBE(1_048_577, 0, 3);
    expect(lastWords(peer, head)).to.equal(`goaway last 1 code ${String(SIZE)}`);
  });

  it("let a header block of 16,384 bytes pass, in one frame or in many, and no longer one", () => {
    const sized = (bytes: number): Buffer => {
      const base = literals([...HEAD, ["x-pad", ""]]).length;
      // From 127 characters on a length takes more bytes: two more here.
      return literals([...HEAD, ["x-pad", "p".repeat(bytes - base - 2)]]);
    };
    const [fits, above] = [sized(15_900), sized(16_385)];
    expect(fits).to.have.length(15_900);
    const peer = H2cPeer.greeted();
    peer.send(frame(TYPE.headers, END_HEADERS, 1, fits));
    expect(peer.exchanges).to.have.length(1);
    peer.send(
      frame(TYPE.headers, 0, 3, fits.subarray(0, 9_000)),
      frame(TYPE.continuation, END_HEADERS, 3, fits.subarray(9_000)),
    );
    expect(peer.exchanges).to.have.length(2);
    peer.send(frame(TYPE.headers, 0, 5, above.subarray(0, 16_384)));
    expect(peer.ended).to.equal(false);
    expect(
      lastWords(peer, frame(TYPE.continuation, END_HEADERS, 5, above.subarray(16_384))),
    ).to.equal(`goaway last 3 code ${String(CALM)}`);
    expect(lastWords(H2cPeer.greeted(), frame(TYPE.headers, END_HEADERS, 1, above))).to.equal(
      `goaway last 0 code ${String(CALM)}`,
    );
  });

  it("let a header block have 16 frames, and no more", () => {
    const block = literals(HEAD);
    const spread = (frames: number): Buffer[] => [
      frame(TYPE.headers, 0, 1),
      ...Array.from({ length: frames - 2 }, () => frame(TYPE.continuation, 0, 1)),
      frame(TYPE.continuation, END_HEADERS, 1, block),
    ];
    const peer = H2cPeer.greeted();
    peer.send(...spread(16));
    expect(peer.exchanges).to.have.length(1);
    expect(lastWords(H2cPeer.greeted(), ...spread(17))).to.equal(
      `goaway last 0 code ${String(CALM)}`,
    );
  });

  it("let 100,000 streams be open, refuse the next one, and take it when one has ended", () => {
    const peer = H2cPeer.greeted();
    const last = 2 * 100_000 - 1;
    for (let id = 1; id <= last; id += 2) peer.connection.receive(open(id));
    expect(peer.turn()).to.deep.equal([]);
    expect(peer.connection.openStreams).to.equal(100_000);
    expect(lastWords(peer, open(last + 2))).to.equal(
      `reset ${String(last + 2)} code ${String(REFUSED)}`,
    );
    peer.send(data(1, Buffer.alloc(0), END_STREAM));
    peer.send(open(last + 4));
    expect(peer.connection.openStreams).to.equal(100_000);
    peer.connection.lost();
    expect(peer.exchanges.every(({ closed }) => closed === 1)).to.equal(true);
  });

  it("let 50,000 streams be reset at once and 20,000 a second, and no more", () => {
    const peer = H2cPeer.greeted();
    let id = -1;
    const reset = (count: number): void => {
      for (let done = 0; done < count; done += 1) {
        id += 2;
        peer.connection.receive(open(id));
        peer.connection.receive(frame(TYPE.reset, 0, id, uint32(8)));
      }
    };
    reset(50_000);
    expect(peer.ended).to.equal(false);
    peer.nowMs = 100;
    reset(2_000);
    peer.turn();
    expect(peer.ended).to.equal(false);
    reset(1);
    expect(peer.turn().map(words)).to.deep.equal([
      `goaway last ${String(id)} code ${String(CALM)}`,
    ]);
    expect(peer.exchanges.every(({ closed }) => closed === 1)).to.equal(true);
  });

  const idle = [
    { what: "pings", bytes: frame(TYPE.ping, 0, 0, Buffer.alloc(8)) },
    { what: "settings", bytes: settings() },
    { what: "empty DATA frames", bytes: data(1, Buffer.alloc(0)) },
  ];
  for (const { what, bytes } of idle) {
    it(`let a thousand ${what} come at once and a hundred a second, and no more`, () => {
      const peer = H2cPeer.greeted();
      peer.send(open(1));
      // The first SETTINGS counts as well.
      for (let count = 1; count < 1_000; count += 1) peer.connection.receive(bytes);
      peer.turn();
      expect(peer.ended).to.equal(false);
      peer.nowMs = 1_000;
      for (let count = 0; count < 100; count += 1) peer.connection.receive(bytes);
      peer.turn();
      expect(peer.ended).to.equal(false);
      expect(lastWords(peer, bytes)).to.equal(`goaway last 1 code ${String(CALM)}`);
      expect(peer.exchange().closed).to.equal(1);
    });
  }

  it("keep a frame in the making, and nothing else, of a peer that trickles", () => {
    const seen: number[] = [];
    const reader = new FrameReader({
      frame: (_type, _flags, _streamId, _buffer, start, end) => seen.push(end - start),
    });
    const bytes = Buffer.concat([frame(0, 0, 1, Buffer.alloc(40)), frame(0, 0, 1)]);
    for (const byte of bytes) reader.push(Buffer.from([byte]), 0);
    expect(seen).to.deep.equal([40, 0]);
  });
});

describe("a rate bucket", () => {
  it("gives its burst, then what comes in, and never more than its burst", () => {
    const bucket = new RateBucket(3, 10, 0);
    const taken = (nowMs: number): number => {
      let count = 0;
      while (bucket.take(nowMs)) count += 1;
      return count;
    };
    expect(taken(0)).to.equal(3);
    expect(taken(99)).to.equal(0);
    expect(taken(200)).to.equal(2);
    expect(taken(10_000)).to.equal(3);
  });
});
