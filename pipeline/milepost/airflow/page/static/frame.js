// A tab of Airflow is a frame that may neither lead its window elsewhere nor open another. Links to Airflow's own pages
// are therefore followed by the window around it, by a link of its own; where there is none they are links as others.
function followOutside(event) {
  const link = event.target.closest("a[data-airflow]");
  if (link === null || window.parent === window || event.button > 1) return;
  let outside;
  try {
    outside = window.parent.document;
  } catch {
    return; // of another origin: it is not Airflow
  }
  event.preventDefault();
  const again = outside.createElement("a");
  again.href = link.href;
  if (event.button === 1 || event.ctrlKey || event.metaKey || event.shiftKey) {
    again.target = "_blank";
    again.rel = "noopener";
  }
  outside.body.append(again);
  again.click();
  again.remove();
}
document.addEventListener("click", followOutside);
document.addEventListener("auxclick", followOutside);
