// Gauges that are read when they are scraped: each has one source, and a series whose source is gone
// is gone with it.

import { Gauge, type Registry } from "prom-client";

type Labels = Readonly<Record<string, string>>;

/** A gauge of several series. `collect` sets every series there is now. */
export function gauge(
  registry: Registry,
  name: string,
  help: string,
  labelNames: readonly string[],
  collect: (set: (labels: Labels, amount: number) => void) => void,
): void {
  new Gauge({
    name: `weir_${name}`,
    help,
    labelNames: [...labelNames],
    registers: [registry],
    collect() {
      this.reset();
      collect((labels, amount) => {
        this.set(labels, amount);
      });
    },
  });
}

/** A gauge of one series. */
export function single(registry: Registry, name: string, help: string, read: () => number): void {
  new Gauge({
    name: `weir_${name}`,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}
