// Acts on jobs, by REST: first a dry run, whose answer the reader sees, then the act itself.
import { refresh } from "./live.js";

const REFUSED_SHOWN = 20;
const TITLES = /** @type {Record<string, string>} */ ({
  hold: "Hold: they do not start until they are released",
  release: "Release: they may start",
  suspend: "Suspend: they stop at a checkpoint, and are held",
  resume: "Resume: what is suspended goes on",
  preempt: "Preempt: they stop at a checkpoint, and wait again",
  requeue: "Requeue: they are tried anew",
  edit: "Change what it asks for",
  cancel: "Cancel: they end for good",
});

/** @typedef {{job: string, effect: string, why: string, gpus: number, lost_gpu_h: number}} Effect */
/** @typedef {{effects: Effect[], counts: Record<string, number>, gpus: number, lost_gpu_h: number}} Acted */
/** @typedef {{jobs?: string[], selector?: string}} Targets */

function boxes() {
  return /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll("[data-select]")]);
}

function allMatching() {
  return /** @type {HTMLInputElement | null} */ (document.querySelector("[data-select-matching]"));
}

function selected() {
  return boxes().filter((box) => box.checked).map((box) => box.dataset.select ?? "");
}

function part(/** @type {Element} */ within, /** @type {string} */ name) {
  return /** @type {HTMLElement} */ (within.querySelector(`[data-part="${name}"]`));
}

function jobs(/** @type {number} */ count) {
  return count === 1 ? "1 job" : `${count.toLocaleString("en")} jobs`;
}

function number(/** @type {number} */ value) {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });
}

/** Say how many jobs are selected, and what can be done to them. */
function show() {
  const line = document.getElementById("selected");
  if (!line) return;
  const every = allMatching()?.checked ?? false;
  const count = selected().length;
  const text = every ? "All jobs that the filters leave" : count ? `${jobs(count)} selected` : "No job is selected";
  if (line.textContent !== text) line.textContent = text;
  for (const button of document.querySelectorAll('[data-acts="page"] [data-verb]')) {
    /** @type {HTMLButtonElement} */ (button).disabled = !every && !count;
  }
}

async function post(/** @type {string} */ verb, /** @type {object} */ body) {
  const answer = await fetch(`/api/v1/jobs/${verb}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    redirect: "error",
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail ?? `the server answers ${answer.status}`);
  return /** @type {Acted} */ (found);
}

/** What an act does, or would do, in one sentence. */
function summary(/** @type {Acted} */ acted) {
  const { done = 0, unchanged = 0, refused = 0 } = acted.counts;
  const parts = [`It changes ${jobs(done)}.`];
  if (unchanged) parts.push(`${jobs(unchanged)} stay${unchanged === 1 ? "s" : ""} as now.`);
  if (refused) parts.push(`${jobs(refused)} cannot be changed so.`);
  if (acted.gpus) parts.push(`${number(acted.gpus)} GPUs become free, and ${number(acted.lost_gpu_h)} GPU-hours of work are lost.`);
  else if (acted.lost_gpu_h) parts.push(`${number(acted.lost_gpu_h)} GPU-hours of work are lost.`);
  return parts.join(" ");
}

function item(/** @type {Effect} */ effect) {
  const line = document.createElement("li");
  const cost = effect.gpus ? ` (${number(effect.gpus)} GPUs, ${number(effect.lost_gpu_h)} GPU-hours lost)` : "";
  line.textContent = `${effect.job}: ${effect.effect === "done" ? "will change" : effect.effect}${cost}${effect.why ? `: ${effect.why}` : ""}`;
  return line;
}

function list(/** @type {HTMLElement} */ dialog, /** @type {Acted} */ acted) {
  const of = part(dialog, "effects");
  of.replaceChildren(...acted.effects.slice(0, REFUSED_SHOWN).map(item));
  const more = acted.effects.length - REFUSED_SHOWN;
  if (more > 0) {
    const line = document.createElement("li");
    line.textContent = `and ${jobs(more)} more`;
    of.append(line);
  }
}

function changesOf(/** @type {HTMLElement} */ dialog, /** @type {string} */ verb) {
  if (dialog.dataset.uiChanges) return { changes: JSON.parse(dialog.dataset.uiChanges) };
  const choice = /** @type {HTMLSelectElement} */ (dialog.querySelector("[name=priority]"));
  return verb === "edit" ? { changes: { priority: choice.value } } : {};
}

/** How many times was asked: only the last answer is shown. */
let asked = 0;

/** Ask what an act would do, and show it. */
async function rehearse(/** @type {HTMLDialogElement} */ dialog, /** @type {string} */ verb, /** @type {Targets} */ targets) {
  const go = /** @type {HTMLButtonElement} */ (part(dialog, "do"));
  const turn = ++asked;
  go.disabled = true;
  part(dialog, "summary").textContent = "Asking what this would do…";
  part(dialog, "effects").replaceChildren();
  try {
    const acted = await post(verb, { ...targets, ...changesOf(dialog, verb), dry_run: true });
    if (turn !== asked) return;
    part(dialog, "summary").textContent = summary(acted);
    list(dialog, acted);
    go.disabled = !acted.counts.done;
  } catch (error) {
    part(dialog, "summary").textContent = `Refused: ${/** @type {Error} */ (error).message}`;
  }
}

/** Ask for a confirmation; `changes`: what `edit` is told, where the reader has chosen it already. */
function confirm(/** @type {HTMLElement} */ button, /** @type {Targets} */ targets) {
  const { verb = "", changes = "" } = button.dataset;
  const dialog = /** @type {HTMLDialogElement} */ (document.querySelector("[data-confirm]"));
  dialog.dataset.uiChanges = changes;
  part(dialog, "title").textContent = TITLES[verb] ?? verb;
  part(dialog, "band").hidden = verb !== "edit" || changes !== "";
  const choice = /** @type {HTMLSelectElement} */ (dialog.querySelector("[name=priority]"));
  const reason = /** @type {HTMLInputElement} */ (dialog.querySelector("[name=reason]"));
  choice.onchange = () => void rehearse(dialog, verb, targets);
  part(dialog, "do").onclick = async () => {
    const go = /** @type {HTMLButtonElement} */ (part(dialog, "do"));
    go.disabled = true;
    try {
      await post(verb, { ...targets, ...changesOf(dialog, verb), reason: reason.value });
      dialog.close("yes");
    } catch (error) {
      part(dialog, "summary").textContent = `Refused: ${/** @type {Error} */ (error).message}`;
    }
  };
  dialog.onclose = () => {
    if (dialog.returnValue !== "yes") return;
    reason.value = "";
    clear();
    refresh();
  };
  dialog.returnValue = "";
  dialog.showModal();
  void rehearse(dialog, verb, targets);
}

/** What the act is about; undefined: nothing is selected. */
function targetsOf(/** @type {HTMLElement} */ acts) {
  const named = acts.dataset.acts ?? "";
  if (named !== "page") return { jobs: [named] };
  if (allMatching()?.checked) return { selector: acts.dataset.selector ?? "" };
  return selected().length ? { jobs: selected() } : undefined;
}

function clear() {
  for (const box of boxes()) box.checked = false;
  const every = allMatching();
  if (every) every.checked = false;
  const all = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-select-all]"));
  if (all) all.checked = false;
  show();
}

/** Listen to the page: its acts and its selection. */
export function install() {
  document.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement} */ (event.target).closest("[data-verb]");
    const acts = button?.closest("[data-acts]");
    if (!(button instanceof HTMLElement) || !(acts instanceof HTMLElement)) return;
    const targets = targetsOf(acts);
    if (targets) confirm(button, targets);
  });
  document.addEventListener("change", (event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (box.matches("[data-select-all]")) for (const one of boxes()) one.checked = box.checked;
    if (box.matches("[data-select], [data-select-all], [data-select-matching]")) show();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /** @type {HTMLElement} */ (event.target).matches("input:not([type=checkbox]), select");
    if (event.key === "Escape" && !typing && !document.querySelector("dialog[open]")) clear();
  });
  document.addEventListener("topmast:drawn", show);
  show();
}
