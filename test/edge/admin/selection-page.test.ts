import { expect } from "chai";
import { selectionPage } from "../../../extproc/edge/admin/selection-page.js";
import { Bench, text, url } from "../../core/selection/support.js";

const PROMPT = text("aaaabbbbcccc");

describe("the selection page", () => {
  it("shows how a model's workers are chosen, what each holds and what is booked on it", () => {
    const bench = new Bench({ workers: 2 });
    bench.own(PROMPT, 1);
    const selection = bench.chosen({ prompt: PROMPT });
    expect(selection.at).to.equal(1);
    const { registry, selector } = bench;
    const models = new Map([
      ["demo", { aliases: [], policy: "cache_aware" as const, ownership: "committed" as const }],
    ]);
    const page = selectionPage(
      { models: models as never, selection: bench.selection },
      selector,
      registry,
    );
    expect(page).to.deep.include({
      max_cached_owners_per_prefix: 0,
      protected_prefixes: 0,
      models: [
        {
          model: "demo",
          policy: "cache_aware",
          ownership: "committed",
          events_block_size: null,
          decisions: [
            { policy: "cache_aware", result: "no_owner", count: 1 },
            { policy: "cache_aware", result: "owner_match", count: 1 },
          ],
        },
      ],
    });
    // Three blocks of the prompt; 3 tokens of input (12 characters) and 4096 of output.
    expect((page as { workers: unknown[] }).workers).to.deep.equal([
      {
        url: url(0),
        live_load: 0,
        processed: 0,
        reserved_tokens: 0,
        claims: 0,
        leased: false,
        committed_blocks: 0,
        event_blocks: 0,
      },
      {
        url: url(1),
        live_load: 0,
        processed: 0,
        reserved_tokens: 4099,
        claims: 1,
        leased: false,
        committed_blocks: 3,
        event_blocks: 0,
      },
    ]);
  });
});
