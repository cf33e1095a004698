// How do tests speak HTTPS with a client certificate? One request over node:https that trusts the
// test authority of test/fixtures/tls only. A handshake that the server refuses rejects.
import { readFileSync } from "node:fs";
import { request } from "node:https";
import { fileURLToPath } from "node:url";

export type TlsIdentity = "client" | "gateway";

export interface TlsAnswer {
  readonly status: number;
  readonly body: string;
}

const LIMIT_MS = 10_000;
const folder = new URL("../fixtures/tls/", import.meta.url);

/** Path of a file of the test authority, for instance "server.pem". */
export function tlsFile(name: string): string {
  return fileURLToPath(new URL(name, folder));
}

/** Posts JSON; `identity` chooses the client certificate, absent = none is shown. */
export function postOverTls(options: {
  readonly port: number;
  readonly path: string;
  readonly body: string;
  readonly identity?: TlsIdentity;
  readonly headers?: Readonly<Record<string, string>>;
}): Promise<TlsAnswer> {
  const { identity } = options;
  const shown =
    identity === undefined
      ? {}
      : {
          cert: readFileSync(tlsFile(`${identity}.pem`)),
          key: readFileSync(tlsFile(`${identity}.key`)),
        };
  return new Promise((done, failed) => {
    const sent = request({
      host: "127.0.0.1",
      port: options.port,
      path: options.path,
      method: "POST",
      agent: false,
      ca: readFileSync(tlsFile("ca.pem")),
      ...shown,
      timeout: LIMIT_MS,
      headers: { "content-type": "application/json", ...options.headers },
    });
    sent.on("timeout", () => {
      sent.destroy(new Error(`no answer in ${String(LIMIT_MS)} ms`));
    });
    sent.on("error", failed);
    sent.on("response", (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (text: string) => {
        body += text;
      });
      response.on("error", failed);
      response.on("end", () => {
        done({ status: response.statusCode ?? 0, body });
      });
    });
    sent.end(options.body);
  });
}
