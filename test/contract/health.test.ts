// The gRPC health service: liveness says "the process works", readiness "send requests here". They
// must never be mixed up: a liveness that follows readiness restarts a server that drains.

import { expect } from "chai";
import * as grpc from "@grpc/grpc-js";
import { service as definition } from "grpc-health-check";
import {
  ALL_TRANSPORTS,
  describeTransports,
  EXT_PROC_SERVICE,
  until,
  within,
  type WeirUnderTest,
} from "../support/ext-proc-client.js";

interface HealthReply {
  readonly status: string;
}
interface HealthStub extends grpc.Client {
  Check(
    request: object,
    done: (error: grpc.ServiceError | null, reply?: HealthReply) => void,
  ): grpc.ClientUnaryCall;
  Watch(request: object): grpc.ClientReadableStream<HealthReply>;
}

const HealthClient = grpc.makeGenericClientConstructor(definition, "Health") as unknown as new (
  target: string,
  credentials: grpc.ChannelCredentials,
) => HealthStub;

const READINESS = ["", "readiness", EXT_PROC_SERVICE];

describeTransports(
  "gRPC health",
  (start) => {
    let weir: WeirUnderTest;
    let health: HealthStub;

    beforeEach(async () => {
      weir = await start({
        healthHeld: true,
        config: { limits: { drain_timeout_secs: 1, shutdown_grace_period_secs: 1 } },
      });
      health = new HealthClient(weir.target, grpc.credentials.createInsecure());
    });
    afterEach(async () => {
      health.close();
      await weir.stop();
    });

    async function check(name: string): Promise<string | number> {
      return within(
        `health of "${name}"`,
        new Promise((resolve) => {
          health.Check({ service: name }, (error, reply) => {
            resolve(error === null ? (reply?.status ?? "") : error.code);
          });
        }),
      );
    }

    const checkAll = (names: readonly string[]): Promise<(string | number)[]> =>
      Promise.all(names.map(check));

    it("is alive from the start, ready once every worker was checked, and not ready in a drain", async () => {
      expect(await check("liveness")).to.equal("SERVING");
      expect(await checkAll(READINESS)).to.deep.equal(Array(3).fill("NOT_SERVING"));
      weir.worker.release();
      await until("Weir is ready", () => weir.app.ready);
      expect(await checkAll(READINESS)).to.deep.equal(Array(3).fill("SERVING"));
      await weir.app.drain(new AbortController().signal);
      expect(await checkAll(READINESS)).to.deep.equal(Array(3).fill("NOT_SERVING"));
      expect(await check("liveness")).to.equal("SERVING");
    });

    it("says NOT_FOUND for a service it does not have", async () => {
      expect(await check("nobody")).to.equal(grpc.status.NOT_FOUND);
    });

    it("tells a watcher each change", async () => {
      const seen: string[] = [];
      const watch = health.Watch({ service: "readiness" });
      watch.on("data", (reply: HealthReply) => seen.push(reply.status));
      watch.on("error", () => undefined);
      await until("the first status", () => seen.length === 1);
      weir.worker.release();
      await until("the change to ready", () => seen.length === 2);
      await weir.app.drain(new AbortController().signal);
      await until("the change in the drain", () => seen.length === 3);
      expect(seen).to.deep.equal(["NOT_SERVING", "SERVING", "NOT_SERVING"]);
      watch.cancel();
    });
  },
  ALL_TRANSPORTS,
);
