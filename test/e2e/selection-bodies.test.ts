// Goal: a prompt is known by what it says, not by how its JSON is spelled, on every generating path; a
// picture of 20 MB is known again, and streams go on beside it. Method: each prompt in two or three
// spellings through a real Envoy; the worker's own cache says that they are the same prompt to it too.
import { expect } from "chai";
import type { Json, JsonObject } from "../../envoy/mock-worker/json.js";
import { ask, chatOf, message, textOf, type Asked, type Question } from "../support/cached-chat.js";
import { openStream, PACED, produceTokens } from "../support/slots.js";
import { startStack, type Stack } from "../support/stack.js";

const BLOCK_CHARS = 256;
const BLOCK_TOKENS = BLOCK_CHARS / 4;
const CACHE_AWARE = { demo: { policy: "cache_aware", aliases: ["demo-latest"] } };

/** JSON as nobody writes it: keys in reverse order, blanks everywhere, every character escaped. */
function oddly(value: Json = null): string {
  if (typeof value === "string") {
    const escaped = Array.from({ length: value.length }, (_, index) =>
      value.charCodeAt(index).toString(16).padStart(4, "0"),
    );
    return `"${escaped.map((digits) => `\\u${digits}`).join("")}"`;
  }
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return `[ ${(value as readonly Json[]).map(oddly).join(" ,\n ")} ]`;
  const fields = Object.entries(value as JsonObject).reverse();
  return `{\r\n\t${fields.map(([key, one]) => `"${key}" : ${oddly(one)}`).join(" ,\t")} }`;
}

const SYSTEM_BLOCKS = 4;
const USER_BLOCKS = 2;

/** A text with characters that JSON can spell in several ways, in front and all along. */
const awkward = (name: string, chars: number): string =>
  `😀${textOf(`${name}: "é/\\" \t`, chars - 2)}`;

const contentOf = (role: "system" | "user", name: string, blocks: number): string =>
  awkward(`${name} ${role}`, message(role, name, blocks, BLOCK_CHARS).content.length);

interface Spellings {
  readonly path: string;
  /** Full blocks of the prompt, and how many of them an engine can have from its cache. */
  readonly blocks: number;
  readonly cachedBlocks: number;
  readonly bodies: readonly JsonObject[];
}

/** A conversation ends with a block, and the last token of a prompt is always computed. */
const CONVERSATION = {
  blocks: SYSTEM_BLOCKS + USER_BLOCKS,
  cachedBlocks: SYSTEM_BLOCKS + USER_BLOCKS - 1,
};
const TEXT_BLOCKS = 5;
const TEXT = { blocks: TEXT_BLOCKS, cachedBlocks: TEXT_BLOCKS };
const textFor = (name: string): string => awkward(name, TEXT_BLOCKS * BLOCK_CHARS + 7);

function spellingsOf(endpoint: string): Spellings {
  const system = contentOf("system", endpoint, SYSTEM_BLOCKS);
  const user = contentOf("user", endpoint, USER_BLOCKS);
  const text = textFor(endpoint);
  const common = { model: "demo", max_tokens: 3 };
  switch (endpoint) {
    case "chat": {
      const messages = [
        { role: "system", content: system },
        { role: "user", content: user },
      ];
      const parts = [
        { role: "system", content: [{ type: "text", text: system }] },
        { role: "user", content: [{ type: "text", text: user }] },
      ];
      return {
        path: "/v1/chat/completions",
        ...CONVERSATION,
        bodies: [
          { ...common, messages },
          { ...common, messages: parts, temperature: 0.5, user: "somebody" },
          { ...common, model: "demo-latest", messages },
        ],
      };
    }
    case "completions":
      return {
        path: "/v1/completions",
        ...TEXT,
        bodies: [
          { ...common, prompt: text },
          { ...common, prompt: [text], echo: false },
        ],
      };
    case "responses": {
      const common = { model: "demo", max_output_tokens: 3, instructions: system };
      const content = [{ type: "input_text", text: user }];
      return {
        path: "/v1/responses",
        ...CONVERSATION,
        bodies: [
          { ...common, input: user },
          { ...common, input: [{ role: "user", content }], store: false },
        ],
      };
    }
    case "messages":
      return {
        path: "/v1/messages",
        ...CONVERSATION,
        bodies: [
          { ...common, system, messages: [{ role: "user", content: user }] },
          {
            ...common,
            system: [{ type: "text", text: system }],
            messages: [{ role: "user", content: [{ type: "text", text: user }] }],
          },
        ],
      };
    default: {
      const sampling = { max_new_tokens: 3 };
      return {
        path: "/generate",
        ...TEXT,
        bodies: [
          { text, sampling_params: sampling },
          { text, sampling_params: { ...sampling, temperature: 0 }, rid: "a-name" },
        ],
      };
    }
  }
}

describe("one prompt in several spellings, through Envoy", () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 4,
      mock: { blockChars: BLOCK_CHARS, models: ["demo", "demo-latest"] },
      config: { models: CACHE_AWARE },
    });
  });
  after(() => stack.stop());

  async function asked(path: string, body: Question["body"]): Promise<Asked> {
    const answered = await ask(stack, { path, body });
    expect(answered.answer.status, answered.answer.body.toString("utf8")).to.equal(200);
    return answered;
  }

  for (const endpoint of ["chat", "completions", "responses", "messages", "generate"]) {
    it(`of ${endpoint} goes to the one worker that has it, and is found there whole`, async () => {
      const { path, bodies, blocks, cachedBlocks } = spellingsOf(endpoint);
      const [plain = {}, ...others] = bodies;
      const first = await asked(path, plain);
      expect(first.decision).to.include({ result: "no_owner", promptBlocks: blocks });
      expect(first.record.cachedTokens).to.equal(0);
      for (const body of [plain, ...others].flatMap((one) => [JSON.stringify(one), oddly(one)])) {
        expect(JSON.parse(body)).to.be.an("object");
        const again = await asked(path, body);
        expect(again.decision, body.slice(0, 200)).to.include({
          result: "owner_match",
          matchedBlocks: blocks,
          promptBlocks: blocks,
        });
        expect(again.worker).to.equal(first.worker);
        expect(again.record.cachedTokens).to.equal(cachedBlocks * BLOCK_TOKENS);
      }
      // One letter at its begin makes it another prompt.
      const other = JSON.stringify(plain).replaceAll("😀", "😁");
      expect((await asked(path, other)).decision).to.include({ result: "no_owner" });
    });
  }
});

describe("a picture of 20 MB among streams, through Envoy", function () {
  this.timeout(60_000);
  const STREAMS = 6;
  /** More than can be produced, one at a time, while the pictures pass. */
  const STREAM_TOKENS = 2_000;
  /** Base64 of these bytes has 20 million characters. */
  const PICTURE_BYTES = 15_000_000;
  let stack: Stack;
  before(async () => {
    stack = await startStack({
      workers: 4,
      mock: { ...PACED, blockChars: BLOCK_CHARS },
      config: { models: CACHE_AWARE },
    });
  });
  after(() => stack.stop());

  /** Noise, another one for every seed. */
  function pictureOf(seed: number): string {
    const bytes = new Uint32Array(PICTURE_BYTES / 4);
    let state = seed;
    for (let index = 0; index < bytes.length; index += 1) {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      bytes[index] = state;
    }
    return `data:image/png;base64,${Buffer.from(bytes.buffer).toString("base64")}`;
  }

  function aboutPicture(url: string, question: string): Question {
    const shared = textOf("describe the picture", 4 * BLOCK_CHARS);
    const content = [
      { type: "image_url", image_url: { url } },
      { type: "text", text: `${shared}${textOf(question, BLOCK_CHARS)}` },
    ];
    const { body } = chatOf([]);
    return { body: { ...(body as object), messages: [{ role: "user", content }] } };
  }

  it("passes while they get token after token, and the same one goes to the same worker again", async () => {
    const streams = Array.from({ length: STREAMS }, () => openStream(stack, [], STREAM_TOKENS));
    await stack.until("all streams run", () => {
      return stack.workers.reduce((sum, worker) => sum + worker.state().running, 0) === STREAMS;
    });
    let produced = 0;
    /** One more token of every stream, which all their clients get. */
    const step = async (): Promise<void> => {
      await produceTokens(stack, 1);
      produced += 1;
      const told = (): boolean => streams.every((one) => one.contentEvents() >= produced);
      await stack.until(`${String(produced)} tokens at every client`, told);
    };
    await step();
    const working = async (question: Question): Promise<Asked> => {
      const under = { way: true };
      const answered = ask(stack, question).finally(() => {
        under.way = false;
      });
      while (under.way && produced < STREAM_TOKENS - 1) await step();
      return answered;
    };

    const picture = pictureOf(1);
    const first = await working(aboutPicture(picture, "first question"));
    expect(first.answer.status).to.equal(200);
    expect(first.decision).to.include({ result: "no_owner" });
    const second = await working(aboutPicture(picture, "second question"));
    expect(second.worker).to.equal(first.worker);
    expect(second.decision).to.deep.include({ result: "owner_match", owners: 1 });
    // What stands for the picture, and the four blocks behind it.
    expect(second.decision?.matchedBlocks).to.equal(4);
    expect(second.record.cachedTokens).to.be.at.least(4 * BLOCK_TOKENS);
    const other = await working(aboutPicture(pictureOf(2), "first question"));
    expect(other.decision).to.include({ result: "no_owner", matchedBlocks: 0 });

    await produceTokens(stack, STREAM_TOKENS);
    for (const stream of streams) {
      expect(await stream.answer).to.include({ status: 200, complete: true });
      expect(stream.contentEvents()).to.equal(STREAM_TOKENS);
    }
    await stack.idle();
  });
});
