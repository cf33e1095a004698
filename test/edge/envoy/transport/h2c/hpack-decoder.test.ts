// HPACK. Goal: the vectors of RFC 7541 appendix C, what a widely used encoder really writes, and every
// malformed block refused. Hex and fields are those of the RFC.

import { createServer } from "node:net";
import { connect } from "node:http2";
import type { AddressInfo } from "node:net";
import { expect } from "chai";
import { ConnectionError } from "../../../../../extproc/edge/envoy/transport/h2c/frames.js";
import { HpackDecoder } from "../../../../../extproc/edge/envoy/transport/h2c/hpack-decoder.js";
import { literals, parseFrames, PREFACE, settings, TYPE } from "../../../../support/h2c-peer.js";

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(/\s/g, ""), "hex");

function decode(decoder: HpackDecoder, block: Buffer): string[] {
  const fields: string[] = [];
  decoder.decode(block, (name, value) => fields.push(`${name}: ${value}`));
  return fields;
}

/** Blocks of one connection in order, each with its fields. */
type Vector = readonly (readonly [block: string, fields: readonly string[]])[];

const REQUESTS = [
  [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
  [
    ":method: GET",
    ":scheme: http",
    ":path: /",
    ":authority: www.example.com",
    "cache-control: no-cache",
  ],
  [
    ":method: GET",
    ":scheme: https",
    ":path: /index.html",
    ":authority: www.example.com",
    "custom-key: custom-value",
  ],
] as const;
const MONDAY = ["date: Mon, 21 Oct 2013 20:13:21 GMT", "location: https://www.example.com"];
const RESPONSES = [
  [":status: 302", "cache-control: private", ...MONDAY],
  [":status: 307", "cache-control: private", ...MONDAY],
  [
    ":status: 200",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:22 GMT",
    "location: https://www.example.com",
    "content-encoding: gzip",
    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
  ],
] as const;

/** A change of the table size to 256, as the vectors of C.5 and C.6 assume it. */
const TABLE_OF_256 = "3fe101";

const VECTORS: Readonly<Record<string, Vector>> = {
  "C.2.1, a literal with indexing": [
    ["400a637573746f6d2d6b65790d637573746f6d2d686561646572", ["custom-key: custom-header"]],
  ],
  "C.2.2, a literal without indexing": [["040c2f73616d706c652f70617468", [":path: /sample/path"]]],
  "C.2.3, a literal that is never indexed": [
    ["100870617373776f726406736563726574", ["password: secret"]],
  ],
  "C.2.4, an indexed field": [["82", [":method: GET"]]],
  "C.3, requests without Huffman code": [
    ["828684410f7777772e6578616d706c652e636f6d", REQUESTS[0]],
    ["828684be58086e6f2d6361636865", REQUESTS[1]],
    ["828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565", REQUESTS[2]],
  ],
  "C.4, requests with Huffman code": [
    ["828684418cf1e3c2e5f23a6ba0ab90f4ff", REQUESTS[0]],
    ["828684be5886a8eb10649cbf", REQUESTS[1]],
    ["828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", REQUESTS[2]],
  ],
  "C.5, responses in a table of 256 bytes": [
    [
      `${TABLE_OF_256}4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d`,
      RESPONSES[0],
    ],
    ["4803333037c1c0bf", RESPONSES[1]],
    [
      "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
      RESPONSES[2],
    ],
  ],
  "C.6, the same with Huffman code": [
    [
      `${TABLE_OF_256}488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3`,
      RESPONSES[0],
    ],
    ["4883640effc1c0bf", RESPONSES[1]],
    [
      "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
      RESPONSES[2],
    ],
  ],
};

const MALFORMED: readonly (readonly [what: string, block: string])[] = [
  ["index 0", "80"],
  ["an index behind the tables", "be"],
  ["a name behind the tables", "7f80010161"],
  ["an index that does not end", "ffffffffffffffffffff"],
  ["an index that is cut off", "ff"],
  ["a literal without a value", "0001 61"],
  ["a text longer than its block", "0005 6161"],
  ["a Huffman text with eight bits of padding", "00 82 1fff 01 61"],
  ["a Huffman text padded with zeros", "00 81 18 01 61"],
  ["a Huffman text with the end mark", "00 84 ffffffff 01 61"],
  ["a table size behind a field", "82 20"],
  ["a table size above 4096", "3fe21f"],
];

describe("HPACK", () => {
  for (const [name, blocks] of Object.entries(VECTORS)) {
    it(`decodes RFC 7541 ${name}`, () => {
      const decoder = new HpackDecoder();
      for (const [block, fields] of blocks) {
        expect(decode(decoder, hex(block))).to.deep.equal(fields);
      }
    });
  }

  for (const [what, block] of MALFORMED) {
    it(`refuses ${what}`, () => {
      expect(() => decode(new HpackDecoder(), hex(block)))
        .to.throw(ConnectionError)
        .with.property("code", 9);
    });
  }

  it("takes a table size of 4096, and of 0, which empties the table", () => {
    const decoder = new HpackDecoder();
    decode(decoder, hex("3fe11f"));
    decode(decoder, hex("4001610162"));
    expect(decode(decoder, hex("be"))).to.deep.equal(["a: b"]);
    decode(decoder, hex("20"));
    expect(() => decode(decoder, hex("be"))).to.throw(ConnectionError);
  });

  it("empties the table for an entry that is larger than it, and still hands it on", () => {
    const decoder = new HpackDecoder();
    decode(decoder, hex("3f01 4001610162"));
    expect(decode(decoder, hex("4001610163"))).to.deep.equal(["a: c"]);
    expect(() => decode(decoder, hex("be"))).to.throw(ConnectionError);
  });

  it("takes headers of 16,384 bytes and no more, entries counted as HPACK does", () => {
    // 32 bytes are counted for the entry, and one for its name.
    const sized = (bytes: number): Buffer => literals([["a", "v".repeat(bytes - 33)]]);
    expect(decode(new HpackDecoder(), sized(16_384))).to.have.length(1);
    expect(() => decode(new HpackDecoder(), sized(16_385)))
      .to.throw(ConnectionError)
      .with.property("code", 11);
    // `:path: /` counts 5 + 1 + 32 bytes.
    const many = (count: number): Buffer => Buffer.alloc(count, 0x84);
    expect(decode(new HpackDecoder(), many(Math.floor(16_384 / 38)))).to.have.length(431);
    expect(() => decode(new HpackDecoder(), many(432))).to.throw(ConnectionError);
  });

  it("drops the oldest entries when the table is full", () => {
    const decoder = new HpackDecoder();
    // 34 bytes each, so a table of 68 holds two: 0x3f 0x25 is 31 + 37.
    decode(decoder, hex("3f25 4001610131 4001610132 4001610133"));
    expect(decode(decoder, hex("bebf"))).to.deep.equal(["a: 3", "a: 2"]);
    expect(() => decode(decoder, hex("c0"))).to.throw(ConnectionError);
  });

  it("tells whether a block changed the table", () => {
    const decoder = new HpackDecoder();
    decode(decoder, hex("82"));
    expect(decoder.changes).to.equal(0);
    decode(decoder, hex("4001610162"));
    expect(decoder.changes).to.equal(1);
    decode(decoder, hex("be"));
    expect(decoder.changes).to.equal(1);
  });

  it("decodes what the runtime's own encoder writes, every character and repeated blocks", async () => {
    const received: Buffer[] = [];
    const server = createServer((socket) => {
      socket.write(settings());
      socket.on("data", (chunk) => received.push(chunk));
      socket.on("error", () => undefined);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const client = connect(`http://127.0.0.1:${String((server.address() as AddressInfo).port)}`);
    client.on("error", () => undefined);
    const sent: string[][] = [];
    // Characters a header value may have; each stands among short codes, so that Huffman code is taken.
    for (let code = 0x20; code < 0x100; code += 1) {
      if (code === 0x7f) continue;
      const value = `a${"e".repeat(30)}${String.fromCharCode(code)}e`;
      const round = String(code % 7);
      sent.push([`x-${round}: ${value}`, `x-same: ${round}`]);
      const stream = client.request({ ":path": "/", [`x-${round}`]: value, "x-same": round });
      stream.on("error", () => undefined);
      stream.end();
    }
    await new Promise<void>((resolve) => {
      client.ping(() => undefined);
      const poll = setInterval(() => {
        if (headersOf(received).length < sent.length) return;
        clearInterval(poll);
        resolve();
      }, 5);
    });
    client.destroy();
    server.close();
    const decoder = new HpackDecoder();
    const decoded = headersOf(received).map((block) =>
      decode(decoder, block).filter((field) => field.startsWith("x-")),
    );
    expect(decoded).to.deep.equal(sent);
  });
});

/** The header blocks of what a client sent, as far as it is whole. */
function headersOf(received: readonly Buffer[]): Buffer[] {
  const bytes = Buffer.concat(received).subarray(PREFACE.length);
  let end = 0;
  while (end + 9 <= bytes.length && end + 9 + bytes.readUIntBE(end, 3) <= bytes.length) {
    end += 9 + bytes.readUIntBE(end, 3);
  }
  return parseFrames(bytes.subarray(0, end))
    .filter(({ type }) => type === TYPE.headers)
    .map(({ payload, flags }) => ((flags & 0x20) === 0 ? payload : payload.subarray(5)));
}
