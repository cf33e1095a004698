// Breaking something on purpose: methods of a class are replaced until they are mended.

/** Replaces a method until the returned function is called. */
export function replace<T extends object, K extends keyof T>(
  target: T,
  name: K,
  make: (original: T[K]) => T[K],
): () => void {
  const original = target[name];
  target[name] = make(original);
  return () => {
    target[name] = original;
  };
}

/** Replaces a getter until the returned function is called. */
export function replaceGetter<T extends object, K extends keyof T & string>(
  target: T,
  name: K,
  make: (original: (this: T) => T[K]) => (this: T) => T[K],
): () => void {
  const property = Object.getOwnPropertyDescriptor(target, name);
  if (property?.get === undefined) throw new Error(`no getter ${name}`);
  const original = Reflect.get(property, "get") as (this: T) => T[K];
  Object.defineProperty(target, name, { ...property, get: make(original) });
  return () => {
    Object.defineProperty(target, name, property);
  };
}

/** True once in `period` calls. */
export function everyNth(period: number): () => boolean {
  let calls = 0;
  return () => {
    calls += 1;
    return calls % period === 0;
  };
}
