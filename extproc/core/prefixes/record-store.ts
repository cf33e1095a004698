// Where do millions of small records live without an object each? In chunks of one typed array, which
// are added one at a time and never copied, so that growing never stalls and costs what is counted. A
// record is a number from 1 on (0 = none) and consists of a fixed number of 32-bit words; two words at
// an even place may hold a float64. Released records are used again first; memory is not given back.

/** Records of a chunk: small enough to be allocated within a request's time. */
export const CHUNK_RECORDS = 4_096;
const SHIFT = 12;
const MASK = CHUNK_RECORDS - 1;
const WORD_BYTES = 4;

interface Chunk {
  readonly words: Uint32Array;
  readonly floats: Float64Array;
}

export class RecordStore {
  readonly #wordsPerRecord: number;
  readonly #chunks: Chunk[] = [];
  /** The first released record; its first word names the next one. */
  #released = 0;
  /** The lowest record that was never taken. */
  #fresh = 1;

  /** `wordsPerRecord` is even. */
  constructor(wordsPerRecord: number) {
    this.#wordsPerRecord = wordsPerRecord;
  }

  /** Bytes that are allocated. */
  get bytes(): number {
    return this.#chunks.length * CHUNK_RECORDS * this.#wordsPerRecord * WORD_BYTES;
  }

  /** A record with whatever its last user left in it. */
  take(): number {
    const record = this.#released;
    if (record !== 0) {
      this.#released = this.word(record, 0);
      return record;
    }
    const fresh = this.#fresh;
    this.#fresh += 1;
    if (fresh >>> SHIFT === this.#chunks.length) {
      const buffer = new ArrayBuffer(CHUNK_RECORDS * this.#wordsPerRecord * WORD_BYTES);
      this.#chunks.push({ words: new Uint32Array(buffer), floats: new Float64Array(buffer) });
    }
    return fresh;
  }

  /** Nothing may refer to the record any more. */
  release(record: number): void {
    this.setWord(record, 0, this.#released);
    this.#released = record;
  }

  word(record: number, field: number): number {
    return this.#chunks[record >>> SHIFT]?.words[this.#at(record) + field] ?? 0;
  }

  setWord(record: number, field: number, value: number): void {
    const chunk = this.#chunks[record >>> SHIFT];
    if (chunk !== undefined) chunk.words[this.#at(record) + field] = value;
  }

  /** The float64 in the words `field` (even) and `field + 1`. */
  float(record: number, field: number): number {
    return this.#chunks[record >>> SHIFT]?.floats[(this.#at(record) + field) >>> 1] ?? 0;
  }

  setFloat(record: number, field: number, value: number): void {
    const chunk = this.#chunks[record >>> SHIFT];
    if (chunk !== undefined) chunk.floats[(this.#at(record) + field) >>> 1] = value;
  }

  /** Whether the four words from `field` on are those of `words` from `at` on. */
  hasKey(record: number, field: number, words: Uint32Array, at: number): boolean {
    const chunk = this.#chunks[record >>> SHIFT]?.words;
    const from = this.#at(record) + field;
    return (
      chunk !== undefined &&
      chunk[from] === words[at] &&
      chunk[from + 1] === words[at + 1] &&
      chunk[from + 2] === words[at + 2] &&
      chunk[from + 3] === words[at + 3]
    );
  }

  setKey(record: number, field: number, words: Uint32Array, at: number): void {
    for (let word = 0; word < 4; word += 1) {
      this.setWord(record, field + word, words[at + word] ?? 0);
    }
  }

  #at(record: number): number {
    return (record & MASK) * this.#wordsPerRecord;
  }
}
