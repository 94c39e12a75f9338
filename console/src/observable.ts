// Values that views follow.

import { useEffect, useState } from "preact/hooks";

/** A value, and whoever wants to know when it is another. */
export class Observable<T> {
  #value: T;
  readonly #readers = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (value === this.#value) return;
    this.#value = value;
    for (const reader of [...this.#readers]) reader();
  }

  /** Calls `reader` at each change, until the function that this returns is called. */
  subscribe(reader: () => void): () => void {
    this.#readers.add(reader);
    return () => this.#readers.delete(reader);
  }
}

/** The value now; the view is drawn again when it changes. */
export function useValue<T>(observable: Observable<T>): T {
  const [value, setValue] = useState(observable.value);
  useEffect(() => {
    const read = () => setValue(() => observable.value);
    read();
    return observable.subscribe(read);
  }, [observable]);
  return value;
}
