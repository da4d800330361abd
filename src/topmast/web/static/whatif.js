// The what-if page: begins one by REST, and looks how far it is.
import { refresh } from "./live.js";

const LOOK_MS = 1000;

/**
 * What the form asks for, as the body of a request.
 * @param {FormData} form
 */
function asked(form) {
  const text = (/** @type {string} */ name) => String(form.get(name) ?? "");
  /** @type {Record<string, unknown>} */
  const body = { for_s: Number(text("for")) };
  if (text("add")) body.add_hosts = { [text("add")]: Number(text("count")) };
  if (text("quota")) body.quotas = { [text("quota")]: Number(text("gpus")) };
  if (text("profile")) body.profile = text("profile");
  const [key, value] = text("change").split("=");
  if (text("job") && key) body.jobs = { [text("job")]: { [key]: key === "preemptible" ? value === "true" : value } };
  if (text("lose")) body.lose_regions = [text("lose")];
  return body;
}

/** @param {string} text */
function trouble(text) {
  const line = /** @type {HTMLElement} */ (document.getElementById("whatif-trouble"));
  line.textContent = text;
  line.hidden = text === "";
}

document.addEventListener("submit", async (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.id !== "whatif") return;
  event.preventDefault();
  trouble("");
  try {
    const answer = await fetch("/api/v1/whatif", {
      method: "POST", redirect: "error", headers: { "Content-Type": "application/json" },
      body: JSON.stringify(asked(new FormData(form))),
    });
    const document_ = await answer.json();
    if (answer.ok) location.assign(`/whatif?id=${encodeURIComponent(document_.id)}`);
    else trouble([document_.detail, document_.remedy].filter(Boolean).join("; "));
  } catch {
    trouble("The server does not answer.");
  }
});

setInterval(() => {
  const run = document.getElementById("whatif-run");
  if (run?.dataset.state === "running" && !document.hidden) refresh();
}, LOOK_MS);
