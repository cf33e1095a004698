// Finds the records of a RecordStore by a key of four words. Linear hashing (W. Litwin, 1980): there
// are as many buckets as there were ever records at once, and a new record splits at most one bucket,
// the next in turn, in two. So no insertion pays for the growth of the whole table, which a doubling
// hash table would make some request wait for. Buckets are linked both ways through two words of the
// records, so that a removal costs the same however many records share the key. Keys are outputs of a
// keyed hash, so their first word serves as the hash. Several records may have one key.

import { CHUNK_RECORDS, type RecordStore } from "./record-store.js";

const SHIFT = 12;
const MASK = CHUNK_RECORDS - 1;
const WORD_BYTES = 4;

export class BucketIndex {
  readonly #store: RecordStore;
  readonly #keyField: number;
  readonly #nextField: number;
  readonly #previousField: number;
  /** The first record of each bucket, 0 = none; in chunks, one bucket for each record of one. */
  readonly #heads: Uint32Array[] = [new Uint32Array(CHUNK_RECORDS)];
  /** Buckets when this round of splitting began: a power of two. */
  #round = 1;
  /** The bucket that is split next; those before it were split in this round. */
  #split = 0;
  #size = 0;

  /** The key stands in the words from `keyField` on; `linkField` and the word behind it are the index's. */
  constructor(store: RecordStore, keyField: number, linkField: number) {
    this.#store = store;
    this.#keyField = keyField;
    this.#nextField = linkField;
    this.#previousField = linkField + 1;
  }

  /** Bytes that are allocated. */
  get bytes(): number {
    return this.#heads.length * CHUNK_RECORDS * WORD_BYTES;
  }

  /** The first record with the key that stands at `at` of `words`; 0 = none. */
  first(words: Uint32Array, at: number): number {
    return this.#matching(this.#head(this.#bucket(words[at] ?? 0)), words, at);
  }

  /** The record with the same key after `record`; 0 = none. */
  next(record: number, words: Uint32Array, at: number): number {
    return this.#matching(this.#store.word(record, this.#nextField), words, at);
  }

  /** The record's key is set. */
  add(record: number): void {
    this.#push(this.#bucket(this.#store.word(record, this.#keyField)), record);
    this.#size += 1;
    if (this.#size > this.#round + this.#split) this.#splitOne();
  }

  /** The record is in the index. */
  remove(record: number): void {
    const after = this.#store.word(record, this.#nextField);
    const before = this.#store.word(record, this.#previousField);
    if (after !== 0) this.#store.setWord(after, this.#previousField, before);
    if (before !== 0) this.#store.setWord(before, this.#nextField, after);
    else this.#setHead(this.#bucket(this.#store.word(record, this.#keyField)), after);
    this.#size -= 1;
  }

  #matching(from: number, words: Uint32Array, at: number): number {
    let record = from;
    while (record !== 0 && !this.#store.hasKey(record, this.#keyField, words, at)) {
      record = this.#store.word(record, this.#nextField);
    }
    return record;
  }

  /** Buckets below the one that is split next have a twin, which one more bit of the hash tells. */
  #bucket(hash: number): number {
    const bucket = (hash & (2 * this.#round - 1)) >>> 0;
    return bucket < this.#round + this.#split ? bucket : bucket - this.#round;
  }

  #splitOne(): void {
    const old = this.#split;
    const twin = this.#round + old;
    if (twin >>> SHIFT === this.#heads.length) this.#heads.push(new Uint32Array(CHUNK_RECORDS));
    let record = this.#head(old);
    this.#setHead(old, 0);
    while (record !== 0) {
      const next = this.#store.word(record, this.#nextField);
      const moves = (this.#store.word(record, this.#keyField) & this.#round) !== 0;
      this.#push(moves ? twin : old, record);
      record = next;
    }
    this.#split += 1;
    if (this.#split < this.#round) return;
    this.#round *= 2;
    this.#split = 0;
  }

  #push(bucket: number, record: number): void {
    const after = this.#head(bucket);
    this.#store.setWord(record, this.#nextField, after);
    this.#store.setWord(record, this.#previousField, 0);
    if (after !== 0) this.#store.setWord(after, this.#previousField, record);
    this.#setHead(bucket, record);
  }

  #head(bucket: number): number {
    return this.#heads[bucket >>> SHIFT]?.[bucket & MASK] ?? 0;
  }

  #setHead(bucket: number, record: number): void {
    const heads = this.#heads[bucket >>> SHIFT];
    if (heads !== undefined) heads[bucket & MASK] = record;
  }
}
