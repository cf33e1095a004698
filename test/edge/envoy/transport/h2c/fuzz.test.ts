// Bytes from a broken peer. Goal: whatever frames come, valid, random or mutated, in pieces of any
// size, a connection neither throws nor writes half a frame, tells each exchange once, holds nothing
// when it is over, and no other connection notices. And a valid conversation means the same however it
// is cut. Method: fast-check with a fixed seed; no sockets.

import { expect } from "chai";
import fc from "fast-check";
import {
  data,
  END_HEADERS,
  END_STREAM,
  frame,
  grpc,
  H2cPeer,
  HAS_PRIORITY,
  HEAD,
  literals,
  open,
  PADDED,
  PREFACE,
  settings,
  TYPE,
  uint32,
  words,
  type ExchangeRecord,
} from "../../../../support/h2c-peer.js";

const SEED = 20_261_130;

const echo = (record: ExchangeRecord, bytes: Buffer): void => {
  record.exchange.send(bytes);
};

const streamId = fc.oneof(
  { weight: 8, arbitrary: fc.integer({ min: 0, max: 12 }) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 0x7fff_ffff }) },
);
const flags = fc.oneof(
  fc.constantFrom(0, END_STREAM, END_HEADERS, END_HEADERS | END_STREAM, PADDED, HAS_PRIORITY),
  fc.integer({ min: 0, max: 255 }),
);
const bytes = (maxLength: number): fc.Arbitrary<Buffer> =>
  fc.uint8Array({ maxLength }).map((array) => Buffer.from(array));

const head = fc.subarray([...HEAD], { minLength: 4 }).map((fields) => literals(fields));

/** A frame that a peer could send. */
const likely = fc.oneof(
  fc
    .record({ id: streamId, last: fc.boolean() })
    .map(({ id, last }) => open(id, HEAD, last ? END_STREAM : 0)),
  fc.tuple(streamId, flags, head).map(([id, flag, block]) => frame(TYPE.headers, flag, id, block)),
  fc
    .tuple(streamId, flags, head)
    .map(([id, flag, block]) => frame(TYPE.continuation, flag, id, block)),
  fc.tuple(streamId, flags, bytes(30)).map(([id, flag, message]) => data(id, grpc(message), flag)),
  fc.tuple(streamId, fc.nat(13)).map(([id, code]) => frame(TYPE.reset, 0, id, uint32(code))),
  fc.tuple(fc.nat(8), fc.nat()).map(([key, value]) => settings([key, value])),
  fc.tuple(streamId, fc.nat()).map(([id, step]) => frame(TYPE.window, 0, id, uint32(step))),
  bytes(8).map((payload) => frame(TYPE.ping, 0, 0, payload)),
  fc.nat(20).map((last) => frame(TYPE.goaway, 0, 0, uint32(last, 0))),
);

/** Any type, any flags, any payload. */
const random = fc
  .tuple(fc.integer({ min: 0, max: 12 }), flags, streamId, bytes(40))
  .map(([type, flag, id, payload]) => frame(type, flag, id, payload));

/** A frame with one byte changed, its head included: lengths then lie. */
const mutated = fc
  .tuple(likely, fc.nat(), fc.integer({ min: 0, max: 255 }))
  .map(([original, at, value]) => {
    const changed = Buffer.from(original);
    changed[at % changed.length] = value;
    return changed;
  });

const conversation = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: likely },
    { weight: 1, arbitrary: random },
    { weight: 1, arbitrary: mutated },
  ),
  { maxLength: 60 },
);

/** Pieces of a buffer at the given offsets. */
function cut(whole: Buffer, offsets: readonly number[]): Buffer[] {
  const edges = [0, ...offsets.map((offset) => offset % (whole.length + 1)), whole.length];
  edges.sort((a, b) => a - b);
  return edges.slice(1).map((edge, index) => whole.subarray(edges[index], edge));
}

describe("an h2c connection under hostile bytes", () => {
  it(`survives any frames in any pieces, and is the only one that does not (seed ${String(SEED)})`, () => {
    const other = H2cPeer.greeted({ onMessage: echo });
    other.send(open(1));
    let survived = 0;
    let given = 0;
    fc.assert(
      fc.property(conversation, fc.array(fc.nat(), { maxLength: 10 }), (frames, offsets) => {
        const peer = H2cPeer.greeted({ onMessage: echo, maxMessageBytes: 1_000 });
        for (const piece of cut(Buffer.concat(frames), offsets)) {
          // Parses what comes back: half a frame is an error.
          peer.send(piece);
        }
        if (peer.ended) given += 1;
        else survived += 1;
        expect(peer.faults).to.deep.equal([]);
        expect(
          other
            .send(data(1, grpc("x")))
            .map(words)
            .at(-1),
        ).to.equal("data 1 6 bytes");
        other.send(frame(TYPE.window, 0, 1, uint32(6)), frame(TYPE.window, 0, 0, uint32(6)));
        peer.connection.lost();
        peer.turn();
        for (const { closed } of peer.exchanges) expect(closed).to.equal(1);
        expect(peer.connection.openStreams).to.equal(0);
        expect(peer.connection.queuedBytes).to.equal(0);
      }),
      { seed: SEED, numRuns: 1_500 },
    );
    // Both outcomes are frequent, or the frames would be too tame or too wild to find anything.
    expect(survived).to.be.greaterThan(150);
    expect(given).to.be.greaterThan(150);
  });

  it("survives bytes that are no frames at all", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (noise, greeted) => {
        const peer = greeted ? H2cPeer.greeted() : new H2cPeer();
        peer.send(noise);
        peer.connection.lost();
        expect(peer.faults).to.deep.equal([]);
        expect(peer.connection.openStreams).to.equal(0);
      }),
      { seed: SEED, numRuns: 1_000 },
    );
  });

  it("hears the same messages and says the same, wherever a valid conversation is cut", () => {
    const whole = Buffer.concat([
      PREFACE,
      settings([4, 1_000], [5, 16_384]),
      open(1),
      data(1, grpc("first")),
      frame(TYPE.headers, 0, 3, literals(HEAD).subarray(0, 30)),
      frame(TYPE.continuation, END_HEADERS, 3, literals(HEAD).subarray(30)),
      data(3, Buffer.concat([grpc("a"), grpc("b"), grpc("split").subarray(0, 3)])),
      data(
        3,
        Buffer.concat([Buffer.from([2]), grpc("split").subarray(3, 7), Buffer.alloc(2)]),
        PADDED,
      ),
      data(3, grpc("split").subarray(7)),
      frame(TYPE.ping, 0, 0, Buffer.from("12345678")),
      frame(TYPE.window, 0, 1, uint32(500)),
      data(1, Buffer.alloc(0), END_STREAM),
      frame(TYPE.reset, 0, 3, uint32(8)),
    ]);
    const run = (pieces: readonly Buffer[]): unknown => {
      const peer = new H2cPeer({ onMessage: echo });
      const said = pieces.flatMap((piece) => peer.send(piece).map(words));
      const heard = peer.exchanges.map(({ messages, closed }) => ({ messages, closed }));
      return { said, heard };
    };
    const expected = run([whole]) as { heard: unknown };
    expect(expected.heard).to.deep.equal([
      { messages: ["first"], closed: 1 },
      { messages: ["a", "b", "split"], closed: 1 },
    ]);
    for (let at = 1; at < whole.length; at += 1) {
      expect(run([whole.subarray(0, at), whole.subarray(at)])).to.deep.equal(expected);
    }
    expect(run([...whole].map((byte) => Buffer.from([byte])))).to.deep.equal(expected);
  });
});
