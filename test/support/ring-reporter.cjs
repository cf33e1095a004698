// How does `npm test` learn what one mocha run counted? This reporter prints mocha's own listing and
// keeps a JSON file up to date: { passed, failed, skipped, failures, current, ended }. The file is
// rewritten at every test, so that the counts of a run that crashes or hangs are known, and the test
// it was in. Its path is in WEIR_RING_REPORT.
const { renameSync, writeFileSync } = require("node:fs");
const { reporters, Runner } = require("mocha");

const events = Runner.constants;

module.exports = class RingReporter extends reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    const path = process.env.WEIR_RING_REPORT;
    const failures = [];
    let current = "loading";
    const write = (ended) => {
      const { passes: passed, failures: failed, pending: skipped } = this.stats;
      const report = { passed, failed, skipped, failures, current, ended };
      writeFileSync(`${path}.new`, JSON.stringify(report));
      renameSync(`${path}.new`, path);
    };
    runner.on(events.EVENT_TEST_BEGIN, (test) => {
      current = test.fullTitle();
      write(false);
    });
    runner.on(events.EVENT_TEST_FAIL, (test) => {
      failures.push(test.fullTitle());
      write(false);
    });
    runner.once(events.EVENT_RUN_END, () => {
      current = "ending";
      write(true);
    });
  }
};
