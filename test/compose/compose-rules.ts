// Is docker-compose.yml sound? No Docker engine is needed to ask: this file checks the text by the
// rules of the Compose Specification that matter here (known keys only, references that lead
// somewhere, files that exist) and by our own (loopback ports, read-only mounts). It gives back every
// problem in words; compose.test.ts plants a fault for each.
import { parse } from "yaml";

interface Service {
  readonly image?: string;
  readonly build?: { readonly context?: string; readonly target?: string };
  readonly command?: readonly string[];
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly stop_grace_period?: string;
}

export interface ComposeFile {
  readonly services: Readonly<Record<string, Service>>;
}

/** What lies around the compose file. */
export interface Surroundings {
  /** Whether a path relative to the compose file is there. */
  readonly exists: (path: string) => boolean;
  /** Stages of the Dockerfile; the value says whether the stage has a HEALTHCHECK. */
  readonly stages: ReadonlyMap<string, boolean>;
}

const TOP_KEYS = new Set([
  ...["version", "name", "include", "services", "models", "networks", "volumes", "secrets"],
  "configs",
]);

/** Keys of a service in the Compose Specification. */
const SERVICE_KEYS = new Set([
  ...["annotations", "attach", "blkio_config", "build", "cap_add", "cap_drop", "cgroup"],
  ...["cgroup_parent", "command", "configs", "container_name", "cpu_count", "cpu_percent"],
  ...["cpu_period", "cpu_quota", "cpu_rt_period", "cpu_rt_runtime", "cpu_shares", "cpus"],
  ...["cpuset", "credential_spec", "depends_on", "deploy", "develop", "device_cgroup_rules"],
  ...["devices", "dns", "dns_opt", "dns_search", "domainname", "entrypoint", "env_file"],
  ...["environment", "expose", "extends", "external_links", "extra_hosts", "gpus", "group_add"],
  ...["healthcheck", "hostname", "image", "init", "ipc", "isolation", "label_file", "labels"],
  ...["links", "logging", "mac_address", "mem_limit", "mem_reservation", "mem_swappiness"],
  ...["memswap_limit", "models", "network_mode", "networks", "oom_kill_disable"],
  ...["oom_score_adj", "pid", "pids_limit", "platform", "ports", "post_start", "pre_stop"],
  ...["privileged", "profiles", "provider", "pull_policy", "pull_refresh_after", "read_only"],
  ...["restart", "runtime", "scale", "secrets", "security_opt", "shm_size", "stdin_open"],
  ...["stop_grace_period", "stop_signal", "storage_opt", "sysctls", "tmpfs", "tty", "ulimits"],
  ...["use_api_socket", "user", "userns_mode", "uts", "volumes", "volumes_from", "working_dir"],
]);

const HEALTHCHECK_KEYS = new Set([
  ...["disable", "interval", "retries", "start_interval", "start_period", "test", "timeout"],
]);
const CONDITIONS = new Set([
  ...["service_started", "service_healthy", "service_completed_successfully"],
]);
const DURATION = /^(\d+h)?(\d+m)?(\d+s)?$/;
/** Host address, host port, container port. */
const LOOPBACK_PORT = /^127\.0\.0\.1:\d+:\d+$/;

/** The compose file as it stands after YAML anchors and merge keys. */
export function readCompose(text: string): ComposeFile {
  return parse(text, { merge: true }) as ComposeFile;
}

/** Every problem of a compose file, in the order of its services. */
export function composeProblems(file: ComposeFile, around: Surroundings): readonly string[] {
  const problems = unknownKeys("the file", file, TOP_KEYS);
  for (const [name, service] of Object.entries(file.services)) {
    problems.push(
      ...unknownKeys(name, service, SERVICE_KEYS),
      ...unknownKeys(`${name}.healthcheck`, service.healthcheck ?? {}, HEALTHCHECK_KEYS),
      ...originProblems(name, service, around),
      ...mountProblems(name, service, around),
      ...dependencyProblems(name, service, { file, around }),
    );
    for (const port of service.ports ?? []) {
      if (!LOOPBACK_PORT.test(port)) problems.push(`${name}: port ${port} is not on loopback`);
    }
    const grace = service.stop_grace_period;
    if (grace !== undefined && durationSecs(grace) === undefined) {
      problems.push(`${name}: stop_grace_period ${grace} is no duration`);
    }
  }
  return problems;
}

/** Seconds of a duration like 1h30m or 11m or 5s; undefined when it is none. */
export function durationSecs(text: string): number | undefined {
  const match = DURATION.exec(text);
  if (match === null || text === "") return undefined;
  const [hours, minutes, seconds] = [1, 2, 3].map((group) => Number.parseInt(match[group] ?? "0"));
  return (hours ?? 0) * 3600 + (minutes ?? 0) * 60 + (seconds ?? 0);
}

/** The stages of a Dockerfile by name, and whether each has a HEALTHCHECK. */
export function dockerStages(dockerfile: string): ReadonlyMap<string, boolean> {
  const stages = new Map<string, boolean>();
  let current = "";
  for (const line of dockerfile.split("\n")) {
    const name = /^FROM \S+ AS (\S+)/i.exec(line)?.[1];
    if (name !== undefined) stages.set((current = name), false);
    if (line.startsWith("HEALTHCHECK ")) stages.set(current, true);
  }
  return stages;
}

function unknownKeys(where: string, value: object, known: ReadonlySet<string>): string[] {
  return Object.keys(value)
    .filter((key) => !known.has(key) && !key.startsWith("x-"))
    .map((key) => `${where}: unknown key ${key}`);
}

function originProblems(name: string, service: Service, around: Surroundings): string[] {
  if (service.image === undefined) return [`${name}: no image`];
  const { build } = service;
  if (build === undefined) {
    const pinned = /:v?\d+\.\d+\.\d+$/.test(service.image);
    return pinned ? [] : [`${name}: image ${service.image} has no whole version`];
  }
  if (build.target === undefined || around.stages.has(build.target)) return [];
  return [`${name}: the Dockerfile has no stage ${build.target}`];
}

function mountProblems(name: string, service: Service, around: Surroundings): string[] {
  return (service.volumes ?? []).flatMap((mount) => {
    const [source = "", target = "", mode] = mount.split(":");
    const problems: string[] = [];
    if (!around.exists(source)) problems.push(`${name}: ${source} does not exist`);
    if (!target.startsWith("/")) problems.push(`${name}: ${mount} has no absolute target`);
    if (mode !== "ro") problems.push(`${name}: ${source} is not mounted read-only`);
    return problems;
  });
}

function dependencyProblems(
  name: string,
  service: Service,
  context: { readonly file: ComposeFile; readonly around: Surroundings },
): string[] {
  return Object.entries(service.depends_on ?? {}).flatMap(([other, { condition }]) => {
    const needed = context.file.services[other];
    if (needed === undefined) return [`${name}: depends on ${other}, which is no service`];
    if (!CONDITIONS.has(condition)) return [`${name}: unknown condition ${condition}`];
    const stage = needed.build?.target ?? "";
    const checked = needed.healthcheck !== undefined || context.around.stages.get(stage) === true;
    if (condition !== "service_healthy" || checked) return [];
    return [`${name}: waits for the health of ${other}, which has no health check`];
  });
}
