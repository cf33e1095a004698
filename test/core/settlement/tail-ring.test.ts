import { expect } from "chai";
import fc from "fast-check";
import { TAIL_RING_BYTES, TailRing } from "../../../extproc/core/settlement/tail-ring.js";

const counting = (from: number, length: number): Uint8Array =>
  Uint8Array.from({ length }, (_, at) => (from + at) % 251);

describe("tail ring", () => {
  it("B5 allocates nothing before the first byte", () => {
    const ring = new TailRing();
    expect(ring.capacity).to.equal(0);
    ring.push(new Uint8Array(0));
    expect(ring.capacity).to.equal(0);
    expect(ring.bytes()).to.have.length(0);
  });

  it("stays small for a small answer and doubles as it grows", () => {
    const ring = new TailRing();
    ring.push(counting(0, 10));
    expect(ring.capacity).to.equal(1_024);
    ring.push(counting(10, 1_014));
    expect(ring.capacity).to.equal(1_024);
    ring.push(counting(1_024, 1));
    expect(ring.capacity).to.equal(2_048);
    expect(ring.bytes()).to.deep.equal(counting(0, 1_025));
  });

  it("holds everything at the limit and loses the oldest byte one past it", () => {
    const ring = new TailRing();
    ring.push(counting(0, 30_000));
    ring.push(counting(30_000, TAIL_RING_BYTES - 30_000));
    expect(ring.cut).to.equal(false);
    expect(ring.bytes()).to.deep.equal(counting(0, TAIL_RING_BYTES));
    ring.push(counting(TAIL_RING_BYTES, 1));
    expect(ring.cut).to.equal(true);
    expect(ring.size).to.equal(TAIL_RING_BYTES);
    expect(ring.bytes()).to.deep.equal(counting(1, TAIL_RING_BYTES));
  });

  for (const length of [TAIL_RING_BYTES - 1, TAIL_RING_BYTES, TAIL_RING_BYTES + 1, 200_000]) {
    it(`keeps the last bytes when a chunk of ${String(length)} bytes comes after others`, () => {
      const ring = new TailRing();
      ring.push(counting(0, 100));
      ring.push(counting(100, length));
      ring.push(counting(100 + length, 5));
      const seen = 100 + length + 5;
      expect(ring.bytes()).to.deep.equal(counting(seen - TAIL_RING_BYTES, TAIL_RING_BYTES));
      expect(ring.capacity).to.equal(TAIL_RING_BYTES);
    });
  }

  it("equals the tail of the concatenation for any chunks", () => {
    const length = fc.oneof(
      fc.nat({ max: 40 }),
      fc.nat({ max: 40_000 }),
      fc.integer({ min: TAIL_RING_BYTES - 2, max: TAIL_RING_BYTES + 2 }),
    );
    fc.assert(
      fc.property(fc.array(length, { maxLength: 8 }), (lengths) => {
        const ring = new TailRing();
        let seen = 0;
        for (const each of lengths) {
          ring.push(counting(seen, each));
          seen += each;
          const held = Math.min(seen, TAIL_RING_BYTES);
          expect(ring.size).to.equal(held);
          expect(ring.cut).to.equal(seen > TAIL_RING_BYTES);
          expect(Buffer.compare(ring.bytes(), counting(seen - held, held))).to.equal(0);
        }
      }),
      { numRuns: 60 },
    );
  });
});
