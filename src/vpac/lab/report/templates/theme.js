// Runs before the page is painted, so that the wrong theme does not flash.
(() => {
  "use strict";
  document.documentElement.classList.add("js");
  try {
    const chosen = localStorage.getItem("vpac-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (error) {
    // Some browsers have no storage for local files: follow the system's theme.
  }
})();
