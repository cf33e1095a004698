// Who holds which key: one table of records (key, holder), found by key, and for each holder in the
// order of their last use. Closing a holder takes effect at once and costs nothing: its records belong
// to nobody from then on and are released bit by bit, before the table grows for anything new. All
// memory is in typed arrays and counted exactly; nothing here costs more than the records it names.
// A table may find its records by a second key as well, which belongs to the holder: the same second key
// of another holder is another one, and costs nothing.

import { BucketIndex } from "./bucket-index.js";
import { CHUNK_RECORDS, RecordStore } from "./record-store.js";

/** Words of a record: its key (four), whose it is, its neighbours in order of use and in its bucket. */
const KEY = 0;
const SLOT = 4;
const OLDER = 5;
const NEWER = 6;
const LINKS = 7;
const SECOND_KEY = LINKS + 2;
const SECOND_LINKS = SECOND_KEY + 4;
/** The first word that a user of the table may use, which is even; where there is a second key, the next. */
export const OWN_WORDS = 10;
export const OWN_WORDS_AFTER_SECOND_KEY = SECOND_LINKS + 2;

const WORD_BYTES = 4;
/** Odd, so that no two slots are mapped to one word; its bits spread those of small numbers. */
const SLOT_FACTOR = 0x9e3779b1;
/** Records of closed holders that are released for each new one: more than one, so that they end. */
const RELEASED_PER_INSERT = 2;

/** One holder and its records, `oldest` to `newest` by last use (0 = none). */
export interface Holder<Owner> {
  readonly owner: Owner;
  /** A small number of its own, which a later holder gets when this one is closed and empty. */
  readonly slot: number;
  readonly oldest: number;
  readonly count: number;
}

interface List<Owner> extends Holder<Owner> {
  oldest: number;
  newest: number;
  count: number;
  closed: boolean;
}

export class HoldingTable<Owner> {
  readonly records: RecordStore;
  readonly #wordsPerRecord: number;
  readonly #byKey: BucketIndex;
  readonly #bySecondKey: BucketIndex | undefined;
  readonly #lists: (List<Owner> | undefined)[] = [];
  readonly #freeSlots: number[] = [];
  /** Closed holders whose records were not all released yet. */
  readonly #closed: List<Owner>[] = [];
  readonly #secondKey = new Uint32Array(4);

  /** `wordsPerRecord` is even and counts all words of a record. */
  constructor(wordsPerRecord: number, keys: "one key" | "two keys") {
    this.#wordsPerRecord = wordsPerRecord;
    this.records = new RecordStore(wordsPerRecord);
    this.#byKey = new BucketIndex(this.records, KEY, LINKS);
    this.#bySecondKey =
      keys === "one key" ? undefined : new BucketIndex(this.records, SECOND_KEY, SECOND_LINKS);
  }

  /** Bytes that are allocated. */
  get bytes(): number {
    return this.records.bytes + this.#byKey.bytes + (this.#bySecondKey?.bytes ?? 0);
  }

  /** One more than the highest slot in use. */
  get slots(): number {
    return this.#lists.length;
  }

  /**
   * Records that a holder may have within `maxBytes`. Rounded down to whole chunks (less the record
   * that is none), so that the memory allocated for n such holders stays within n x `maxBytes`; below
   * one chunk the records alone are counted, and one chunk is allocated all the same.
   */
  recordsWithin(maxBytes: number): number {
    const recordBytes = WORD_BYTES * (this.#wordsPerRecord + (this.#bySecondKey ? 2 : 1));
    const chunks = Math.floor(maxBytes / (recordBytes * CHUNK_RECORDS));
    return chunks > 0 ? chunks * CHUNK_RECORDS - 1 : Math.floor(maxBytes / recordBytes);
  }

  open(owner: Owner): Holder<Owner> {
    const slot = this.#freeSlots.pop() ?? this.#lists.length;
    const list: List<Owner> = { owner, slot, oldest: 0, newest: 0, count: 0, closed: false };
    this.#lists[slot] = list;
    return list;
  }

  /** From now on the holder holds nothing; it is not to be used any more. */
  close(holder: Holder<Owner>): void {
    const list = holder as List<Owner>;
    list.closed = true;
    if (list.count > 0) this.#closed.push(list);
    else this.#freeSlot(list);
  }

  /** Releases at most `budget` records of closed holders; how many. */
  drain(budget: number): number {
    let released = 0;
    for (;;) {
      const list = this.#closed.at(-1);
      if (list === undefined) return released;
      while (list.count > 0 && released < budget) {
        this.remove(list.oldest);
        released += 1;
      }
      if (list.count > 0) return released;
      this.#closed.pop();
      this.#freeSlot(list);
    }
  }

  /** Whether `drain` would find something. */
  get hasClosed(): boolean {
    return this.#closed.length > 0;
  }

  /** Whose a record is; undefined when its holder is closed. */
  holderOf(record: number): Holder<Owner> | undefined {
    const list = this.#lists[this.records.word(record, SLOT)];
    return list === undefined || list.closed ? undefined : list;
  }

  /** The first record with a key, of whatever holder, closed ones too; 0 = none. */
  first(words: Uint32Array, at: number): number {
    return this.#byKey.first(words, at);
  }

  /** The record with the same key after `record`; 0 = none. */
  next(record: number, words: Uint32Array, at: number): number {
    return this.#byKey.next(record, words, at);
  }

  /** The holder's record with a key; 0 = none. */
  find(holder: Holder<Owner>, words: Uint32Array, at: number): number {
    return this.#of(holder, this.#byKey, words, at);
  }

  /** The holder's record with a second key; 0 = none. */
  findBySecondKey(holder: Holder<Owner>, words: Uint32Array, at: number): number {
    if (this.#bySecondKey === undefined) return 0;
    return this.#of(holder, this.#bySecondKey, this.#ownKey(holder, words, at), 0);
  }

  /** Whether the record's key stands at `at` of `words`. */
  hasKey(record: number, words: Uint32Array, at: number): boolean {
    return this.records.hasKey(record, KEY, words, at);
  }

  /** Copies the record's key to the start of `words`. */
  copyKey(record: number, words: Uint32Array): void {
    for (let word = 0; word < 4; word += 1) words[word] = this.records.word(record, KEY + word);
  }

  /** A new record, the holder's newest. Its second key, if the table has such, stands at `at` too. */
  insert(holder: Holder<Owner>, words: Uint32Array, at: number, second?: Uint32Array): number {
    this.drain(RELEASED_PER_INSERT);
    const record = this.records.take();
    this.records.setKey(record, KEY, words, at);
    this.records.setWord(record, SLOT, holder.slot);
    this.#byKey.add(record);
    if (this.#bySecondKey !== undefined && second !== undefined) {
      this.records.setKey(record, SECOND_KEY, this.#ownKey(holder, second, at), 0);
      this.#bySecondKey.add(record);
    }
    this.#append(holder as List<Owner>, record);
    return record;
  }

  /** The record becomes its holder's newest. */
  touch(record: number): void {
    const list = this.#lists[this.records.word(record, SLOT)];
    if (list === undefined || list.newest === record) return;
    this.#unlink(list, record);
    this.#append(list, record);
  }

  remove(record: number): void {
    const list = this.#lists[this.records.word(record, SLOT)];
    if (list !== undefined) this.#unlink(list, record);
    this.#byKey.remove(record);
    this.#bySecondKey?.remove(record);
    this.records.release(record);
  }

  /** The second key at `at`, made the holder's own: other holders' equal names are in other buckets. */
  #ownKey(holder: Holder<Owner>, words: Uint32Array, at: number): Uint32Array {
    for (let word = 0; word < 4; word += 1) this.#secondKey[word] = words[at + word] ?? 0;
    this.#secondKey[0] = (words[at] ?? 0) ^ Math.imul(holder.slot, SLOT_FACTOR);
    return this.#secondKey;
  }

  #freeSlot(list: List<Owner>): void {
    this.#lists[list.slot] = undefined;
    this.#freeSlots.push(list.slot);
  }

  #of(holder: Holder<Owner>, index: BucketIndex, words: Uint32Array, at: number): number {
    let record = index.first(words, at);
    while (record !== 0 && this.records.word(record, SLOT) !== holder.slot) {
      record = index.next(record, words, at);
    }
    return record;
  }

  #append(list: List<Owner>, record: number): void {
    this.records.setWord(record, OLDER, list.newest);
    this.records.setWord(record, NEWER, 0);
    if (list.newest === 0) list.oldest = record;
    else this.records.setWord(list.newest, NEWER, record);
    list.newest = record;
    list.count += 1;
  }

  #unlink(list: List<Owner>, record: number): void {
    const older = this.records.word(record, OLDER);
    const newer = this.records.word(record, NEWER);
    if (older === 0) list.oldest = newer;
    else this.records.setWord(older, NEWER, newer);
    if (newer === 0) list.newest = older;
    else this.records.setWord(newer, OLDER, older);
    list.count -= 1;
  }
}
