// Keys: `/` finds, `j` and `k` walk, `x` selects, `a` goes to the acts, `Enter` opens, `?` tells.
import { toActs } from "./selection.js";

function rows() {
  return /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#main [data-row]")]);
}

function walk(/** @type {number} */ step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + step))];
  next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function current() {
  return /** @type {HTMLElement | null} */ (document.activeElement?.closest("[data-row]") ?? null);
}

function help() {
  /** @type {HTMLDialogElement | null} */ (document.getElementById("keys-help"))?.showModal();
}

const ACTS = /** @type {Record<string, () => void>} */ ({
  "/": () => document.getElementById("search")?.focus(),
  j: () => walk(1),
  k: () => walk(-1),
  x: () => /** @type {HTMLElement | null | undefined} */ (current()?.querySelector("input[type=checkbox]"))?.click(),
  a: toActs,
  "?": help,
  Enter: () => {
    if (document.activeElement?.matches("[data-row]")) {
      /** @type {HTMLElement | null | undefined} */ (current()?.querySelector("a[href]"))?.click();
    }
  },
});

/** Listen to the keys of the whole page. */
export function install() {
  document.getElementById("keys")?.addEventListener("click", help);
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest("dialog[open]")) return;
    if (target.matches("input:not([type=checkbox]), select, textarea, [contenteditable]")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const act = ACTS[event.key];
    if (!act) return;
    if (event.key !== "Enter") event.preventDefault();
    act();
  });
}
