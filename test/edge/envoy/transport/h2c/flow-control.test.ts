// Windows in both directions. Goal: nothing is sent that the peer has not allowed, what waits goes out
// in order when it may, and the memory that waits is bounded.

import { expect } from "chai";
import fc from "fast-check";
import {
  data,
  END_STREAM,
  frame,
  grpc,
  H2cPeer,
  HEAD,
  open,
  settings,
  TYPE,
  uint32,
  words,
} from "../../../../support/h2c-peer.js";

const INITIAL_WINDOW = 4;
const MAX_FRAME = 5;
const window = (streamId: number, bytes: number): Buffer =>
  frame(TYPE.window, 0, streamId, uint32(bytes));

/** Replies go out when a test says so. */
function openStreams(count: number, ...pairs: readonly (readonly [number, number])[]): H2cPeer {
  const peer = H2cPeer.greeted({}, settings(...pairs));
  for (let index = 0; index < count; index += 1) peer.send(open(2 * index + 1));
  return peer;
}

function reply(peer: H2cPeer, index: number, bytes: number): void {
  peer.exchange(index).exchange.send(Buffer.alloc(bytes, 97 + index));
}

describe("what an h2c connection sends", () => {
  it("is cut to the peer's window, and goes on when it opens, the end behind it", () => {
    const peer = openStreams(1, [INITIAL_WINDOW, 10]);
    reply(peer, 0, 20);
    expect(peer.turn().map(words)).to.deep.equal(["headers 1 200", "data 1 10 bytes"]);
    expect(peer.send(data(1, Buffer.alloc(0), END_STREAM))).to.deep.equal([]);
    expect(peer.exchange().closed).to.equal(1);
    expect(peer.send(window(1, 14)).map(words)).to.deep.equal(["data 1 14 bytes"]);
    expect(peer.send(window(1, 1)).map(words)).to.deep.equal([
      "data 1 1 bytes",
      "headers 1 status 0 end",
    ]);
    expect(peer.connection.queuedBytes).to.equal(0);
  });

  it("follows a window that settings take back below zero", () => {
    const peer = openStreams(1, [INITIAL_WINDOW, 30]);
    reply(peer, 0, 20);
    peer.send(settings([INITIAL_WINDOW, 10]));
    reply(peer, 0, 5);
    // 30 - 25 - 20 = -15: 15 more open nothing, the next byte opens one.
    expect(peer.send(window(1, 15))).to.deep.equal([]);
    expect(peer.send(window(1, 1)).map(words)).to.deep.equal(["data 1 1 bytes"]);
    expect(peer.send(settings([INITIAL_WINDOW, 19])).map(words)).to.deep.equal([
      "data 1 9 bytes",
      "settings ack",
    ]);
  });

  it("of a stream whose window is shut waits alone: others go on", () => {
    const peer = openStreams(2, [INITIAL_WINDOW, 10]);
    reply(peer, 0, 20);
    peer.turn();
    reply(peer, 1, 5);
    expect(peer.turn().map(words)).to.deep.equal(["headers 3 200", "data 3 10 bytes"]);
  });

  it("waits for the connection's window too, first come, first served", () => {
    const peer = openStreams(3, [INITIAL_WINDOW, 1_000_000], [MAX_FRAME, 100_000]);
    reply(peer, 0, 65_530);
    reply(peer, 1, 10);
    reply(peer, 2, 10);
    expect(peer.turn().map(words)).to.deep.equal([
      "headers 1 200",
      "data 1 65535 bytes",
      "headers 3 200",
      "headers 5 200",
    ]);
    expect(peer.send(window(0, 20)).map(words)).to.deep.equal([
      "data 3 15 bytes",
      "data 5 5 bytes",
    ]);
    expect(peer.send(window(0, 100)).map(words)).to.deep.equal(["data 5 10 bytes"]);
  });

  it("is cut into frames of the size the peer takes", () => {
    const peer = openStreams(1, [INITIAL_WINDOW, 100_000]);
    reply(peer, 0, 40_000);
    expect(peer.turn().map(words)).to.deep.equal([
      "headers 1 200",
      "data 1 16384 bytes",
      "data 1 16384 bytes",
      "data 1 7237 bytes",
    ]);
  });

  it("is the same bytes in order, whatever the windows do", () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("reply"), bytes: fc.nat(60) }),
      fc.record({ kind: fc.constant("stream"), bytes: fc.integer({ min: 1, max: 40 }) }),
      fc.record({ kind: fc.constant("initial"), bytes: fc.nat(60) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const peer = openStreams(1, [INITIAL_WINDOW, 20]);
        const received: Buffer[] = [];
        const expected: Buffer[] = [];
        let initial = 20;
        let allowed = 20;
        const take = (frames: ReturnType<H2cPeer["turn"]>): void => {
          for (const { type, payload } of frames) if (type === TYPE.data) received.push(payload);
          const sum = received.reduce((total, { length }) => total + length, 0);
          expect(sum).to.equal(Math.min(Buffer.concat(expected).length, Math.max(sum, allowed)));
        };
        steps.forEach(({ kind, bytes }, index) => {
          if (kind === "reply") {
            const message = Buffer.alloc(bytes, index);
            expected.push(grpc(message));
            peer.exchange().exchange.send(message);
            take(peer.turn());
          } else if (kind === "stream") {
            allowed += bytes;
            take(peer.send(window(1, bytes)));
          } else {
            allowed += bytes - initial;
            initial = bytes;
            take(peer.send(settings([INITIAL_WINDOW, bytes])));
          }
        });
        allowed = Number.MAX_SAFE_INTEGER;
        take(peer.send(window(1, 60_000)));
        expect(Buffer.concat(received).equals(Buffer.concat(expected))).to.equal(true);
      }),
      { seed: 7, numRuns: 200 },
    );
  });

  it("holds 16 MiB for a peer that opens no window, then gives up the stream that asks for more", () => {
    const peer = openStreams(2, [INITIAL_WINDOW, 0]);
    const mebibyte = 1_048_576;
    // Each costs its five bytes of framing and 128 of keeping besides.
    for (let count = 0; count < 16; count += 1) reply(peer, 0, mebibyte - 5 - 128);
    expect(peer.connection.queuedBytes).to.equal(16 * mebibyte);
    peer.turn();
    reply(peer, 1, 0);
    // Not from inside of the reply, at the end of the turn.
    expect(peer.exchange(1).closed).to.equal(0);
    expect(peer.turn().map(words)).to.deep.equal(["headers 3 200", "reset 3 code 11"]);
    expect(peer.exchange(1).closed).to.equal(1);
    expect(peer.exchange(0).closed).to.equal(0);
    peer.send(frame(TYPE.reset, 0, 1, uint32(8)));
    expect(peer.connection.queuedBytes).to.equal(0);
  });
});

describe("many replies that wait", () => {
  it("leave in order when the window opens, and cost nothing afterwards", () => {
    const peer = openStreams(1, [INITIAL_WINDOW, 0]);
    const count = 50_000;
    for (let index = 0; index < count; index += 1) reply(peer, 0, index % 7);
    const queued = peer.connection.queuedBytes;
    // Framing of five bytes, 128 for keeping, and three bytes on average.
    const sizes = Array.from({ length: count }, (_, index) => index % 7);
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    expect(queued).to.equal(count * (5 + 128) + bytes);
    peer.turn();
    const sent = peer.send(window(0, 16_777_216)).concat(peer.send(window(1, 16_777_216)));
    const lengths = sent.map(words).flatMap((line) => /^data 1 (\d+) bytes/.exec(line)?.[1] ?? []);
    expect(lengths.map(Number)).to.deep.equal(sizes.map((size) => size + 5));
    expect(peer.connection.queuedBytes).to.equal(0);
  });

  it("of streams that wait for their own window are not looked through when the connection's opens", () => {
    const streams = 2_000;
    const peer = openStreams(streams, [INITIAL_WINDOW, 0]);
    for (let index = 0; index < streams; index += 1) reply(peer, index, 3);
    peer.turn();
    for (let times = 0; times < 1_000; times += 1) {
      expect(peer.send(window(0, 1)).map(words)).to.deep.equal([]);
    }
    expect(peer.send(window(1, 8)).map(words)).to.deep.equal(["data 1 8 bytes"]);
  });
});

describe("what an h2c connection receives", () => {
  const MEBIBYTE = 1_048_576;
  const piece = (id: number, bytes = MEBIBYTE): Buffer => data(id, Buffer.alloc(bytes));
  // Of an unknown method, so that what comes is read and dropped: zeros are empty messages.
  const unknown = HEAD.map(([name, value]) => [name, name === ":path" ? "/x/Y" : value] as const);

  it("opens a stream's window in big steps: none below 8 MiB, then all of it", () => {
    const peer = H2cPeer.greeted();
    peer.send(open(1, unknown));
    for (let count = 0; count < 7; count += 1) expect(peer.send(piece(1))).to.deep.equal([]);
    expect(peer.send(piece(1)).map(words)).to.deep.equal([`window 1 ${String(8 * MEBIBYTE)}`]);
    for (let count = 0; count < 7; count += 1) expect(peer.send(piece(1))).to.deep.equal([]);
    expect(peer.send(piece(1)).map(words)).to.deep.equal([`window 1 ${String(8 * MEBIBYTE)}`]);
  });

  it("opens no window of a stream that has ended", () => {
    const peer = H2cPeer.greeted();
    peer.send(open(1, unknown));
    for (let count = 0; count < 7; count += 1) peer.send(piece(1));
    // 8 MiB are no whole number of empty messages, which is status 13.
    expect(peer.send(data(1, Buffer.alloc(MEBIBYTE), END_STREAM)).map(words)).to.deep.equal([
      "headers 1 200 status 13 end",
    ]);
  });

  it("opens the connection's window after 512 MiB, frames of closed streams counted", () => {
    const peer = H2cPeer.greeted();
    peer.send(open(1, unknown), frame(TYPE.reset, 0, 1, uint32(8)));
    peer.exchanges.length = 0;
    peer.send(open(3));
    peer.exchange().exchange.abort();
    peer.turn();
    // Stream 3 was ended by us, so what is still on the way is no error.
    const bytes = piece(3);
    for (let count = 0; count < 511; count += 1) peer.connection.receive(bytes);
    expect(peer.turn()).to.deep.equal([]);
    expect(peer.send(bytes).map(words)).to.deep.equal([`window ${String(512 * MEBIBYTE)}`]);
    expect(peer.send(bytes)).to.deep.equal([]);
  });
});
