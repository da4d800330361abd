// Acts on a host: a confirmation that says which jobs are hit, then the act by REST.
import { refresh } from "./live.js";

/** @param {string} text */
function say(text) {
  const line = document.getElementById("host-said");
  if (line !== null) line.textContent = text;
}

/**
 * @param {HTMLFormElement} form
 * @param {string} verb
 */
async function act(form, verb) {
  const reason = String(new FormData(form).get("reason") ?? "");
  try {
    const answer = await fetch(`/api/v1/hosts/${encodeURIComponent(form.dataset.host ?? "")}/${verb}`, {
      method: "POST", redirect: "error", headers: { "Content-Type": "application/json" },
      body: JSON.stringify(reason ? { reason } : {}),
    });
    const told = await answer.json();
    say(answer.ok ? `Done: ${told.name} is ${told.state}.` : [told.detail, told.remedy].filter(Boolean).join("; "));
    if (answer.ok) refresh();
  } catch {
    say("The server does not answer.");
  }
}

document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.id !== "host-acts") return;
  event.preventDefault();
  const button = /** @type {HTMLButtonElement} */ (event.submitter);
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("host-confirm"));
  /** @type {HTMLElement} */ (dialog.querySelector("h2")).textContent = `${button.textContent} ${form.dataset.host}?`;
  /** @type {HTMLElement} */ (dialog.querySelector("p")).textContent = button.dataset.effect ?? "";
  dialog.returnValue = "";
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "yes") void act(form, button.value);
    button.focus();
  }, { once: true });
  dialog.showModal();
});
