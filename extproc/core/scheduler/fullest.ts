// Of all that have places in a queue, who has the most? Asked for a class, only those count that have a
// waiter of that class or a lower one; what is compared is all their places. Of equals the one that
// began to have places last comes first: of a crowd with one waiter each, the one that came last.
//
// There is a heap per class, so that those without such a waiter need not be passed over one by one:
// every step costs O(log members).

import { invariant } from "../model/invariant.js";
import { IndexedHeap, type HeapNode } from "../model/indexed-heap.js";
import { perClass, RANKS, type ClassRank } from "../model/priority.js";

/** Somebody that has places. Only its `Fullest` changes the numbers. */
export class Member<K, V> {
  readonly key: K;
  readonly value: V;
  /** Number of the member, in the order in which they came. */
  readonly since: number;
  /** Places of all classes. */
  places = 0;
  readonly placesOf: [number, number, number, number] = [0, 0, 0, 0];
  /** Where it stands in the heap of each class. */
  readonly nodes: (HeapNode<Member<K, V>> | undefined)[] = [];

  constructor(key: K, value: V, since: number) {
    this.key = key;
    this.value = value;
    this.since = since;
  }
}

const byPlaces = <K, V>(one: Member<K, V>, other: Member<K, V>): boolean =>
  one.places === other.places ? one.since > other.since : one.places > other.places;

export class Fullest<K, V> {
  readonly #members = new Map<K, Member<K, V>>();
  /** By class: those that have a waiter of the class or a lower one. */
  readonly #heaps = perClass(() => new IndexedHeap<Member<K, V>>(byPlaces));
  readonly #makeValue: () => V;
  #membersSoFar = 0;

  /** @param makeValue what a member carries, made when it takes its first place */
  constructor(makeValue: () => V) {
    this.#makeValue = makeValue;
  }

  /** Gives a member one more place. */
  add(key: K, rank: ClassRank): Member<K, V> {
    const member = this.#memberOf(key);
    member.places += 1;
    member.placesOf[rank] += 1;
    this.#sort(member);
    return member;
  }

  /** Takes a place of a class from a member, which has one. With its last place it is forgotten. */
  remove(member: Member<K, V>, rank: ClassRank): void {
    invariant(member.placesOf[rank] > 0, "only a place that is held is given back");
    member.places -= 1;
    member.placesOf[rank] -= 1;
    this.#sort(member);
    if (member.places === 0) this.#members.delete(member.key);
  }

  /** The fullest of those that have a waiter of this class or a lower one. */
  first(rank: ClassRank): Member<K, V> | undefined {
    return this.#heaps[rank].first;
  }

  #memberOf(key: K): Member<K, V> {
    const known = this.#members.get(key);
    if (known !== undefined) return known;
    this.#membersSoFar += 1;
    const member = new Member(key, this.#makeValue(), this.#membersSoFar);
    this.#members.set(key, member);
    return member;
  }

  /** Puts a member whose places have changed where it belongs in each heap, or takes it out. */
  #sort(member: Member<K, V>): void {
    let stands = false;
    for (const rank of RANKS) {
      stands ||= member.placesOf[rank] > 0;
      const node = member.nodes[rank];
      if (stands && node !== undefined) this.#heaps[rank].moved(node);
      else if (stands) member.nodes[rank] = this.#heaps[rank].push(member);
      else if (node !== undefined) {
        this.#heaps[rank].remove(node);
        member.nodes[rank] = undefined;
      }
    }
  }
}
