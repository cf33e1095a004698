// How do tests run another program? This file starts one with its output captured, waits for what
// it prints and for its end, and stops it: SIGTERM first, SIGKILL when that does not help in time.
// State: the set of programs still running, which are killed when this process exits, so that a
// failed test leaves nothing behind. Output is kept up to 4 MiB a stream, oldest text first to go.
import { spawn, type ChildProcess } from "node:child_process";

export interface ProcessOptions {
  /** Name in error messages; the command when absent. */
  readonly name?: string;
  readonly cwd?: string;
  /** The whole environment; this process's own when absent. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Standard output goes nowhere, for programs that write much of what nobody reads. */
  readonly discardStdout?: boolean;
}

export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

const KEPT_OUTPUT_CHARS = 4_194_304;
const DEFAULT_STOP_MS = 5_000;
const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

/** A program that was started; use `startProcess`. */
export class RunningProcess {
  readonly name: string;
  /** Resolves when the program has ended and its output is complete; never rejects. */
  readonly ended: Promise<ProcessEnd>;
  readonly #child: ChildProcess;
  readonly #watchers = new Set<() => void>();
  #stdout = "";
  #stderr = "";
  #end: ProcessEnd | undefined;

  constructor(name: string, child: ChildProcess) {
    this.name = name;
    this.#child = child;
    running.add(child);
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#stdout = (this.#stdout + text).slice(-KEPT_OUTPUT_CHARS);
      this.#wake();
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-KEPT_OUTPUT_CHARS);
      this.#wake();
    });
    this.ended = new Promise((done) => {
      const finish = (end: ProcessEnd): void => {
        running.delete(child);
        this.#end ??= end;
        this.#wake();
        done(this.#end);
      };
      child.once("close", (code, signal) => {
        finish({ code, signal });
      });
      child.once("error", (error) => {
        this.#stderr += `${error.message}\n`;
        if (child.pid === undefined) finish({ code: null, signal: null });
      });
    });
  }

  /** Process id; 0 when the program could not be started. */
  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** How it ended; undefined while it runs. */
  get end(): ProcessEnd | undefined {
    return this.#end;
  }

  get stdout(): string {
    return this.#stdout;
  }

  get stderr(): string {
    return this.#stderr;
  }

  /** Sends a signal; false when the program is gone. */
  signal(signal: NodeJS.Signals): boolean {
    return this.#child.kill(signal);
  }

  /** Waits until stdout or stderr matches; rejects with all output when it ends or time is up. */
  async waitForOutput(pattern: RegExp, limitMs = 10_000): Promise<RegExpExecArray> {
    const find = (): RegExpExecArray | null =>
      pattern.exec(this.#stdout) ?? pattern.exec(this.#stderr);
    await this.waitUntil(() => find() !== null, `print ${String(pattern)}`, limitMs);
    const match = find();
    if (match === null) throw new Error(`${this.name}: the matching output is gone`);
    return match;
  }

  /** Waits until `condition` holds, asked again at each output; see waitForOutput. */
  waitUntil(condition: () => boolean, what: string, limitMs = 10_000): Promise<void> {
    return new Promise((done, failed) => {
      const settle = (problem?: string): void => {
        clearTimeout(timer);
        this.#watchers.delete(look);
        if (problem === undefined) done();
        else failed(new Error(`${this.name} did not ${what}: ${problem}\n${this.describe()}`));
      };
      const look = (): void => {
        if (condition()) settle();
        else if (this.#end !== undefined) settle("it ended first");
      };
      const timer = setTimeout(() => {
        settle(`${String(limitMs)} ms have passed`);
      }, limitMs);
      this.#watchers.add(look);
      look();
    });
  }

  /** Ends the program and waits for it; a second call waits for the same end. */
  async stop(graceMs = DEFAULT_STOP_MS): Promise<ProcessEnd> {
    if (this.#end !== undefined) return this.#end;
    this.signal("SIGTERM");
    const timer = setTimeout(() => this.signal("SIGKILL"), graceMs);
    const end = await this.ended;
    clearTimeout(timer);
    return end;
  }

  /** Name, end and output, for error messages. */
  describe(): string {
    const end = this.#end;
    const state = end === undefined ? "running" : `ended (${String(end.code ?? end.signal)})`;
    return `${this.name} ${state}\nstdout:\n${this.#stdout}\nstderr:\n${this.#stderr}`;
  }

  #wake(): void {
    for (const watcher of [...this.#watchers]) watcher();
  }
}

/** Starts a program with no stdin and captured output. A missing program is an end, not a throw. */
export function startProcess(
  command: string,
  args: readonly string[],
  options: ProcessOptions = {},
): RunningProcess {
  const child = spawn(command, args, {
    cwd: options.cwd,
    env: options.env ?? process.env,
    stdio: ["ignore", options.discardStdout === true ? "ignore" : "pipe", "pipe"],
  });
  return new RunningProcess(options.name ?? command, child);
}
