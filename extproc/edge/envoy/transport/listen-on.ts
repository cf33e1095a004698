// Binds a server of node:net or node:http2 to a listen address. A socket file that a process before this
// one left behind is taken away first.

import type { Server } from "node:net";
import type { ListenAddress } from "../../../core/model/config.js";
import { removeStaleSocket } from "../../runtime/unix-socket.js";

/** Binds; returns the address with the port that was chosen for port 0. Rejects when it is taken. */
export async function listenOn(server: Server, address: ListenAddress): Promise<ListenAddress> {
  if (address.kind === "unix") await removeStaleSocket(address.path);
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    const bound = (): void => {
      server.off("error", reject);
      const actual = server.address();
      const port = typeof actual === "object" && actual !== null ? actual.port : 0;
      resolve(address.kind === "unix" ? address : { ...address, port });
    };
    if (address.kind === "unix") server.listen(address.path, bound);
    else server.listen(address.port, address.host, bound);
  });
}
