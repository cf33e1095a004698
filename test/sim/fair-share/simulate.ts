// `npm run simulate -- --scenario <name>`: how fair is fair sharing? Exit code 2 for wrong arguments.

import { runSimulate } from "./command.js";

process.exitCode = await runSimulate(process.argv.slice(2), {
  print: (text) => {
    console.log(text);
  },
  complain: (text) => {
    console.error(text);
  },
});
