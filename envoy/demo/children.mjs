// How do several programs live and die together? This file starts each with its output in a log file
// of its own, tells when one ends by itself, and ends them all: SIGTERM, and SIGKILL for those that
// still run after the grace time. Each is the leader of its own process group, so that Ctrl-C in a
// terminal reaches them only through here; a guard process ends them when this process is killed.
import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const GUARD = join(dirname(fileURLToPath(import.meta.url)), "guard.mjs");
/** One second below the five that Ctrl-C may take altogether. */
const GRACE_MS = 4_000;
const SHOWN_LINES = 20;

export class Children {
  #folder;
  #guard;
  #running = new Map();
  #stopping = false;
  #reportDeath;
  /** Resolves to `{ name, how, lastLines }` when a program ends that was not told to. */
  death = new Promise((done) => {
    this.#reportDeath = done;
  });

  /** `folder` is where the log files go. */
  constructor(folder) {
    this.#folder = folder;
    this.#guard = spawn(process.execPath, [GUARD], {
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    this.#guard.stdin.on("error", () => undefined);
    this.#guard.unref();
  }

  logFile(name) {
    return join(this.#folder, `${name}.log`);
  }

  /** The last lines that a program printed. */
  lastLines(name) {
    return readFileSync(this.logFile(name), "utf8").trimEnd().split("\n").slice(-SHOWN_LINES);
  }

  start(name, command, args, env = process.env) {
    if (this.#stopping) return;
    const log = openSync(this.logFile(name), "a");
    const child = spawn(command, args, { env, detached: true, stdio: ["ignore", log, log] });
    closeSync(log);
    const ended = new Promise((done) => {
      const finish = (how) => {
        this.#running.delete(name);
        this.#guard.stdin.write(`-${child.pid}\n`);
        if (!this.#stopping) this.#reportDeath({ name, how, lastLines: this.lastLines(name) });
        done();
      };
      child.once("error", (error) => finish(`could not be started: ${error.message}`));
      child.once("exit", (code, signal) => finish(signal === null ? `exit ${code}` : signal));
    });
    if (child.pid === undefined) return;
    this.#running.set(name, { pid: child.pid, ended });
    this.#guard.stdin.write(`+${child.pid}\n`);
  }

  /** Ends every program and resolves when all are gone; a second call kills without waiting. */
  async stop() {
    this.#signalAll(this.#stopping ? "SIGKILL" : "SIGTERM");
    this.#stopping = true;
    const timer = setTimeout(() => this.#signalAll("SIGKILL"), GRACE_MS);
    await Promise.all([...this.#running.values()].map((child) => child.ended));
    clearTimeout(timer);
    this.#guard.stdin.end();
  }

  #signalAll(signal) {
    for (const { pid } of this.#running.values()) {
      try {
        process.kill(-pid, signal);
      } catch {
        // It has just ended by itself.
      }
    }
  }
}
