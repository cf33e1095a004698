// The section `scheduler` from the file to the tables of the core: classes, ceilings of tenants and
// partitions. A title that begins with a letter and a number is a row of the acceptance table.

import { expect } from "chai";
import { perClass, PRIORITY_CLASSES, RANKS } from "../../../extproc/core/model/priority.js";
import { partitionSettings } from "../../../extproc/core/scheduler/partition-settings.js";
import type { PartitionSettings } from "../../../extproc/core/scheduler/partition-settings.js";
import { classReservations } from "../../../extproc/core/scheduler/reservations.js";
import { configOf, problemsOf, WORKER } from "./support.js";

const BULK = {
  reserved_floor: 0,
  reserved_per_slot: 0,
  queue_size: 1024,
  queue_timeout_secs: 300,
  starvation_threshold_secs: 120,
  can_preempt: false,
};
const DEFAULT = {
  reserved_floor: 0,
  reserved_per_slot: 0.1,
  queue_size: 512,
  queue_timeout_secs: 60,
  starvation_threshold_secs: 30,
  can_preempt: false,
};
const INTERACTIVE = {
  reserved_floor: 128,
  reserved_per_slot: 0.25,
  queue_size: 256,
  queue_timeout_secs: 30,
  starvation_threshold_secs: 5,
  can_preempt: true,
};
const SYSTEM = {
  reserved_floor: 32,
  reserved_per_slot: 0,
  queue_size: 64,
  queue_timeout_secs: 30,
  starvation_threshold_secs: 5,
  can_preempt: true,
};

const flow = (value: object): string => JSON.stringify(value);
const scheduler = (fields: string): string => `${WORKER}scheduler: { ${fields} }\n`;
const classes = (listed: object): string => scheduler(`classes: ${flow(listed)}`);
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value);

/** Settings of the partitions, with this many slots in the fleet. */
function settingsOf(text: string, fleetSlots: number): PartitionSettings[] {
  return partitionSettings(configOf(text).scheduler, new Map(), fleetSlots);
}

const sharesOf = ({ classes: table }: PartitionSettings): number[] =>
  table.map(({ queueShare }) => queueShare);

describe("classes", () => {
  it("G1 have the documented defaults", () => {
    expect(configOf(WORKER).scheduler.classes).to.deep.equal([BULK, DEFAULT, INTERACTIVE, SYSTEM]);
  });

  it("G2 an empty section and an empty mapping of classes override nothing", () => {
    for (const text of [scheduler(""), classes({})]) {
      const { classes: table, tenant_policies, admission_partitions } = configOf(text).scheduler;
      expect(table).to.deep.equal([BULK, DEFAULT, INTERACTIVE, SYSTEM]);
      expect(tenant_policies.size + admission_partitions.size).to.equal(0);
    }
  });

  it("G3 a listed class is replaced, the others keep their defaults", () => {
    const text = classes({ interactive: { ...INTERACTIVE, reserved_floor: 200 } });
    expect(configOf(text).scheduler.classes).to.deep.equal([
      ...[BULK, DEFAULT, { ...INTERACTIVE, reserved_floor: 200 }, SYSTEM],
    ]);
  });

  it("a written floor above the slots there are is refused, the shipped floors are not", () => {
    const text = (floor: number, slots: number): string =>
      scheduler(
        `max_concurrent_requests: ${String(slots)}, ` +
          `classes: ${flow({ interactive: { ...INTERACTIVE, reserved_floor: floor } })}`,
      );
    configOf(text(200, 200));
    const [problem, ...more] = problemsOf(text(201, 200));
    expect(more).to.deep.equal([]);
    expect(problem).to.match(
      / scheduler\.classes\.interactive\.reserved_floor: must be at most scheduler\.max_concurrent_requests = 200, got 201$/,
    );
    configOf(text(60_000, -1));
    configOf(scheduler("max_concurrent_requests: 8"));
  });

  it("G3 an unknown class name is refused with the four names, in any spelling but theirs", () => {
    for (const name of ["urgent", "System", "toString"]) {
      expect(problemsOf(classes({ [name]: SYSTEM }))).to.deep.equal([
        `weir.yaml:3:24 scheduler.classes.${name}: is not allowed here; ` +
          "it must be one of bulk, default, interactive, system",
      ]);
    }
  });

  it("G3 a listed class must be whole: all fields but reserved_per_slot, which is then 0", () => {
    const whole = { ...INTERACTIVE, reserved_per_slot: undefined };
    const table = configOf(classes({ interactive: whole })).scheduler.classes;
    expect(table[2]).to.deep.equal({ ...INTERACTIVE, reserved_per_slot: 0 });
    const missing = problemsOf(classes({ interactive: {} }));
    expect(missing.map((line) => line.replace(/^weir\.yaml:3:24 /, ""))).to.deep.equal([
      "scheduler.classes.interactive.reserved_floor: is missing; it must be a whole number from 0 to 65535",
      "scheduler.classes.interactive.queue_size: is missing; it must be a whole number from 0 to 4294967295",
      "scheduler.classes.interactive.queue_timeout_secs: is missing; it must be a whole number from 1 to 3600",
      "scheduler.classes.interactive.starvation_threshold_secs: is missing; " +
        "it must be a whole number from 1 to 3600",
      "scheduler.classes.interactive.can_preempt: is missing; it must be true or false",
    ]);
  });

  it("G4 a zero queue timeout and a zero starvation threshold are refused", () => {
    for (const key of ["queue_timeout_secs", "starvation_threshold_secs"]) {
      const problems = problemsOf(classes({ bulk: { ...BULK, [key]: 0 } }));
      expect(problems).to.have.length(1);
      expect(problems[0]).to.match(
        new RegExp(
          `scheduler\\.classes\\.bulk\\.${key}: must be a whole number from 1 to 3600, got 0$`,
        ),
      );
    }
  });

  it("take each value at its limits and refuse the ones past them", () => {
    const at = (key: string, value: string): string =>
      scheduler(`classes: { default: ${flow({ ...DEFAULT, [key]: "?" }).replace('"?"', value)} }`);
    const whole = (least: number, most: number): [string[], string[], string] => [
      [String(least), String(most)],
      [String(least - 1), String(most + 1), "1.5", ".nan", ".inf", "-.inf", '"5"', "null"],
      `must be a whole number from ${String(least)} to ${String(most)}`,
    ];
    const bounds: Readonly<Record<string, [string[], string[], string]>> = {
      reserved_floor: whole(0, 65_535),
      reserved_per_slot: [
        ["0", "0.1", "1", "1000000"],
        ["-0.001", "-1", ".nan", ".inf", "-.inf", '"0.1"', "null"],
        "must be a finite number of 0 or more",
      ],
      queue_size: whole(0, 4_294_967_295),
      queue_timeout_secs: whole(1, 3600),
      starvation_threshold_secs: whole(1, 3600),
      can_preempt: [["true", "false"], ["yes", "1", "null"], "must be true or false"],
    };
    for (const [key, [good, bad, allowed]] of Object.entries(bounds)) {
      for (const value of good) configOf(at(key, value));
      for (const value of bad) {
        const problems = problemsOf(at(key, value));
        expect(problems, `${key} ${value}`).to.have.length(1);
        expect(problems[0]).to.contain(`scheduler.classes.default.${key}: ${allowed}, got `);
      }
    }
  });

  it("bad numbers everywhere are one line each, all at once", () => {
    const text = `${WORKER}scheduler:
  classes:
    bulk: { reserved_floor: 70000, reserved_per_slot: .nan, queue_size: 1, queue_timeout_secs: 0, starvation_threshold_secs: 1, can_preempt: false }
    system: { reserved_floor: -1, reserved_per_slot: .inf, queue_size: 1.5, queue_timeout_secs: 1, starvation_threshold_secs: 0, can_preempt: 1 }
    urgent: {}
  reserved_share_max: .nan
  starvation_max_share: -0.1
  rate_limit_tokens_per_second: .inf
  tenant_policies: { acme: { max_class: bulk }, "auth:acme": { max_class: urgent } }
  max_concurrent_requests: 10
  queue_size: 4
  admission_partitions:
    default: { max_concurrent_requests: 4, queue_size: 2 }
    kimi: { max_concurrent_requests: 7, queue_size: 3 }
envoy: { max_message_timeout: never }
`;
    expect(
      problemsOf(text).map((line) => line.replace(/^weir\.yaml:(\d+):\d+ /, "$1 ")),
    ).to.deep.equal([
      "5 scheduler.classes.bulk.reserved_floor: must be a whole number from 0 to 65535, got 70000",
      "5 scheduler.classes.bulk.reserved_per_slot: must be a finite number of 0 or more, got NaN",
      "5 scheduler.classes.bulk.queue_timeout_secs: must be a whole number from 1 to 3600, got 0",
      "6 scheduler.classes.system.reserved_floor: must be a whole number from 0 to 65535, got -1",
      "6 scheduler.classes.system.reserved_per_slot: must be a finite number of 0 or more, got Infinity",
      "6 scheduler.classes.system.queue_size: must be a whole number from 0 to 4294967295, got 1.5",
      "6 scheduler.classes.system.starvation_threshold_secs: must be a whole number from 1 to 3600, got 0",
      "6 scheduler.classes.system.can_preempt: must be true or false, got 1",
      "7 scheduler.classes.urgent: is not allowed here; it must be one of bulk, default, interactive, system",
      "8 scheduler.reserved_share_max: must be a number from 0 to 1, got NaN",
      "9 scheduler.starvation_max_share: must be a number from 0 to 1, got -0.1",
      "10 scheduler.rate_limit_tokens_per_second: must be a whole number from 0 to 1000000, got Infinity",
      "11 scheduler.tenant_policies.acme: must be a tenant key: auth:<id>, header:<id>, " +
        "ip:<address> in its shortest spelling, or anonymous",
      '11 scheduler.tenant_policies."auth:acme".max_class: must be one of bulk, default, interactive, ' +
        'system, got "urgent"',
      "14 scheduler.admission_partitions: max_concurrent_requests of all partitions must add up to at " +
        "most scheduler.max_concurrent_requests = 10, got 11 (default 4, kimi 7)",
      "14 scheduler.admission_partitions: queue_size of all partitions must add up to at most " +
        "scheduler.queue_size = 4, got 5 (default 2, kimi 3)",
      "17 envoy.max_message_timeout: must be a duration such as 2s or 500ms, from 6s to 120m, " +
        'got "never"',
    ]);
  });
});

describe("queue shares and floors", () => {
  it("G7 a queue budget is split exactly, the largest share to bulk, and 0 stays 0", () => {
    const split = (size: number): number[] =>
      settingsOf(scheduler(`queue_size: ${String(size)}`), 1000).flatMap(sharesOf);
    expect(split(2000)).to.deep.equal([1103, 551, 275, 71]);
    expect(sum(split(2000))).to.equal(2000);
    expect(split(100)).to.deep.equal([55, 27, 13, 5]);
    expect(split(0)).to.deep.equal([0, 0, 0, 0]);
  });

  it("G8 a partition of 64 in 8000 slots scales floors up, keeps shares and splits its 40 places", () => {
    const [partition] = settingsOf(
      scheduler(
        "max_concurrent_requests: 8000, " +
          "admission_partitions: { default: { max_concurrent_requests: 64, queue_size: 40 } }",
      ),
      8000,
    );
    if (partition === undefined) throw new Error("no partition");
    expect(partition.reservations.map(({ floor }) => floor)).to.deep.equal([0, 0, 2, 1]);
    expect(partition.reservations.map(({ perSlot }) => perSlot)).to.deep.equal([0, 0.1, 0.25, 0]);
    expect(sharesOf(partition)).to.deep.equal([22, 11, 5, 2]);
    expect(sum(sharesOf(partition))).to.equal(40);
  });
});

describe("partitions", () => {
  const part = (slots: number, waiters: number): object => ({
    max_concurrent_requests: slots,
    queue_size: waiters,
  });
  const section = (fields: object): string => `${WORKER}scheduler: ${flow(fields)}\n`;

  it("G9 static and replica-aware partitions are read, and the default partition's name is kept", () => {
    const fixed = configOf(
      section({
        max_concurrent_requests: 8000,
        queue_size: 2000,
        default_admission_partition: "dsv4",
        admission_partitions: {
          dsv4: part(7168, 1600),
          kimi: part(64, 40),
          private: part(128, 80),
        },
      }),
    ).scheduler;
    const perReplica = { max_concurrent_requests_per_healthy_replica: undefined };
    expect([...fixed.admission_partitions]).to.deep.equal([
      ["dsv4", { ...part(7168, 1600), ...perReplica }],
      ["kimi", { ...part(64, 40), ...perReplica }],
      ["private", { ...part(128, 80), ...perReplica }],
    ]);
    expect(fixed.default_admission_partition).to.equal("dsv4");

    const following = configOf(
      section({
        admission_partitions: {
          default: {
            capacity_from_healthy_replicas: true,
            max_concurrent_requests_per_healthy_replica: 34,
            queue_size: 40,
          },
          kimi: { capacity_from_healthy_replicas: true, queue_size: 0 },
        },
      }),
    ).scheduler;
    const none = { max_concurrent_requests: undefined };
    expect([...following.admission_partitions]).to.deep.equal([
      ["default", { ...none, max_concurrent_requests_per_healthy_replica: 34, queue_size: 40 }],
      ["kimi", { ...none, max_concurrent_requests_per_healthy_replica: undefined, queue_size: 0 }],
    ]);
    expect(following.default_admission_partition).to.equal("default");
  });

  it("P2 static slots above the global maximum and waiters above the global queue are refused", () => {
    const two = { default: part(4, 2), kimi: part(7, 3) };
    const of = (max: number, queue: number): string =>
      section({
        max_concurrent_requests: max,
        queue_size: queue,
        admission_partitions: two,
      });
    expect(problemsOf(of(10, 5))).to.deep.equal([
      "weir.yaml:3:57 scheduler.admission_partitions: max_concurrent_requests of all partitions must " +
        "add up to at most scheduler.max_concurrent_requests = 10, got 11 (default 4, kimi 7)",
    ]);
    expect(problemsOf(of(11, 4))).to.deep.equal([
      "weir.yaml:3:57 scheduler.admission_partitions: queue_size of all partitions must add up to at " +
        "most scheduler.queue_size = 4, got 5 (default 2, kimi 3)",
    ]);
    expect(configOf(of(11, 5)).scheduler.admission_partitions.size).to.equal(2);
  });

  it("P2 a replica-aware partition has no fixed slots, a static one no slots per replica", () => {
    const follows = { capacity_from_healthy_replicas: true, queue_size: 0 };
    expect(
      problemsOf(
        section({ admission_partitions: { default: { ...follows, max_concurrent_requests: 4 } } }),
      ),
    ).to.deep.equal([
      "weir.yaml:3:101 scheduler.admission_partitions.default.max_concurrent_requests: must be absent " +
        "while capacity_from_healthy_replicas is true; use max_concurrent_requests_per_healthy_replica",
    ]);
    const both = { ...part(4, 0), max_concurrent_requests_per_healthy_replica: 2 };
    expect(problemsOf(section({ admission_partitions: { default: both } }))).to.deep.equal([
      "weir.yaml:3:91 scheduler.admission_partitions.default.max_concurrent_requests_per_healthy_replica: " +
        "must be absent unless capacity_from_healthy_replicas is true; use max_concurrent_requests",
    ]);
    for (const key of ["max_concurrent_requests", "max_concurrent_requests_per_healthy_replica"]) {
      const replica = key === "max_concurrent_requests" ? {} : follows;
      const of = (value: number): string =>
        section({ admission_partitions: { default: { queue_size: 0, ...replica, [key]: value } } });
      for (const value of [1, 65_535]) configOf(of(value));
      for (const value of [0, -1, 65_536, 1.5]) {
        const problems = problemsOf(of(value));
        expect(problems).to.have.length(1);
        expect(problems[0]).to.contain(
          `scheduler.admission_partitions.default.${key}: must be a whole number from 1 to 65535, ` +
            `got ${String(value)}`,
        );
      }
    }
  });

  it("P2 partitions of both modes are refused at each one that differs from the first", () => {
    const follows = { capacity_from_healthy_replicas: true, queue_size: 0 };
    const text = section({
      admission_partitions: {
        default: part(4, 0),
        kimi: follows,
        other: part(4, 0),
        last: follows,
      },
    });
    expect(problemsOf(text).map((line) => line.replace(/^\S+ /, ""))).to.deep.equal(
      ["kimi", "last"].map(
        (name) =>
          `scheduler.admission_partitions.${name}.capacity_from_healthy_replicas: ` +
          "must be the same for all partitions, got true while default has false",
      ),
    );
  });

  it("do not exist in the limiter, which has one pool", () => {
    const text = section({ enabled: false, admission_partitions: { default: part(4, 0) } });
    expect(configOf(text).scheduler.admission_partitions.size).to.equal(0);
  });
});

describe("ceilings of tenants", () => {
  const policy = (tenant: string): string =>
    `${WORKER}scheduler: { tenant_policies: { ${flow([tenant]).slice(1, -1)}: { max_class: bulk } } }\n`;

  it("are read by tenant key and class", () => {
    const { default_max_class, tenant_policies } = configOf(`${WORKER}scheduler:
  default_max_class: interactive
  tenant_policies: { "auth:acme": { max_class: system }, anonymous: { max_class: bulk } }
`).scheduler;
    expect(default_max_class).to.equal(2);
    expect([...tenant_policies]).to.deep.equal([
      ["auth:acme", 3],
      ["anonymous", 0],
    ]);
  });

  it("take every key a request can have", () => {
    const keys = [
      ...["auth:acme", "auth:spiffe://demo/gateway", "auth:a,b", "header:auth:root", "anonymous"],
      ...["ip:10.0.0.1", "ip:::1", "ip:2001:db8::7", `header:${"x".repeat(256)}`],
    ];
    for (const key of keys) {
      expect([...configOf(policy(key)).scheduler.tenant_policies.keys()], key).to.deep.equal([key]);
    }
  });

  it("refuse a key no request can have, because it would silently apply to nobody", () => {
    const keys = [
      ...["acme", "", "auth:", "auth", "header:", "ip:", "anonymous:x", "Auth:acme", "tenant:a"],
      ...["auth: acme", "auth:a b", "header:a,b", "header:é", `auth:${"x".repeat(257)}`],
      ...["ip:localhost", "ip:10.0.0.1:80", "ip:010.0.0.1", "ip:::0001", "ip:2001:DB8::7"],
      ...["ip:::ffff:10.0.0.1", "ip:10.0.0.0/8", "ip:[::1]"],
    ];
    for (const key of keys) {
      const problems = problemsOf(policy(key));
      expect(problems, key).to.have.length(1);
      expect(problems[0]).to.match(
        /^weir\.yaml:3:33 scheduler\.tenant_policies\..*: must be a tenant key: auth:<id>, header:<id>, ip:/,
      );
    }
  });
});

describe("the hold that Envoy must allow", () => {
  const envoy = (fields: string, section = ""): string =>
    `${WORKER}envoy: { ${fields} }\n${section === "" ? "" : `scheduler: { ${section} }\n`}`;
  const short = flow(
    Object.fromEntries(PRIORITY_CLASSES.map((name) => [name, { ...BULK, queue_timeout_secs: 10 }])),
  );

  it("is computed from the longest queue timeout when it is not given", () => {
    const computed = (text: string): number[] => {
      const { max_message_timeout_ms, stream_idle_timeout_ms } = configOf(text).envoy;
      return [max_message_timeout_ms, stream_idle_timeout_ms];
    };
    expect(computed(WORKER)).to.deep.equal([305_000, 605_000]);
    expect(computed(scheduler(`classes: ${short}`))).to.deep.equal([15_000, 315_000]);
    expect(computed(scheduler("enabled: false"))).to.deep.equal([65_000, 365_000]);
    expect(computed(scheduler("enabled: false, queue_timeout_secs: 9"))).to.deep.equal([
      14_000, 314_000,
    ]);
  });

  it("is taken at what the longest queue timeout needs, and refused below it with the figures", () => {
    const { envoy: exact } = configOf(
      envoy("max_message_timeout: 305s, stream_idle_timeout: 605s"),
    );
    expect(exact.max_message_timeout_ms).to.equal(305_000);
    expect(exact.stream_idle_timeout_ms).to.equal(605_000);
    expect(
      problemsOf(envoy("max_message_timeout: 304.999s, stream_idle_timeout: 604999ms")),
    ).to.deep.equal([
      "weir.yaml:3:10 envoy.max_message_timeout: must be at least 305s, the longest queue timeout " +
        '300 s (scheduler.classes.bulk.queue_timeout_secs) + 5 s, got "304.999s"',
      "weir.yaml:3:41 envoy.stream_idle_timeout: must be at least 605s, the longest queue timeout " +
        '300 s (scheduler.classes.bulk.queue_timeout_secs) + 305 s, got "604999ms"',
    ]);
  });

  it("follows the listed classes, and the limiter's own timeout when the scheduler is off", () => {
    configOf(envoy("max_message_timeout: 15s", `classes: ${short}`));
    expect(problemsOf(envoy("max_message_timeout: 14s", `classes: ${short}`))[0]).to.contain(
      "must be at least 15s, the longest queue timeout 10 s",
    );
    const limiter = "enabled: false, queue_timeout_secs: 20";
    configOf(envoy("max_message_timeout: 25s", limiter));
    expect(problemsOf(envoy("max_message_timeout: 24s", limiter))).to.deep.equal([
      "weir.yaml:3:10 envoy.max_message_timeout: must be at least 25s, the longest queue timeout " +
        '20 s (scheduler.queue_timeout_secs) + 5 s, got "24s"',
    ]);
  });

  it("is not compared with a queue timeout that was refused itself", () => {
    const bad = flow({ bulk: { ...BULK, queue_timeout_secs: 0 } });
    expect(problemsOf(envoy("max_message_timeout: 6s", `classes: ${bad}`))).to.have.length(1);
    expect(
      problemsOf(envoy("max_message_timeout: 6s", "enabled: false, queue_timeout_secs: 0")),
    ).to.have.length(1);
  });

  it("has bounds of its own: what the shortest wait needs, and two hours or a day", () => {
    const limiter = "enabled: false, queue_timeout_secs: 1";
    configOf(envoy("max_message_timeout: 6s, stream_idle_timeout: 306s", limiter));
    configOf(envoy("max_message_timeout: 120m, stream_idle_timeout: 1440m", limiter));
    const bad: readonly (readonly [string, string])[] = [
      ["max_message_timeout: 5999ms", "from 6s to 120m"],
      ["max_message_timeout: 7201s", "from 6s to 120m"],
      ["stream_idle_timeout: 305999ms", "from 306s to 1440m"],
      ["stream_idle_timeout: 1441m", "from 306s to 1440m"],
    ];
    for (const [fields, allowed] of bad) {
      const problems = problemsOf(envoy(fields, limiter));
      expect(problems).to.have.length(1);
      expect(problems[0]).to.contain(`must be a duration such as 2s or 500ms, ${allowed}, got`);
    }
  });

  it("a queue timeout of the limiter beside a running scheduler is refused, not ignored", () => {
    expect(problemsOf(scheduler("queue_timeout_secs: 60"))).to.deep.equal([
      "weir.yaml:3:14 scheduler.queue_timeout_secs: belongs to the limiter (scheduler.enabled: false); " +
        "with the scheduler on, each class has its own: scheduler.classes.*.queue_timeout_secs",
    ]);
    const timeout = (fields: string): number =>
      configOf(scheduler(fields)).scheduler.queue_timeout_secs;
    expect(timeout("enabled: false, queue_timeout_secs: 9")).to.equal(9);
    // The limiter may run after all.
    expect(timeout("fallback_to_limiter: true, queue_timeout_secs: 9")).to.equal(9);
    expect(timeout("enabled: false")).to.equal(60);
  });
});

describe("the rate of requests", () => {
  it("is absent unless given, and 0 is kept apart from absent", () => {
    const rate = (fields: string): number | undefined =>
      configOf(scheduler(fields)).scheduler.rate_limit_tokens_per_second;
    expect(rate("")).to.equal(undefined);
    expect(rate("rate_limit_tokens_per_second: 0")).to.equal(0);
    expect(rate("rate_limit_tokens_per_second: 250")).to.equal(250);
  });
});

describe("the shipped reservations", () => {
  it("leave every class slots in a pool of any size", () => {
    const { classes: table, reserved_share_max } = configOf(WORKER).scheduler;
    const wishes = perClass((rank) => ({
      floor: table[rank].reserved_floor,
      perSlot: table[rank].reserved_per_slot,
    }));
    for (const capacity of [1, 2, 3, 4, 8, 24, 63, 64, 100, 320, 65_535]) {
      const reserved = classReservations(wishes, capacity, reserved_share_max);
      const kept = sum(RANKS.map((rank) => reserved[rank]));
      expect(capacity - kept, String(capacity)).to.be.at.least(1);
    }
  });
});
