// The words the parts of the bootstrap writer share: plain values that become YAML, and the wrapper
// of Envoy's typed configurations.

export type BootstrapValue =
  | string
  | number
  | boolean
  | null
  | readonly BootstrapValue[]
  | { readonly [key: string]: BootstrapValue };

export type BootstrapMap = Readonly<Record<string, BootstrapValue>>;

/** An Envoy extension: its name and its typed configuration. */
export function extension(name: string, type: string, fields: BootstrapMap = {}): BootstrapMap {
  return { name, typed_config: typed(type, fields) };
}

/** A message of Envoy's API by its full name. */
export function typed(type: string, fields: BootstrapMap): BootstrapMap {
  return { "@type": `type.googleapis.com/${type}`, ...fields };
}

/** `605s`, `0.5s`: durations as Envoy reads them. */
export function seconds(value: number): string {
  return `${String(value)}s`;
}
