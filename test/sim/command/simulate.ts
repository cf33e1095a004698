// `npm run simulate -- --scenario <name>`: how fair is fair sharing, and how well are
// limits learned? Exit code 2 for wrong arguments, 1
// for a drawing that cannot be written. When nobody reads on (`| head`), the rest of the lines is
// dropped, and the run goes on to its end, since it may have something to draw.

import { runSimulate } from "./command.js";

for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

process.exitCode = await runSimulate(process.argv.slice(2), {
  print: (text) => {
    console.log(text);
  },
  complain: (text) => {
    console.error(text);
  },
});
