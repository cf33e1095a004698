// A map that members pass through: each stays a moment and goes, thousands a second, and few are there
// at any time. The engine's own Map is costly for that. When its table is full of gone entries it makes
// a new one, and the old table keeps a link to the new one. Once any table of the map has come to
// the old generation, each later one is held by a dead one before it, with every value it had when
// it was replaced: nothing that ever passed through is collected before the next full collection, and
// all of it is copied on the way there. This map begins a new Map instead, to which no old table
// has a link, before the engine has to replace the table.

/** Gone entries that a small map keeps: at fewer, making new ones would cost more than it spares. */
const GONE_MIN = 32;

export class TransientMap<K, V> {
  #entries = new Map<K, V>();
  /** Entries that went since the table was new. */
  #gone = 0;

  get size(): number {
    return this.#entries.size;
  }

  has(key: K): boolean {
    return this.#entries.has(key);
  }

  get(key: K): V | undefined {
    return this.#entries.get(key);
  }

  set(key: K, value: V): void {
    this.#entries.set(key, value);
  }

  /** Takes an entry out; false when there is none. O(1) on average. */
  delete(key: K): boolean {
    if (!this.#entries.delete(key)) return false;
    this.#gone += 1;
    if (this.#gone >= Math.max(GONE_MIN, this.#entries.size)) this.#renew(this.#entries);
    return true;
  }

  clear(): void {
    this.#renew([]);
  }

  /** The keys as they are now, in the order in which they came. */
  keys(): readonly K[] {
    return [...this.#entries.keys()];
  }

  /** The values as they are now, in the order in which their keys came. */
  values(): readonly V[] {
    return [...this.#entries.values()];
  }

  #renew(entries: Iterable<readonly [K, V]>): void {
    this.#entries = new Map(entries);
    this.#gone = 0;
  }
}
