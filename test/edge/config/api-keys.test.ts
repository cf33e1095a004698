// Places of API keys from the file to the question whether a key can be read. No test sees a key.

import { expect } from "chai";
import type { ApiKeySource } from "../../../extproc/core/model/config.js";
import { apiKeyProblems, serviceKeyProblems } from "../../../extproc/edge/config/api-keys.js";
import { configOf, problemsOf } from "./support.js";

const worker = (port: number, fields = ""): string =>
  `  - { url: "http://h:${String(port)}", cluster: c${String(port)}, models: [m]${fields} }\n`;
const workers = (...fields: string[]): string =>
  `workers:\n${fields.map((more, index) => worker(index + 1, more)).join("")}`;

describe("places of API keys", () => {
  it("are kept as the place of the key, an environment variable or a file", () => {
    const text = workers(", api_key_env: VLLM_KEY", ", api_key_file: /run/secrets/key", "");
    expect(configOf(text).workers.map(({ api_key }) => api_key)).to.deep.equal([
      { kind: "env", name: "VLLM_KEY" },
      { kind: "file", path: "/run/secrets/key" },
      undefined,
    ]);
  });

  it("are one per worker: both at once are refused", () => {
    expect(problemsOf(workers("", ", api_key_env: A, api_key_file: /b"))).to.deep.equal([
      "weir.yaml:3:68 workers[1].api_key_file: must be absent while api_key_env is set; keep one of the two",
    ]);
  });

  it("are names and paths up to their longest", () => {
    for (const name of ["A", "_a9", "x".repeat(256)]) configOf(workers(`, api_key_env: ${name}`));
    for (const path of ["k", "./key", "/a b/é", "x".repeat(4096)]) {
      configOf(workers(`, api_key_file: "${path}"`));
    }
    for (const name of ["x".repeat(257), "9A", "A-B", "A B", ""]) {
      expect(problemsOf(workers(`, api_key_env: "${name}"`)), name).to.have.length(1);
    }
    for (const path of ["x".repeat(4097), "a\\nb", "a\\0b", ""]) {
      expect(problemsOf(workers(`, api_key_file: "${path}"`)), path).to.have.length(1);
    }
  });

  it("that are a pasted key are refused without showing it", () => {
    const hidden = "what stands there is not shown, because it may be the key itself";
    expect(
      problemsOf(
        workers(
          ", api_key_env: sk-secret",
          ', api_key_file: "sk-secret\\n"',
          ", api_key: sk-secret",
          ", api_key_env: 12345",
        ),
      ),
    ).to.deep.equal([
      "weir.yaml:2:52 workers[0].api_key_env: is not the name of an environment variable " +
        `(1 to 256 letters, digits and _, no digit first); ${hidden}`,
      "weir.yaml:3:52 workers[1].api_key_file: is not the path of a file " +
        `(1 to 4096 characters, no controls); ${hidden}`,
      "weir.yaml:4:52 workers[2].api_key: a key does not stand in this file; " +
        "name its place with api_key_env or api_key_file",
      "weir.yaml:5:52 workers[3].api_key_env: is not the name of an environment variable " +
        `(1 to 256 letters, digits and _, no digit first); ${hidden}`,
    ]);
  });
});

describe("apiKeyProblems", () => {
  it("reads each place once, and says of which worker it is and how many share it", async () => {
    const { workers: configured } = configOf(
      workers(
        "",
        ", api_key_env: GONE",
        ", api_key_env: HERE",
        ", api_key_file: /gone",
        ", api_key_env: GONE",
        ", api_key_env: GONE",
      ),
    );
    const asked: ApiKeySource[] = [];
    const problems = await apiKeyProblems(configured, (source) => {
      asked.push(source);
      const place = source.kind === "env" ? source.name : source.path;
      return Promise.resolve(
        place === "HERE"
          ? { kind: "key" as const }
          : { kind: "problem" as const, problem: `the key in ${place} is not there` },
      );
    });
    expect(problems).to.deep.equal([
      "workers[1].api_key_env (and 2 more): the key in GONE is not there",
      "workers[3].api_key_file: the key in /gone is not there",
    ]);
    expect(asked).to.deep.equal([
      { kind: "env", name: "GONE" },
      { kind: "env", name: "HERE" },
      { kind: "file", path: "/gone" },
    ]);
  });
});

describe("serviceKeyProblems", () => {
  const gone = (source: ApiKeySource): ReturnType<Parameters<typeof serviceKeyProblems>[1]> =>
    Promise.resolve({ kind: "problem", problem: `nothing in the ${source.kind}` });

  it("names the key of the configuration that leads nowhere, and is silent without credits", async () => {
    expect(
      await serviceKeyProblems({ service_key: { kind: "env", name: "K" } }, gone),
    ).to.deep.equal(["credits.service_key_env: nothing in the env"]);
    expect(
      await serviceKeyProblems({ service_key: { kind: "file", path: "/k" } }, gone),
    ).to.deep.equal(["credits.service_key_file: nothing in the file"]);
    expect(await serviceKeyProblems({ service_key: undefined }, gone)).to.deep.equal([]);
  });

  it("is silent when the key is there", async () => {
    const here = (): Promise<{ kind: "key" }> => Promise.resolve({ kind: "key" });
    const service_key: ApiKeySource = { kind: "env", name: "K" };
    expect(await serviceKeyProblems({ service_key }, here)).to.deep.equal([]);
  });
});
