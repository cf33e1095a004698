// The section `fair_share` from the file to the maps of the core. A title that begins with a letter
// and a number is a row of the acceptance table.

import { readFileSync } from "node:fs";
import { expect } from "chai";
import type { FairShareConfig } from "../../../extproc/core/model/config.js";
import { tenantKey } from "../../../extproc/core/model/ids.js";
import { configOf, problemsOf, warningsOf, WORKER } from "./support.js";

const flow = (value: object): string => JSON.stringify(value);
const section = (fields: object): string => `${WORKER}fair_share: ${flow(fields)}\n`;
const fairShare = (text: string): FairShareConfig => configOf(text).fair_share;

const MODELS = `workers:
  - { url: "http://127.0.0.1:8101", cluster: a, models: [deepseek-v4-flash] }
  - { url: "http://127.0.0.1:8102", cluster: b, models: [kimi] }
models: { deepseek-v4-flash: { aliases: [deepseek-flash] } }
`;
const TRUSTED = "trust: { request_model: true, tenant_id: true, peers: [10.0.0.1] }\n";
/** Profiles of the two models, in line 6 after the trust switches. */
const profiles = (of: object, trust = TRUSTED): string =>
  `${MODELS}${trust}fair_share: { model_profiles: ${flow(of)} }\n`;

describe("fair share weights", () => {
  it("G5 weights 10 and 5, default 0.5, 128 tokens and a trusted estimate are read back", () => {
    const text = `${section({
      default_weight: 0.5,
      default_output_tokens: 128,
      tenant_weights: { "auth:acme": 10, "auth:beta": 5 },
    })}trust: { output_token_estimate: true }\n`;
    const { default_weight, default_output_tokens, tenant_weights } = fairShare(text);
    expect([default_weight, default_output_tokens]).to.deep.equal([0.5, 128]);
    expect([...tenant_weights]).to.deep.equal([
      ["auth:acme", 10],
      ["auth:beta", 5],
    ]);
    expect(configOf(text).trust.output_token_estimate).to.equal(true);
  });

  /** Each place a weight can stand, as YAML around the value, with the path an error names. */
  const places: readonly (readonly [string, (value: string) => string])[] = [
    ["fair_share.default_weight", (value) => `${WORKER}fair_share: { default_weight: ${value} }\n`],
    [
      'fair_share.tenant_weights."auth:acme"',
      (value) => `${WORKER}fair_share: { tenant_weights: { "auth:acme": ${value} } }\n`,
    ],
    [
      'fair_share.model_profiles.kimi.tenant_weights."auth:acme"',
      (value) =>
        `${MODELS}${TRUSTED}fair_share: { model_profiles: { kimi: { tenant_weights: { "auth:acme": ${value} } } } }\n`,
    ],
    [
      "fair_share.model_profiles.kimi.other_weight",
      (value) =>
        `${MODELS}${TRUSTED}fair_share: { model_profiles: { kimi: { other_weight: ${value} } } }\n`,
    ],
  ];
  for (const [path, text] of places) {
    it(`G5 ${path}: 0, -1, infinity and NaN are refused with tenant and model`, () => {
      const shown = {
        ".inf": "Infinity",
        "-.inf": "-Infinity",
        ".nan": "NaN",
        "1e999": "Infinity",
      };
      for (const value of ["0", "-1", ".inf", "-.inf", ".nan", "1e999", "0.0009", "10001"]) {
        const problems = problemsOf(text(value));
        expect(problems, value).to.have.length(1);
        const got = Object.hasOwn(shown, value) ? shown[value as keyof typeof shown] : value;
        expect(problems[0]).to.contain(
          ` ${path}: must be a number from 0.001 to 10000, got ${got}`,
        );
      }
      for (const value of ['"5"', "null", "[]", "true"]) {
        expect(problemsOf(text(value)), value).to.have.length(1);
      }
      for (const value of ["0.001", "0.5", "1", "10000"]) configOf(text(value));
    });
  }

  it("of a tenant no request can be are refused, in the flat map and in a profile", () => {
    const allowed =
      "must be a tenant key: auth:<id>, header:<id>, ip:<address> in its shortest spelling, or anonymous";
    expect(problemsOf(section({ tenant_weights: { acme: 2, "ip:010.0.0.1": 1 } }))).to.deep.equal([
      `weir.yaml:3:32 fair_share.tenant_weights.acme: ${allowed}`,
      `weir.yaml:3:41 fair_share.tenant_weights."ip:010.0.0.1": ${allowed}`,
    ]);
    expect(problemsOf(profiles({ kimi: { tenant_weights: { "": 2 } } }))).to.deep.equal([
      `weir.yaml:6:58 fair_share.model_profiles.kimi.tenant_weights."": ${allowed}`,
    ]);
    configOf(section({ tenant_weights: { anonymous: 2, "ip:::1": 1, "auth:a,b": 3 } }));
  });

  it("can be given by the environment and by a flag", () => {
    const env = { WEIR_FAIR_SHARE__TENANT_WEIGHTS: '{ "auth:acme": 3 }' };
    const flags = ["--fair_share.default_weight", "2"];
    const { default_weight, tenant_weights } = configOf(WORKER, { env, flags }).fair_share;
    expect([default_weight, tenant_weights.get(tenantKey("auth:acme"))]).to.deep.equal([2, 3]);
  });

  it("are frozen like the rest of the configuration", () => {
    const share = fairShare(profiles({ kimi: { other_weight: 2 } }));
    expect(Object.isFrozen(share)).to.equal(true);
    for (const profile of share.model_profiles.values()) {
      expect(Object.isFrozen(profile)).to.equal(true);
    }
  });
});

describe("model profiles", () => {
  const DEEPSEEK = {
    tenant_weights: { "header:red": 30, "header:blue": 40, "header:green": 10 },
    other_weight: 20,
  };
  const KIMI = { tenant_weights: { "header:red": 80 }, other_weight: 20 };
  const BOTH = { "deepseek-v4-flash": DEEPSEEK, kimi: KIMI };

  const NEEDS =
    "weir.yaml:5:15 fair_share.model_profiles: needs trust.request_model: true, because the header " +
    "x-weir-request-model chooses the profile; turn trust.request_model on, or leave model_profiles out";

  it("G6 are refused while the model header is not trusted, and the message names the key", () => {
    expect(problemsOf(profiles(BOTH, ""))).to.deep.equal([NEEDS]);
    expect(problemsOf(profiles(BOTH, "trust: { request_model: false }\n"))).to.deep.equal([
      NEEDS.replace(":5:", ":6:"),
    ]);
    // Nothing to choose, so nobody has to be trusted.
    configOf(profiles({}, ""));
  });

  it("G6 deepseek 30/40/10 and others 20, kimi 80 and others 20 are read with the header trusted", () => {
    const { model_profiles } = fairShare(profiles(BOTH));
    expect(
      [...model_profiles].map(([model, { tenant_weights, other_weight }]) => [
        model,
        [...tenant_weights],
        other_weight,
      ]),
    ).to.deep.equal([
      [
        "deepseek-v4-flash",
        [
          ["header:red", 30],
          ["header:blue", 40],
          ["header:green", 10],
        ],
        20,
      ],
      ["kimi", [["header:red", 80]], 20],
    ]);
  });

  it("take nothing from the flat weights, and weigh all others 1 when they say nothing", () => {
    const text = `${MODELS}${TRUSTED}fair_share:
  default_weight: 7
  tenant_weights: { "header:red": 9 }
  model_profiles: { kimi: {} }
`;
    const [profile] = fairShare(text).model_profiles.values();
    expect(profile).to.deep.equal({ tenant_weights: new Map(), other_weight: 1 });
  });

  it("without a trusted header are not reported when the switch itself was refused", () => {
    const problems = problemsOf(profiles(BOTH, "trust: { request_model: perhaps }\n"));
    expect(problems).to.deep.equal([
      'weir.yaml:5:10 trust.request_model: must be true or false, got "perhaps"',
    ]);
  });

  it("under a blank name or one with blanks around it are refused once", () => {
    const allowed = "must be a name of 1 to 256 characters without blanks around it";
    for (const name of ["", " ", " kimi", "kimi ", "kimi\t", "x".repeat(257)]) {
      const problems = problemsOf(profiles({ [name]: {} }));
      expect(problems, JSON.stringify(name)).to.have.length(1);
      expect(problems[0]).to.match(/^weir\.yaml:6:\d+ fair_share\.model_profiles\./);
      expect(problems[0]).to.contain(allowed);
    }
  });

  it("under an alias would apply to nobody: the error names the canonical model", () => {
    expect(problemsOf(profiles({ "deepseek-flash": {} }))).to.deep.equal([
      "weir.yaml:6:32 fair_share.model_profiles.deepseek-flash: must be a canonical name, but " +
        '"deepseek-flash" is an alias of deepseek-v4-flash',
    ]);
  });

  it("of a model nobody has are refused, and the nearest name is given", () => {
    const unknown = (name: string): string =>
      `weir.yaml:6:32 fair_share.model_profiles.${name}: must be a model of workers or models, got "${name}"; `;
    expect(problemsOf(profiles({ "deepseek-v4-flsh": {} }))).to.deep.equal([
      `${unknown("deepseek-v4-flsh")}did you mean deepseek-v4-flash?`,
    ]);
    expect(problemsOf(profiles({ KIMI: {} }))).to.deep.equal([
      `${unknown("KIMI")}did you mean kimi?`,
    ]);
    expect(problemsOf(profiles({ qwen: {} }))).to.deep.equal([
      `${unknown("qwen")}known are deepseek-v4-flash, kimi`,
    ]);
    expect(problemsOf(profiles({ toString: {} }))[0]).to.contain(unknown("toString"));
  });

  it("of a model with capitals in its name are found when written small", () => {
    const text = (name: string): string =>
      `workers: [{ url: "http://h:1", cluster: a, models: [ACME-LLM-XL] }]\n${TRUSTED}` +
      `fair_share: { model_profiles: ${flow({ [name]: {} })} }\n`;
    configOf(text("ACME-LLM-XL"));
    expect(problemsOf(text("acme-llm-xl"))[0]).to.contain("did you mean ACME-LLM-XL?");
  });

  it("of a model nobody has are refused with the first eight names when none is near", () => {
    const text = (count: number): string => {
      const served = Array.from({ length: count }, (_, index) => `model_${String(index)}`);
      return (
        `workers: [{ url: "http://h:1", cluster: a, models: ${flow(served)} }]\n${TRUSTED}` +
        "fair_share: { model_profiles: { x: {} } }\n"
      );
    };
    const eight = "model_0, model_1, model_2, model_3, model_4, model_5, model_6, model_7";
    expect(problemsOf(text(8))[0]).to.match(new RegExp(`; known are ${eight}$`));
    expect(problemsOf(text(9))[0]).to.match(new RegExp(`; known are ${eight}, …$`));
  });

  it("may belong to a model that only `models` knows, or only a worker", () => {
    const text = `${WORKER}models: { soon: {} }\n${TRUSTED}fair_share: { model_profiles: { m: {}, soon: {} } }\n`;
    expect([...fairShare(text).model_profiles.keys()]).to.deep.equal(["m", "soon"]);
  });

  it("are not called unknown while a model's own name was refused", () => {
    const broken: readonly string[] = [
      'workers: [{ url: "http://h:1", cluster: a, models: [m, " kimi"] }]\n',
      'workers: [{ url: "http://h:1", cluster: a, models: [] }]\n',
      `${WORKER}models: { " kimi": {} }\n`,
      `${WORKER}models: [kimi]\n`,
      "workers: []\n",
    ];
    for (const text of broken) {
      const problems = problemsOf(
        `${text}${TRUSTED}fair_share: { model_profiles: { kimi: {} } }\n`,
      );
      expect(problems, text).to.have.length(1);
      expect(problems[0]).not.to.contain("fair_share");
    }
  });

  it("show every problem at once", () => {
    const text = profiles(
      { "deepseek-flash": {}, kimi: { other_weight: 0, colour: 1 }, kimmi: {} },
      "",
    );
    const paths = problemsOf(text).map((line) => line.replace(/^\S+ (\S+): .*$/, "$1"));
    expect(paths).to.deep.equal([
      "fair_share.model_profiles",
      "fair_share.model_profiles.deepseek-flash",
      "fair_share.model_profiles.kimi.other_weight",
      "fair_share.model_profiles.kimi.colour",
      "fair_share.model_profiles.kimmi",
    ]);
  });
});

describe("unknown keys of fair_share", () => {
  it("name the nearest known key", () => {
    expect(problemsOf(section({ tenant_weight: {} }))).to.deep.equal([
      "weir.yaml:3:14 fair_share.tenant_weight: is not a known key; did you mean tenant_weights?",
    ]);
    expect(problemsOf(profiles({ kimi: { other_wieght: 1 } }))).to.deep.equal([
      "weir.yaml:6:40 fair_share.model_profiles.kimi.other_wieght: is not a known key; " +
        "did you mean other_weight?",
    ]);
  });
});

describe("the example of docs/configuration.md", () => {
  it("is a sound configuration without a warning", () => {
    const page = readFileSync(new URL("../../../docs/configuration.md", import.meta.url), "utf8");
    const fairShareSection = page.slice(page.indexOf("\n## fair_share\n"));
    const example = /```yaml\n([\s\S]*?)```/.exec(fairShareSection)?.[1] ?? "";
    const worker = 'workers: [{ url: "http://127.0.0.1:8101", cluster: a, models: [large] }]\n';
    const { tenant_weights, model_profiles } = fairShare(worker + example);
    expect([...tenant_weights]).to.deep.equal([
      ["header:red", 2],
      ["header:nightly", 0.5],
    ]);
    expect([...model_profiles.values()].map((profile) => profile.other_weight)).to.deep.equal([30]);
    expect(warningsOf(worker + example)).to.deep.equal([]);
  });
});
