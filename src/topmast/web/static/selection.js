// What is selected in a list of jobs or hosts. The bar at the foot of the window, with `data-list`,
// shows itself as soon as something is.
import { count } from "./told.js";

function boxes() {
  return /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll("[data-select]")]);
}

function bar() {
  return /** @type {HTMLElement | null} */ (document.querySelector("[data-list]"));
}

function everything() {
  return /** @type {HTMLInputElement | null} */ (document.querySelector("[data-select-matching]"));
}

function selected() {
  return boxes().filter((box) => box.checked).map((box) => box.dataset.select ?? "");
}

/** What an act is about; undefined: nothing is selected. */
export function targetsOf(/** @type {HTMLElement} */ list) {
  const { list: kind = "", selector = "" } = list.dataset;
  if (everything()?.checked) return { selector };
  return selected().length ? { [kind]: selected() } : undefined;
}

/** Say how many are selected. */
function show() {
  const shown = bar();
  if (!shown) return;
  const every = everything()?.checked ?? false;
  const many = selected().length;
  const noun = (shown.dataset.list ?? "").replace(/s$/, "");
  const text = every ? `All ${noun}s that the filters leave` : many ? `${count(many, noun)} selected` : "";
  const line = /** @type {HTMLElement} */ (shown.querySelector(".count"));
  if (line.textContent !== text) line.textContent = text;
  shown.hidden = text === "";
}

/** Select nothing. */
export function unselect() {
  for (const box of boxes()) box.checked = false;
  for (const name of ["[data-select-matching]", "[data-select-all]"]) {
    const box = /** @type {HTMLInputElement | null} */ (document.querySelector(name));
    if (box) box.checked = false;
  }
  show();
}

/** Go to the acts on what is selected. */
export function toActs() {
  const shown = bar();
  if (shown && !shown.hidden) /** @type {HTMLElement | null} */ (shown.querySelector("button"))?.focus();
}

/** Listen to the boxes of the page. */
export function install() {
  document.addEventListener("change", (event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (box.matches("[data-select-all]")) for (const one of boxes()) one.checked = box.checked;
    if (box.matches("[data-select], [data-select-all], [data-select-matching]")) show();
  });
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
