// Follows the running epoch: every two seconds the page's own document says how far it is. A page on which nothing runs
// requests nothing. Texts are set as text.
const live = document.querySelector("[data-live]");

function show(progress) {
  live.querySelector("[data-text]").textContent = progress.text;
  const bar = live.querySelector("progress");
  if (bar !== null) bar.value = Math.min(progress.elapsed_ms, bar.max);
  const publishes = progress.stage === "publishing"; // then its nodes are tables
  for (const node of document.querySelectorAll("[data-node], [data-table]")) {
    const name = publishes ? node.dataset.table : node.dataset.node;
    node.classList.toggle("running", progress.nodes.includes(name));
  }
}

async function refresh() {
  const answer = await fetch(live.dataset.live);
  if (answer.status === 401) live.querySelector("[data-lost]").hidden = false;
  if (!answer.ok) return answer.status !== 401;
  const { progress } = (await answer.json()).data;
  if (progress === null || String(progress.checkpoint_id) !== live.dataset.checkpoint) {
    location.reload(); // it has ended: the page has its figures now
    return false;
  }
  show(progress);
  return true;
}

async function followEpoch() {
  let goOn = true;
  try {
    if (!document.hidden) goOn = await refresh();
  } catch {
    // the server restarts, or the network is away: the next round requests the document again
  }
  if (goOn) setTimeout(followEpoch, 2000);
}
if (live !== null) followEpoch();
