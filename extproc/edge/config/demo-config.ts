// The configuration of the demonstration: three mock workers on loopback, few slots and a queue, so
// that sharing can be seen. It is also the shipped example of a weir.yaml, so its comments speak to
// an operator. With a port base every port moves into one block that a test or a second copy on the
// same host can have for itself.

interface DemoPorts {
  readonly envoy: number;
  readonly envoyAdmin: number;
  readonly weirAdmin: number;
  readonly extProc: number;
  /** First of the three worker ports. */
  readonly worker: number;
}

const USUAL_PORTS: DemoPorts = {
  envoy: 10_000,
  envoyAdmin: 9901,
  weirAdmin: 9190,
  extProc: 9002,
  worker: 8101,
};

/** Ports of the demonstration; with base B: B, B+1, B+2, B+3 and B+11 to B+13. */
export function demoPorts(portBase: number | undefined): DemoPorts {
  if (portBase === undefined) return USUAL_PORTS;
  return {
    envoy: portBase,
    envoyAdmin: portBase + 1,
    weirAdmin: portBase + 2,
    extProc: portBase + 3,
    worker: portBase + 11,
  };
}

/** The commented demonstration configuration as YAML. */
export function demoConfigYaml(portBase: number | undefined): string {
  const ports = demoPorts(portBase);
  const workers = [1, 2, 3].map((number) => {
    return `  - url: "http://127.0.0.1:${String(ports.worker + number - 1)}"
    cluster: worker_${String(number)}
    engine: vllm
    models: [demo]
    labels: { max_running_requests: 8 }`;
  });
  return `# Weir in front of three workers on this host. Every key that is not here has its default.

# Where Weir takes ext_proc streams from Envoy (or unix:/run/weir/ext_proc.sock).
listen: { ext_proc: "127.0.0.1:${String(ports.extProc)}" }

# What \`weir bootstrap\` writes into Envoy's configuration. No proxy stands in front of this
# Envoy, so no X-Forwarded-For of a client is believed.
envoy: { port: ${String(ports.envoy)}, admin_port: ${String(ports.envoyAdmin)}, trusted_hops: 0, message_timeout: 2s }

# Health, readiness, metrics and state. Keep it off the public network.
admin: { listen: "127.0.0.1:${String(ports.weirAdmin)}" }

# One entry per engine. Each has an Envoy cluster of its own; max_running_requests is what the
# engine runs at once.
workers:
${workers.join("\n")}

# Clients may also say demo-latest, a name the workers know too: bodies reach them unchanged. A prompt
# goes to a worker that has answered one with the same beginning, as long as its load allows that;
# without such a worker, the less loaded of two taken at random is used.
models: { demo: { aliases: [demo-latest], policy: cache_aware } }

# No header of a client names a tenant. Turn a switch on only for proxies that are listed in peers.
trust: { tenant_id: false, peers: [] }

# At most 24 requests run at once and 100 more wait, each for as long as its class allows: a minute
# in class default. Half of the slots are kept back for the classes above it; how many, and for
# whom, is said by \`classes\` and reserved_share_max, which have their defaults here.
scheduler: { max_concurrent_requests: 24, queue_size: 100 }

# Larger request bodies are refused with 413.
limits: { body_limit_bytes: 33554432 }
`;
}
