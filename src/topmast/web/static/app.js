// What every page does: the theme, keys, times, and drawing itself anew when something happens.
import { install as installActs } from "./acts.js";
import { install as installKeys } from "./keys.js";
import { start as follow } from "./live.js";
import { install as installSelection } from "./selection.js";
import { tick } from "./times.js";

// What takes scripts is shown when all modules of the page have run, so that no click is lost.
document.addEventListener("DOMContentLoaded", () => document.documentElement.classList.add("js"));

/** The next theme: the other one than is shown now. */
function otherTheme() {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return dark ? "light" : "dark";
}

document.getElementById("theme")?.addEventListener("click", () => {
  const next = otherTheme();
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("topmast-theme", next);
  } catch {
    // It holds for this page.
  }
});

installKeys();
installActs();
installSelection();
tick();
setInterval(tick, 1000);
follow();
