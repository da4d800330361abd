// Before the first paint: the theme that the reader chose, instead of the system's.
(() => {
  try {
    const chosen = localStorage.getItem("topmast-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // A browser that keeps nothing shows the system's theme.
  }
})();
