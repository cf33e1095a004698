// A unix socket outlives a process that was killed, and would keep the next one from binding its path.
// This removes a socket that nobody listens on any more. Anything else at the path stays: a file that
// is no socket, or a socket that answers, is somebody's.

import { lstat, unlink } from "node:fs/promises";
import { connect } from "node:net";

/** Removes the socket at `path` if it is one and nobody accepts on it. */
export async function removeStaleSocket(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found?.isSocket() === true && !(await accepts(path))) await unlink(path);
}

function accepts(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", (error: NodeJS.ErrnoException) => {
      // Only a refused connection says that nobody is there.
      resolve(error.code !== "ECONNREFUSED");
    });
  });
}
