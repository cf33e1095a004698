// Types of ports.mjs, which is plain JavaScript because it runs before packages are there.

export interface DemoPort {
  readonly name: string;
  readonly port: number;
  readonly for: string;
}

/** The demo's ports for the text of WEIR_PORT_BASE; throws when that is no base. */
export function demoPorts(baseText: string | undefined): {
  readonly base: number | undefined;
  readonly ports: readonly DemoPort[];
};

/** Rejects naming each port that cannot be listened on. */
export function requireFreePorts(ports: readonly DemoPort[]): Promise<void>;
