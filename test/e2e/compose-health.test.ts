// Goal: the health check that docker-compose.yml gives to Envoy tells ready from not there. Method:
// its own shell text, with the port replaced, against a real Envoy.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "chai";
import { readCompose } from "../compose/compose-rules.js";
import { startEnvoy } from "../support/envoy.js";
import { freePort } from "../support/ports.js";

const REPOSITORY = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const ADMIN = "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n";

function exitCode(shellText: string): Promise<number | string | undefined> {
  return new Promise((done) => {
    const child = execFile("bash", ["-c", shellText], () => {
      done(child.exitCode ?? child.signalCode ?? undefined);
    });
  });
}

describe("Envoy's health check in docker-compose.yml", () => {
  const { services } = readCompose(readFileSync(join(REPOSITORY, "docker-compose.yml"), "utf8"));
  const test = services["envoy"]?.healthcheck?.test ?? [];
  const text = test.at(-1) ?? "";

  it("is a bash command on the admin port", () => {
    expect(test.slice(0, -1)).to.deep.equal(["CMD", "bash", "-c"]);
    expect(text).to.include("127.0.0.1/9901");
  });

  it("passes while Envoy is ready and fails when nothing listens", async () => {
    const envoy = await startEnvoy(ADMIN);
    try {
      expect(await exitCode(text.replace("9901", String(envoy.adminPort)))).to.equal(0);
    } finally {
      await envoy.stop();
    }
    expect(await exitCode(text.replace("9901", String(await freePort())))).to.not.equal(0);
  });
});
