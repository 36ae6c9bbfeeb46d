// Runs before the page is painted, so that a chosen theme does not flash.
(() => {
  "use strict";
  document.documentElement.classList.add("js");
  try {
    const chosen = localStorage.getItem("vpac-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (error) {
    // Some browsers keep nothing for files; the system's theme it is.
  }
})();
