// One h2c connection, byte by byte. Goal: gRPC calls as Envoy makes them, HTTP/2's rules where a peer
// breaks them, and what each costs: one stream, or the connection. Method: a peer that writes frames
// by hand, and no sockets.

import { expect } from "chai";
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

const echo = (record: ExchangeRecord, bytes: Buffer): void => {
  record.exchange.send(bytes);
};
const HEALTH_CHECK = "/grpc.health.v1.Health/Check";

function withPath(path: string): [string, string][] {
  return HEAD.map(([name, value]) => [name, name === ":path" ? path : value]);
}

describe("an h2c connection", () => {
  it("greets with its settings and a wide window, and acknowledges the peer's settings", () => {
    const peer = new H2cPeer();
    const [first, second] = peer.turn();
    expect(first?.type).to.equal(TYPE.settings);
    // MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE.
    expect(first?.payload.toString("hex")).to.equal(
      "0003000186a0" + "000401000000" + "000500100000" + "000600004000",
    );
    expect(words(second ?? settingsFrame())).to.equal(`window ${String(2 ** 30 - 65_535)}`);
    expect(peer.send(PREFACE, settings()).map(words)).to.deep.equal(["settings ack"]);
  });

  it("carries a call: messages in order, replies behind one head, and an end for an end", () => {
    const peer = H2cPeer.greeted({ onMessage: echo });
    expect(peer.send(open(1), data(1, Buffer.concat([grpc("ab"), grpc("c")]))).map(words)).to.eql([
      "headers 1 200",
      "data 1 7 bytes",
      "data 1 6 bytes",
    ]);
    expect(peer.exchange().messages).to.deep.equal(["ab", "c"]);
    expect(peer.send(data(1, Buffer.alloc(0), END_STREAM)).map(words)).to.deep.equal([
      "headers 1 status 0 end",
    ]);
    expect(peer.exchange().closed).to.equal(1);
    expect(peer.connection.openStreams).to.equal(0);
  });

  it("sends all frames of a turn in one write", () => {
    const peer = H2cPeer.greeted({ onMessage: echo });
    const before = peer.writes;
    peer.send(...[1, 3, 5, 7].flatMap((id) => [open(id), data(id, grpc("x"))]));
    for (const { exchange } of peer.exchanges) exchange.send(Buffer.from("later"));
    expect(peer.turn()).to.have.length(4);
    expect(peer.writes - before).to.equal(2);
  });

  it("answers an end without replies by a head that is the end", () => {
    const peer = H2cPeer.greeted();
    expect(peer.send(open(1, HEAD, END_STREAM)).map(words)).to.deep.equal([
      "headers 1 200 status 0 end",
    ]);
  });

  it("gives a stream up with INTERNAL, behind what was replied, and asks for no more", () => {
    const peer = H2cPeer.greeted({ onMessage: echo });
    peer.send(open(1), data(1, grpc("x")));
    peer.exchange().exchange.abort();
    expect(peer.exchange().closed).to.equal(1);
    expect(peer.turn().map(words)).to.deep.equal(["headers 1 status 13 end", "reset 1 code 0"]);
    peer.exchange().exchange.send(Buffer.from("late"));
    peer.exchange().exchange.abort();
    expect(peer.send(data(1, grpc("late")), data(1, Buffer.alloc(0), END_STREAM))).to.deep.equal(
      [],
    );
    expect(peer.exchange()).to.deep.include({ messages: ["x"], closed: 1 });
  });

  it("tells an exchange of a reset once, and ignores what it sends then", () => {
    const peer = H2cPeer.greeted();
    peer.send(open(1), frame(TYPE.reset, 0, 1, uint32(8)));
    peer.exchange().exchange.send(Buffer.from("late"));
    expect(peer.turn()).to.deep.equal([]);
    peer.connection.lost();
    expect(peer.exchange().closed).to.equal(1);
  });

  it("ends every exchange once when the peer goes, and lets none of them send to another", () => {
    const peer: H2cPeer = H2cPeer.greeted({
      onClosed: () => {
        for (const { exchange } of peer.exchanges) exchange.send(Buffer.from("granted"));
      },
    });
    peer.send(open(1), open(3), open(5));
    peer.connection.lost();
    expect(peer.exchanges.map(({ closed }) => closed)).to.deep.equal([1, 1, 1]);
    expect(peer.turn()).to.deep.equal([]);
  });

  it("says UNIMPLEMENTED to every other method, and to what is no gRPC, at the end of the request", () => {
    const peer = H2cPeer.greeted();
    const wrong = [
      withPath("/other.Service/Method"),
      HEAD.map(([name, value]) => [name, name === ":method" ? "GET" : value] as const),
      HEAD.filter(([name]) => name !== "content-type"),
    ];
    wrong.forEach((fields, index) => {
      const id = 2 * index + 1;
      expect(peer.send(open(id, fields))).to.deep.equal([]);
      expect(peer.send(data(id, grpc("x"), END_STREAM)).map(words)).to.deep.equal([
        `headers ${String(id)} 200 status 12 end`,
      ]);
    });
    expect(peer.exchanges).to.deep.equal([]);
  });

  it("ends a call whose message is too large, compressed or cut off, and serves the others", () => {
    const peer = H2cPeer.greeted({ onMessage: echo, maxMessageBytes: 10 });
    const calls = [
      { bytes: grpc("x".repeat(11)), flags: 0, status: 8 },
      { bytes: grpc("x", 1), flags: 0, status: 12 },
      { bytes: grpc("xxx").subarray(0, 6), flags: END_STREAM, status: 13 },
    ];
    calls.forEach(({ bytes, flags, status }, index) => {
      const id = 2 * index + 1;
      expect(peer.send(open(id), data(id, bytes, flags)).map(words)).to.deep.equal([
        `headers ${String(id)} 200 status ${String(status)} end`,
        ...(flags === 0 ? [`reset ${String(id)} code 0`] : []),
      ]);
      expect(peer.exchange(index)).to.deep.include({ messages: [], closed: 1 });
    });
    expect(peer.send(open(9), data(9, grpc("0123456789"))).map(words)).to.deep.equal([
      "headers 9 200",
      "data 9 15 bytes",
    ]);
  });

  it("reads padded frames, priorities, and a block in many frames", () => {
    const peer = H2cPeer.greeted();
    const block = literals(HEAD);
    const head = Buffer.concat([
      Buffer.from([3]),
      uint32(0),
      Buffer.from([15]),
      block.subarray(0, 9),
    ]);
    peer.send(
      frame(TYPE.headers, PADDED | HAS_PRIORITY, 1, Buffer.concat([head, Buffer.alloc(3)])),
      frame(TYPE.continuation, 0, 1, block.subarray(9, 20)),
      frame(TYPE.continuation, END_HEADERS, 1, block.subarray(20)),
      frame(TYPE.priority, 0, 1, Buffer.concat([uint32(0), Buffer.from([1])])),
      data(1, Buffer.concat([Buffer.from([2]), grpc("hi"), Buffer.alloc(2)]), PADDED),
      frame(99, 255, 1, Buffer.alloc(20)),
    );
    expect(peer.exchange().messages).to.deep.equal(["hi"]);
  });

  it("takes trailers for the end of the request", () => {
    const peer = H2cPeer.greeted();
    const trailers = frame(TYPE.headers, END_HEADERS | END_STREAM, 1, literals([["x-a", "b"]]));
    expect(peer.send(open(1), trailers).map(words)).to.deep.equal(["headers 1 200 status 0 end"]);
  });

  it("answers a ping with the same bytes", () => {
    const peer = H2cPeer.greeted();
    const [answer] = peer.send(frame(TYPE.ping, 0, 0, Buffer.from("12345678")));
    expect(answer).to.deep.include({ type: TYPE.ping, flags: 1 });
    expect(String(answer?.payload)).to.equal("12345678");
  });

  it("answers health checks, of liveness and of readiness as it is then", () => {
    const peer = H2cPeer.greeted();
    const ask = (id: number, name: string): string[] => {
      const request = name === "" ? "" : `\x0a${String.fromCharCode(name.length)}${name}`;
      const frames = peer.send(
        open(id, withPath(HEALTH_CHECK)),
        data(id, grpc(request), END_STREAM),
      );
      const body = frames.find(({ type }) => type === TYPE.data)?.payload.toString("hex");
      return [...(body === undefined ? [] : [body]), ...frames.slice(-1).map(words)];
    };
    expect(ask(1, "")).to.deep.equal(["00000000020802", "headers 1 status 0 end"]);
    peer.health.setReady(true);
    expect(ask(3, "readiness")[0]).to.equal("00000000020801");
    expect(ask(5, "nobody")).to.deep.equal(["headers 5 200 status 5 end"]);
    expect(peer.send(open(7, withPath(HEALTH_CHECK), END_STREAM)).map(words)).to.deep.equal([
      "headers 7 200 status 13 end",
    ]);
  });

  describe("that drains", () => {
    it("serves what the peer opened until it has read the first GOAWAY, names the last one, and ends behind it", () => {
      const peer = H2cPeer.greeted();
      peer.send(open(1));
      peer.connection.drain();
      const [goaway, ping] = peer.turn();
      expect(words(goaway ?? settingsFrame())).to.equal(
        `goaway last ${String(2 ** 31 - 1)} code 0`,
      );
      peer.send(open(3));
      expect(peer.exchanges).to.have.length(2);
      const answer = frame(TYPE.ping, 1, 0, ping?.payload);
      expect(peer.send(answer).map(words)).to.deep.equal(["goaway last 3 code 0"]);
      // Too late: neither served nor answered.
      expect(peer.send(open(5), data(5, grpc("x"), END_STREAM))).to.deep.equal([]);
      expect(peer.exchanges).to.have.length(2);
      peer.send(data(1, Buffer.alloc(0), END_STREAM));
      expect(peer.ended).to.equal(false);
      peer.send(data(3, Buffer.alloc(0), END_STREAM));
      expect(peer.ended).to.equal(true);
    });

    it("ends at once when there is nothing to serve", () => {
      const peer = H2cPeer.greeted();
      peer.connection.drain();
      const ping = peer.turn()[1];
      peer.send(frame(TYPE.ping, 1, 0, ping?.payload));
      expect(peer.ended).to.equal(true);
    });
  });

  it("takes a fault of ours for the end of this connection, and reports it", () => {
    const peer = H2cPeer.greeted({
      onMessage: () => {
        throw new Error("a bug");
      },
    });
    expect(peer.send(open(1), open(3), data(1, grpc("x"))).map(words)).to.deep.equal([
      "goaway last 3 code 2",
    ]);
    expect(peer.faults.map(String)).to.deep.equal(["Error: a bug"]);
    expect(peer.exchanges.map(({ closed }) => closed)).to.deep.equal([1, 1]);
    expect(peer.ended).to.equal(true);
  });
});

describe("an h2c connection whose peer breaks a rule", () => {
  const PROTOCOL = 1;
  const FLOW = 3;
  const CLOSED = 5;
  const SIZE = 6;

  interface Breach {
    readonly what: string;
    readonly bytes: readonly Buffer[];
    readonly code: number;
  }
  const none = Buffer.alloc(0);
  const dead: readonly Breach[] = [
    { what: "DATA on stream 0", bytes: [data(0, none)], code: PROTOCOL },
    { what: "DATA on an idle stream", bytes: [data(1, none)], code: PROTOCOL },
    { what: "HEADERS on stream 0", bytes: [open(0)], code: PROTOCOL },
    { what: "HEADERS on an even stream", bytes: [open(2)], code: PROTOCOL },
    { what: "a stream below an earlier one", bytes: [open(5), open(3)], code: PROTOCOL },
    {
      what: "HEADERS on a stream that has ended",
      bytes: [open(1, HEAD, END_STREAM), open(1)],
      code: CLOSED,
    },
    {
      what: "a frame inside of a header block",
      bytes: [frame(TYPE.headers, 0, 1, none), frame(99, 0, 1, none)],
      code: PROTOCOL,
    },
    { what: "CONTINUATION of nothing", bytes: [frame(TYPE.continuation, 4, 1)], code: PROTOCOL },
    {
      what: "CONTINUATION on another stream",
      bytes: [frame(TYPE.headers, 0, 1, none), frame(TYPE.continuation, 4, 3)],
      code: PROTOCOL,
    },
    {
      what: "padding as long as its frame",
      bytes: [open(1), data(1, Buffer.from([4, 0, 0, 0]), PADDED)],
      code: PROTOCOL,
    },
    { what: "padding without a length", bytes: [open(1), data(1, none, PADDED)], code: SIZE },
    { what: "a block that is no HPACK", bytes: [frame(1, 4, 1, Buffer.from([0x80]))], code: 9 },
    { what: "a pushed stream", bytes: [frame(TYPE.push, 4, 1, uint32(2))], code: PROTOCOL },
    { what: "PING of seven bytes", bytes: [frame(TYPE.ping, 0, 0, Buffer.alloc(7))], code: SIZE },
    { what: "PING on a stream", bytes: [frame(TYPE.ping, 0, 1, Buffer.alloc(8))], code: PROTOCOL },
    { what: "GOAWAY on a stream", bytes: [frame(TYPE.goaway, 0, 1, uint32(0, 0))], code: PROTOCOL },
    { what: "GOAWAY of seven bytes", bytes: [frame(7, 0, 0, Buffer.alloc(7))], code: SIZE },
    { what: "RST_STREAM on stream 0", bytes: [frame(3, 0, 0, uint32(0))], code: PROTOCOL },
    { what: "RST_STREAM on an idle stream", bytes: [frame(3, 0, 1, uint32(0))], code: PROTOCOL },
    {
      what: "RST_STREAM of five bytes",
      bytes: [open(1), frame(3, 0, 1, Buffer.alloc(5))],
      code: SIZE,
    },
    { what: "SETTINGS on a stream", bytes: [frame(TYPE.settings, 0, 1)], code: PROTOCOL },
    { what: "SETTINGS of five bytes", bytes: [frame(4, 0, 0, Buffer.alloc(5))], code: SIZE },
    {
      what: "an acknowledgement with settings",
      bytes: [frame(4, 1, 0, Buffer.alloc(6))],
      code: SIZE,
    },
    { what: "ENABLE_PUSH 2", bytes: [settings([2, 2])], code: PROTOCOL },
    { what: "a window of 2^31", bytes: [settings([4, 2 ** 31])], code: FLOW },
    { what: "frames of 16,383 bytes", bytes: [settings([5, 16_383])], code: PROTOCOL },
    { what: "frames of 2^24 bytes", bytes: [settings([5, 2 ** 24])], code: PROTOCOL },
    {
      what: "settings that open a stream's window too far",
      bytes: [open(1), frame(8, 0, 1, uint32(2 ** 31 - 1 - 65_535)), settings([4, 65_536])],
      code: FLOW,
    },
    { what: "WINDOW_UPDATE by 0", bytes: [frame(8, 0, 0, uint32(0))], code: PROTOCOL },
    { what: "WINDOW_UPDATE of three bytes", bytes: [frame(8, 0, 0, Buffer.alloc(3))], code: SIZE },
    { what: "WINDOW_UPDATE on an idle stream", bytes: [frame(8, 0, 1, uint32(1))], code: PROTOCOL },
    {
      what: "a connection's window above 2^31 - 1",
      bytes: [frame(8, 0, 0, uint32(2 ** 31 - 65_535))],
      code: FLOW,
    },
    { what: "PRIORITY on stream 0", bytes: [frame(2, 0, 0, Buffer.alloc(5))], code: PROTOCOL },
  ];
  for (const { what, bytes, code } of dead) {
    it(`is given up at ${what}, and tells every exchange once`, () => {
      const peer = H2cPeer.greeted();
      peer.send(...bytes.slice(0, -1));
      const last = peer.send(...bytes.slice(-1)).at(-1);
      expect(words(last ?? settingsFrame())).to.match(
        new RegExp(`^goaway last \\d+ code ${String(code)}$`),
      );
      expect(peer.ended).to.equal(true);
      expect(peer.exchanges.map(({ closed }) => closed)).to.deep.equal(peer.exchanges.map(() => 1));
      expect(peer.faults).to.deep.equal([]);
      // Whatever comes now is neither read nor answered.
      expect(peer.send(open(99), Buffer.alloc(100))).to.deep.equal([]);
      expect(peer.connection.openStreams).to.equal(0);
    });
  }

  it("is given up when the first bytes are not the preface, at the first wrong one", () => {
    const peer = new H2cPeer();
    expect(peer.send(Buffer.from("PRI * HTTP/1")).map(words).at(-1)).to.equal(
      "goaway last 0 code 1",
    );
    expect(peer.ended).to.equal(true);
  });

  it("is given up when the first frame is not SETTINGS", () => {
    for (const first of [frame(TYPE.ping, 0, 0, Buffer.alloc(8)), frame(TYPE.settings, 1, 0)]) {
      const peer = new H2cPeer();
      peer.send(PREFACE, first);
      expect(peer.ended).to.equal(true);
    }
  });

  const more = (name: string, value: string): Buffer => open(3, [...HEAD, [name, value]]);
  const without = (name: string): Buffer =>
    open(
      3,
      HEAD.filter(([one]) => one !== name),
    );
  const body = [...HEAD, ["content-length", "6"]] as [string, string][];
  const stream: readonly Breach[] = [
    { what: "an upper-case field", bytes: [more("X-A", "b")], code: PROTOCOL },
    { what: "an empty name", bytes: [more("", "b")], code: PROTOCOL },
    { what: "a field of the connection", bytes: [more("connection", "close")], code: PROTOCOL },
    { what: "te other than trailers", bytes: [more("te", "gzip")], code: PROTOCOL },
    { what: "an unknown pseudo field", bytes: [more(":x", "b")], code: PROTOCOL },
    { what: "a pseudo field behind others", bytes: [more(":path", "/")], code: PROTOCOL },
    { what: "no method", bytes: [without(":method")], code: PROTOCOL },
    { what: "no scheme", bytes: [without(":scheme")], code: PROTOCOL },
    { what: "no path", bytes: [without(":path")], code: PROTOCOL },
    { what: "a length that is none", bytes: [more("content-length", "-1")], code: PROTOCOL },
    {
      what: "a body longer than announced",
      bytes: [open(3, body), data(3, Buffer.alloc(7))],
      code: 1,
    },
    {
      what: "a body shorter than announced",
      bytes: [open(3, body), data(3, grpc(""), END_STREAM)],
      code: PROTOCOL,
    },
    { what: "no body where one is announced", bytes: [open(3, body, END_STREAM)], code: PROTOCOL },
    {
      what: "a dependence on itself",
      bytes: [frame(TYPE.priority, 0, 3, Buffer.concat([uint32(3), Buffer.from([0])]))],
      code: PROTOCOL,
    },
    { what: "PRIORITY of four bytes", bytes: [frame(2, 0, 3, Buffer.alloc(4))], code: SIZE },
    { what: "a second head", bytes: [open(3), open(3)], code: PROTOCOL },
    { what: "WINDOW_UPDATE by 0", bytes: [open(3), frame(8, 0, 3, uint32(0))], code: PROTOCOL },
    {
      what: "a stream's window above 2^31 - 1",
      bytes: [open(3), frame(8, 0, 3, uint32(2 ** 31 - 65_535))],
      code: FLOW,
    },
    {
      what: "DATA behind the end",
      bytes: [open(3, HEAD, END_STREAM), data(3, grpc("x"))],
      code: CLOSED,
    },
  ];
  for (const { what, bytes, code } of stream) {
    it(`loses only the stream at ${what}`, () => {
      const peer = H2cPeer.greeted({ onMessage: echo });
      peer.send(open(1));
      peer.send(...bytes.slice(0, -1));
      expect(peer.send(...bytes.slice(-1)).map(words)).to.deep.equal([
        `reset 3 code ${String(code)}`,
      ]);
      for (const record of peer.exchanges.slice(1)) expect(record.closed).to.equal(1);
      expect(peer.send(data(1, grpc("x"))).map(words)).to.deep.equal([
        "headers 1 200",
        "data 1 6 bytes",
      ]);
      expect(peer.connection.openStreams).to.equal(1);
    });
  }
});

function settingsFrame(): { type: number; flags: number; streamId: number; payload: Buffer } {
  return { type: TYPE.settings, flags: 0, streamId: 0, payload: Buffer.alloc(0) };
}
