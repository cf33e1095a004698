// Types of setup.mjs, which is plain JavaScript because it runs before packages are there.

interface SetupOptions {
  readonly root?: string;
  readonly log?: (line: string) => void;
}

/** Throws an error that names both versions when Node is too old. */
export function requireNode(version?: string): void;

/** Runs `npm ci` when it is needed; resolves to whether it was. */
export function ensurePackages(
  options?: SetupOptions & { readonly install?: (root: string) => Promise<void> },
): Promise<boolean>;

/** Whether an installed tree is what the lock file names. */
export function packagesMatch(lock: unknown, installed: unknown): boolean;

/** Builds dist/ when it is needed; resolves to whether it was. */
export function ensureBuild(
  options?: SetupOptions & { readonly compile?: (root: string) => Promise<void> },
): Promise<boolean>;

/** How to start npm from here. */
export function npmCommand(
  root?: string,
  env?: Readonly<Record<string, string | undefined>>,
): {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
};
