// Buttons that act: a form with data-url sends a request to Airflow's REST API, with the cookie of the user. Airflow
// checks the permission. Texts are set as text, never as HTML.

const REFUSED = {
  400: "Airflow refuses a value of this form.",
  401: "Your login has ended. Load this page again and log in.",
  403: "Airflow's permissions do not allow you to do this.",
  404: "Airflow has no such DAG or run: it was removed, or its spec is broken.",
  409: "Another user has already done this. Load this page again to see the result.",
  422: "Airflow refuses a value of this form.",
};

// One run id per filled-in form: a second click, or one after a lost answer, triggers no second run.
const runIds = new WeakMap();

function runIdOf(form) {
  const chance = Math.random().toString(36).slice(2, 8);
  if (!runIds.has(form)) runIds.set(form, `manual__${new Date().toISOString()}_${chance}`);
  return runIds.get(form);
}

function typed(field) {
  if (field.type === "checkbox") return field.checked;
  const text = field.value.trim();
  if (text === "") return null;
  return field.dataset.type === "integer" && /^[0-9]{1,15}$/.test(text) ? Number(text) : text;
}

function bodyOf(form) {
  const body = JSON.parse(form.dataset.body);
  if (!form.dataset.runPage) return body;
  body.dag_run_id = runIdOf(form);
  for (const field of form.elements) if (field.dataset.type) body.conf[field.name] = typed(field);
  return body;
}

async function reasonOf(answer) {
  let detail = "";
  try {
    const told = (await answer.json()).detail;
    detail = typeof told === "string" ? told : told.map((one) => one.msg).join("; ");
  } catch {
    // no JSON, such as the page of a proxy
  }
  const sentence = REFUSED[answer.status] || `Airflow answered with status ${answer.status}.`;
  return [400, 422].includes(answer.status) || !REFUSED[answer.status] ? `${sentence} ${detail}`.trim() : sentence;
}

let sending = false;

async function send(form) {
  sending = true;
  const said = form.querySelector("[role=status]");
  const buttons = [...form.querySelectorAll("button")];
  said.textContent = "Sent to Airflow…";
  for (const button of buttons) button.disabled = true;
  let reason;
  try {
    const answer = await fetch(form.dataset.url, {
      method: form.dataset.method,
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(bodyOf(form)),
    });
    const triggered = form.dataset.runPage && (answer.ok || answer.status === 409);
    if (triggered) return location.assign(`${form.dataset.runPage}&run=${encodeURIComponent(runIdOf(form))}`);
    if (answer.ok) return (await refresh()) || location.reload();
    reason = `${form.dataset.about}: ${await reasonOf(answer)}`;
  } catch {
    reason = "Airflow did not answer. Try again: a run that it has begun is not begun twice.";
  }
  said.textContent = reason;
  for (const button of buttons) button.disabled = false;
}

document.addEventListener("submit", (event) => {
  if (!event.target.dataset.url) return;
  event.preventDefault();
  send(event.target).finally(() => (sending = false));
});
document.addEventListener("input", (event) => runIds.delete(event.target.form));

// A part of a page that follows a run: it is replaced by the same part of the page as it is now.
let followed = document.querySelector("[data-refresh]");
let html = followed?.outerHTML;

async function refresh() {
  if (followed === null) return false;
  const answer = await fetch(location.href);
  if (answer.status === 401) followed.querySelector("[data-lost]").hidden = false;
  if (!answer.ok) return false;
  const now = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(followed.id);
  if (now === null) return false;
  if (now.outerHTML === html) return true;
  html = now.outerHTML;
  followed.replaceWith(document.adoptNode(now));
  followed = "refresh" in now.dataset ? now : null;
  return true;
}

async function follow() {
  try {
    if (!document.hidden && !sending) await refresh();
  } catch {
    // the server restarts, or the network is away: the next round requests the page again
  }
  if (followed !== null) setTimeout(follow, 1000);
}
follow();
