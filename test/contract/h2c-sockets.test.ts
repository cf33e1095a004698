// The sockets under the h2c server: when they are read, and when they are given up. Method: a plain
// socket that writes frames by hand, and limits small enough to be met.

import { mkdtemp, rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "chai";
import { H2cTransport } from "../../extproc/edge/envoy/transport/h2c/h2c-transport.js";
import { SOCKET_LIMITS, type SocketLimits } from "../../extproc/edge/envoy/transport/h2c/limits.js";
import type { Exchange } from "../../extproc/edge/envoy/transport/transport.js";
import { until, within } from "../support/ext-proc-client.js";
import { data, frame, grpc, open, PREFACE, settings, TYPE, uint32 } from "../support/h2c-peer.js";

const REPLY = Buffer.alloc(16_000);
const WIDE = 2 ** 31 - 1 - 65_535;
/** More than the kernel's buffers of a unix socket hold. */
const MESSAGES = 500;

describe("the sockets of the h2c server", () => {
  let folder: string;
  let server: H2cTransport;
  let exchange: Exchange | undefined;
  let messages = 0;
  let closed = 0;
  const sockets: Socket[] = [];
  const faults: unknown[] = [];

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "weir-h2c-"));
    exchange = undefined;
    messages = 0;
    closed = 0;
  });
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await server.close(0);
    await rm(folder, { recursive: true, force: true });
    expect(faults).to.deep.equal([]);
  });

  async function listen(limits: Partial<SocketLimits>): Promise<void> {
    server = new H2cTransport(
      (way) => {
        exchange = way;
        return {
          message: () => {
            messages += 1;
            way.send(REPLY);
          },
          closed: () => {
            closed += 1;
          },
        };
      },
      { maxReceiveBytes: 1_000_000, onFault: (error) => faults.push(error) },
      { ...SOCKET_LIMITS, ...limits },
    );
    await server.listen({ kind: "unix", path: join(folder, "socket") });
  }

  function dial(): Socket {
    const socket = connect(join(folder, "socket"));
    socket.on("error", () => undefined);
    sockets.push(socket);
    return socket;
  }

  const gone = (socket: Socket): Promise<void> =>
    within(
      "the end of the connection",
      new Promise((resolve) =>
        socket.on("close", () => {
          resolve();
        }),
      ),
    );

  /** A peer that opened every window and reads nothing. */
  function dialDeaf(): Socket {
    const socket = dial();
    socket.pause();
    socket.write(
      Buffer.concat([
        PREFACE,
        settings([4, WIDE], [5, 65_536]),
        frame(TYPE.window, 0, 0, uint32(WIDE)),
        open(1),
      ]),
    );
    return socket;
  }

  it("are given up when no preface comes in time, and one that came in time is kept", async () => {
    await listen({ prefaceTimeoutMs: 50 });
    const greeted = dial();
    greeted.write(PREFACE);
    const silent = dial();
    silent.write(PREFACE.subarray(0, 23));
    silent.resume();
    await gone(silent);
    expect(greeted.readyState).to.equal("open");
  });

  it("are as many as allowed, and no more", async () => {
    await listen({ connectionsMax: 2 });
    const [first, second, third] = [dial(), dial(), dial()];
    for (const socket of [first, second, third]) socket.resume();
    await gone(third);
    expect([first.readyState, second.readyState]).to.deep.equal(["open", "open"]);
  });

  it("end behind the last words when the peer does not end them", async () => {
    await listen({ lingerMs: 20 });
    const socket = dial();
    const heard: Buffer[] = [];
    socket.on("data", (bytes: Buffer) => heard.push(bytes));
    socket.write("GET / HTTP/1.1\r\nhost: weir.test\r\n\r\n");
    await gone(socket);
    expect(Buffer.concat(heard).toString("latin1")).to.include("HTTP/2 with prior knowledge");
  });

  it("are not read while their peer does not read, and go on when it does", async () => {
    await listen({ readPauseBytes: 65_536 });
    const socket = dialDeaf();
    for (let count = 0; count < MESSAGES; count += 1) {
      socket.write(data(1, grpc("x")));
      // In arrivals of their own, so that there is something left to read.
      if (count % 10 === 0) await new Promise(setImmediate);
    }
    await until("the first replies", () => messages > 0);
    for (let turn = 0; turn < 50; turn += 1) await new Promise(setImmediate);
    const heard = messages;
    expect(heard).to.be.lessThan(MESSAGES);
    for (let turn = 0; turn < 50; turn += 1) await new Promise(setImmediate);
    expect(messages).to.equal(heard);
    socket.resume();
    await until("all messages", () => messages === MESSAGES);
    expect(closed).to.equal(0);
  });

  it("are given up when answers pile up without being asked for, and their exchanges are told", async () => {
    await listen({ unsentBytesMax: 1_000_000 });
    dialDeaf().write(data(1, grpc("x")));
    await until("the message", () => messages === 1);
    for (let count = 0; count < 200 && closed === 0; count += 1) {
      exchange?.send(REPLY);
      await new Promise(setImmediate);
    }
    expect(closed).to.equal(1);
  });
});
