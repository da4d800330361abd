// What is selected in a list of jobs, hosts, clusters or tenants. A table names its list in `data-boxes`;
// the bar at the foot of the window with the same name in `data-list` shows itself as soon as something
// is selected. Of several lists on a page one has a selection at a time: its acts are about that alone.
import { count } from "./told.js";

function bars() {
  return /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-list]")]);
}

function kindOf(/** @type {HTMLElement} */ bar) {
  return bar.dataset.list ?? "";
}

/** The boxes of a list that select a row each. */
function boxes(/** @type {string} */ kind) {
  return /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll(`[data-boxes="${kind}"] [data-select]`)]);
}

function everything(/** @type {string} */ kind) {
  return /** @type {HTMLInputElement | null} */ (document.querySelector(`[data-boxes="${kind}"] [data-select-matching]`));
}

function selected(/** @type {string} */ kind) {
  return boxes(kind).filter((box) => box.checked).map((box) => box.dataset.select ?? "");
}

/** What an act is about; undefined: nothing is selected. */
export function targetsOf(/** @type {HTMLElement} */ list) {
  const kind = kindOf(list);
  if (everything(kind)?.checked) return { selector: list.dataset.selector ?? "" };
  return selected(kind).length ? { [kind]: selected(kind) } : undefined;
}

/** The rows that an act of a list is about; none of a button that belongs to no list. */
export function selectedRows(/** @type {HTMLElement} */ button) {
  const bar = /** @type {HTMLElement | null} */ (button.closest("[data-list]"));
  const rows = bar ? boxes(kindOf(bar)).filter((box) => box.checked).map((box) => box.closest("[data-row]")) : [];
  return /** @type {HTMLElement[]} */ (rows.filter(Boolean));
}

/** Say how many are selected. */
function show() {
  for (const bar of bars()) {
    const kind = kindOf(bar);
    const many = selected(kind).length;
    const text = everything(kind)?.checked ? `All ${kind} that the filters leave`
      : many ? `${count(many, kind.replace(/s$/, ""))} selected` : "";
    const line = /** @type {HTMLElement} */ (bar.querySelector(".count"));
    if (line.textContent !== text) line.textContent = text;
    bar.hidden = text === "";
  }
}

function clear(/** @type {string} */ kind) {
  const all = document.querySelectorAll(`[data-boxes="${kind}"] :is([data-select], [data-select-matching], [data-select-all])`);
  for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (all)) box.checked = false;
}

/** Select nothing. */
export function unselect() {
  for (const bar of bars()) clear(kindOf(bar));
  show();
}

/** Go to the acts on what is selected. */
export function toActs() {
  bars().find((bar) => !bar.hidden)?.querySelector("button")?.focus();
}

/** A box of a list was changed. */
function changed(/** @type {HTMLInputElement} */ box) {
  const kind = /** @type {HTMLElement | null} */ (box.closest("[data-boxes]"))?.dataset.boxes;
  if (kind === undefined || !box.matches("[data-select], [data-select-all], [data-select-matching]")) return;
  if (box.matches("[data-select-all]")) for (const one of boxes(kind)) one.checked = box.checked;
  if (box.checked) for (const bar of bars()) if (kindOf(bar) !== kind) clear(kindOf(bar));
  show();
}

/** Listen to the boxes of the page. */
export function install() {
  document.addEventListener("change", (event) => changed(/** @type {HTMLInputElement} */ (event.target)));
  document.addEventListener("click", (event) => {
    if (/** @type {HTMLElement} */ (event.target).matches("[data-unselect]")) unselect();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /** @type {HTMLElement} */ (event.target).matches("input:not([type=checkbox]), select");
    if (event.key === "Escape" && !typing && !document.querySelector("dialog[open]")) unselect();
  });
  document.addEventListener("topmast:drawn", show);
  show();
}
