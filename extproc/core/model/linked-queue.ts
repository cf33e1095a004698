// A first-in first-out queue whose members can leave from anywhere in O(1). A waiter that times out
// or whose client leaves is removed at once, so a queue never holds ghosts.

/** The handle of one queued value. It is live until it was shifted or removed. */
export interface QueueNode<T> {
  readonly value: T;
}

interface Node<T> extends QueueNode<T> {
  previous: Node<T> | undefined;
  next: Node<T> | undefined;
  queue: LinkedQueue<T> | undefined;
}

export class LinkedQueue<T> {
  #head: Node<T> | undefined;
  #tail: Node<T> | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The oldest value, still queued. */
  get head(): T | undefined {
    return this.#head?.value;
  }

  /** The newest value, still queued. */
  get tail(): T | undefined {
    return this.#tail?.value;
  }

  push(value: T): QueueNode<T> {
    const node: Node<T> = { value, previous: this.#tail, next: undefined, queue: this };
    if (this.#tail === undefined) this.#head = node;
    else this.#tail.next = node;
    this.#tail = node;
    this.#size += 1;
    return node;
  }

  /** Takes the oldest value out; undefined when empty. */
  shift(): T | undefined {
    const node = this.#head;
    if (node === undefined) return undefined;
    this.remove(node);
    return node.value;
  }

  /** Takes a member out; false when it is no longer (or never was) in this queue. */
  remove(handle: QueueNode<T>): boolean {
    const node = handle as Node<T>;
    if (node.queue !== this) return false;
    if (node.previous === undefined) this.#head = node.next;
    else node.previous.next = node.next;
    if (node.next === undefined) this.#tail = node.previous;
    else node.next.previous = node.previous;
    node.previous = undefined;
    node.next = undefined;
    node.queue = undefined;
    this.#size -= 1;
    return true;
  }
}
