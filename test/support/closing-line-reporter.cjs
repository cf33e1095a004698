// What does a plain `npx mocha` print? mocha's own listing, and after it one closing line of the form
// `N passed, N failed, N skipped`, which other tools read. (`npm test` sums several runs and prints
// that line itself; its runs use ring-reporter.cjs.)
const { reporters, Runner } = require("mocha");

module.exports = class ClosingLine extends reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    runner.once(Runner.constants.EVENT_RUN_END, () => {
      const { passes, failures, pending } = this.stats;
      console.log(`${passes} passed, ${failures} failed, ${pending} skipped`);
    });
  }
};
