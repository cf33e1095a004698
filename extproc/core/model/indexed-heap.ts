// A binary heap whose members can leave, or change their rank, from anywhere in O(log n). Whoever
// changes what the order depends on calls `moved` for the member, at once: a heap that holds a stale
// rank answers wrongly, not late.

/** The handle of one member. It is live until it was removed. */
export interface HeapNode<T> {
  readonly value: T;
}

interface Node<T> extends HeapNode<T> {
  /** Place in the heap; -1 once removed. */
  at: number;
}

export class IndexedHeap<T> {
  readonly #nodes: Node<T>[] = [];
  readonly #before: (one: T, other: T) => boolean;

  /** @param before a strict order; members it does not order may come in any order */
  constructor(before: (one: T, other: T) => boolean) {
    this.#before = before;
  }

  get size(): number {
    return this.#nodes.length;
  }

  /** The member before which no other comes. */
  get first(): T | undefined {
    return this.#nodes[0]?.value;
  }

  /** The member that would come first if the first one left. */
  get second(): T | undefined {
    const left = this.#nodes[1];
    const right = this.#nodes[2];
    if (left === undefined || right === undefined) return left?.value;
    return this.#before(right.value, left.value) ? right.value : left.value;
  }

  push(value: T): HeapNode<T> {
    const node: Node<T> = { value, at: this.#nodes.length };
    this.#nodes.push(node);
    this.#up(node);
    return node;
  }

  /** Takes a member out; false when it is no longer in the heap. */
  remove(handle: HeapNode<T>): boolean {
    const node = handle as Node<T>;
    const last = this.#nodes.at(-1);
    if (last === undefined || this.#nodes[node.at] !== node) return false;
    this.#nodes.pop();
    if (last !== node) {
      this.#place(last, node.at);
      this.moved(last);
    }
    node.at = -1;
    return true;
  }

  /** Finds the new place of a member whose rank has changed. */
  moved(handle: HeapNode<T>): void {
    const node = handle as Node<T>;
    this.#up(node);
    this.#down(node);
  }

  #up(node: Node<T>): void {
    for (;;) {
      const parent = this.#nodes[(node.at - 1) >> 1];
      if (node.at === 0 || parent === undefined || !this.#before(node.value, parent.value)) return;
      this.#swap(node, parent);
    }
  }

  #down(node: Node<T>): void {
    for (;;) {
      const left = this.#nodes[2 * node.at + 1];
      const right = this.#nodes[2 * node.at + 2];
      if (left === undefined) return;
      const least = right !== undefined && this.#before(right.value, left.value) ? right : left;
      if (!this.#before(least.value, node.value)) return;
      this.#swap(node, least);
    }
  }

  #swap(one: Node<T>, other: Node<T>): void {
    const { at } = one;
    this.#place(one, other.at);
    this.#place(other, at);
  }

  #place(node: Node<T>, at: number): void {
    this.#nodes[at] = node;
    node.at = at;
  }
}
