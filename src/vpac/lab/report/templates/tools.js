// Shared by the other scripts: the theme, colours by name, and the table of contents.
const vpac = (() => {
  "use strict";
  const listeners = [];
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);

  // Resolve "var(--ink)" or "var(--ink) 0.5" in the current theme; return other values unchanged.
  function colour(name) {
    const parts = /^var\((--[\w-]+)\)(?: ([\d.]+))?$/.exec(name);
    if (!parts) return name;
    probe.style.color = `var(${parts[1]})`;
    const found = getComputedStyle(probe).color;
    return parts[2] ? found.replace(/^rgb\((.*)\)$/, `rgba($1, ${parts[2]})`) : found;
  }

  function data(id) {
    return JSON.parse(document.getElementById(id).textContent);
  }

  function chosenTheme() {
    return document.documentElement.dataset.theme || "system";
  }

  function choose(theme) {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("vpac-theme", theme);
    } catch (error) {
      // No storage: the choice lasts until the page is closed.
    }
    listeners.forEach((listener) => listener());
  }

  for (const radio of document.querySelectorAll("input[name=theme]")) {
    radio.checked = radio.value === chosenTheme();
    radio.addEventListener("change", () => choose(radio.value));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (chosenTheme() === "system") listeners.forEach((listener) => listener());
  });

  // On a phone the contents are folded, and fold again after a click.
  const contents = document.getElementById("contents");
  const narrow = matchMedia("(max-width: 62rem)");
  const fold = () => { contents.open = !narrow.matches; };
  fold();
  narrow.addEventListener("change", fold);
  contents.addEventListener("click", (event) => {
    if (event.target.closest("a") && narrow.matches) contents.open = false;
  });

  return { colour, data, onTheme: (listener) => listeners.push(listener) };
})();
