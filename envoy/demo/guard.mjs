// Who ends the demo's programs when `npm start` is killed so hard that it cannot? This process: it
// gets their process ids on stdin ("+123" started, "-123" ended), and when stdin closes, which the
// kernel does whatever way its parent went, it ends those still listed: SIGTERM, then SIGKILL. It
// runs in a session of its own, so that neither Ctrl-C nor a kill of the parent's group reaches it.
const GRACE_MS = 3_000;
const listed = new Set();
let unread = "";

process.stdin.setEncoding("utf8");
process.stdin.on("data", (text) => {
  const lines = (unread + text).split("\n");
  unread = lines.pop();
  for (const line of lines) {
    const pid = Number(line.slice(1));
    if (line.startsWith("+")) listed.add(pid);
    else listed.delete(pid);
  }
});
process.stdin.on("close", () => {
  signalAll("SIGTERM");
  if (listed.size > 0) setTimeout(signalAll, GRACE_MS, "SIGKILL");
});

function signalAll(signal) {
  for (const pid of listed) {
    try {
      process.kill(-pid, signal);
    } catch {
      listed.delete(pid);
    }
  }
}
