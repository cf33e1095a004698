// A real Envoy reads every bootstrap that is shipped. Validation loads the files a bootstrap names,
// so the paths of an installation are replaced by the test certificates.

import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect } from "chai";
import { envoyBinary } from "../../envoy/demo/envoy-binary.mjs";

const run = promisify(execFile);
const scenarios = fileURLToPath(new URL("../../envoy/", import.meta.url));
const certificates = fileURLToPath(new URL("../fixtures/tls", import.meta.url));

async function validate(file: string): Promise<string> {
  const envoy = await envoyBinary();
  const { stdout, stderr } = await run(envoy, [
    "--mode",
    "validate",
    "--log-level",
    "warn",
    "-c",
    file,
  ]);
  return stdout + stderr;
}

describe("a real Envoy", function () {
  // The first test of a fresh checkout fetches Envoy.
  this.timeout(300_000);
  let folder = "";

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "weir-validate-"));
  });

  after(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  it("accepts every shipped bootstrap without a complaint", async () => {
    const files = (await readdir(scenarios)).filter((name) => name.endsWith(".envoy.yaml"));
    expect(files.length).to.be.at.least(6);
    for (const name of files) {
      const text = await readFile(join(scenarios, name), "utf8");
      const file = join(folder, name);
      await writeFile(file, text.replaceAll("/etc/weir/tls", certificates));
      const output = await validate(file);
      expect(output, name).to.match(/OK\s*$/);
      expect(output, name).not.to.match(/deprecated|unknown field/i);
    }
  });

  it("refuses a bootstrap that is broken, so that the test above can fail", async () => {
    const text = await readFile(join(scenarios, "demo.envoy.yaml"), "utf8");
    const file = join(folder, "broken.yaml");
    await writeFile(file, text.replace("merge_slashes", "merge_slahes"));
    let failed = false;
    await validate(file).catch(() => {
      failed = true;
    });
    expect(failed).to.equal(true);
  });
});
