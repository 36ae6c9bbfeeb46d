// Interactive figures: each replaces its static picture when it scrolls into view.
(() => {
  "use strict";
  const touch = matchMedia("(pointer: coarse)").matches;
  const settings = { displayModeBar: false, doubleClick: "reset", showTips: false };
  const drawn = [];

  function themed(value) {
    if (typeof value === "string") return vpac.colour(value);
    if (Array.isArray(value)) return value.map(themed);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(key) ? inner : themed(inner)]));
    }
    return value;
  }

  // These keys hold data and text, never colours.
  function plain(key) {
    return ["x", "y", "z", "text", "customdata", "name", "legendgroup", "ticktext", "hovertemplate"].includes(key);
  }

  function heightOf({ figure: { aspect, extra }, place }) {
    return Math.round(Math.min(Math.max(place.clientWidth * aspect + extra, 240), 560 + extra));
  }

  // Reserve the height of each figure before it is drawn, so that text below does not move.
  function reserve(figure) {
    figure.classList.add("live");
    const elements = figure.querySelectorAll(".plot");
    const plots = vpac.data(`data-${figure.dataset.chart}`).map((content, number) => (
      { figure: content, hidden: new Set(), place: elements[number] }
    ));
    for (const plot of plots) plot.place.style.minHeight = `${heightOf(plot)}px`;
    return plots;
  }

  function layoutOf(plot) {
    const width = plot.place.clientWidth;
    const layout = themed(plot.figure.layout);
    layout.width = width;
    layout.height = heightOf(plot);
    if (touch) layout.dragmode = false; // a finger scrolls the page
    return layout;
  }

  function dataOf(plot) {
    const traces = themed(plot.figure.data);
    traces.forEach((trace, number) => {
      trace.visible = !plot.hidden.has(trace.legendgroup);
      if (trace.meta && trace.meta.band) { // the two traces before a curve are the edges of its band
        const [low, high] = [traces[number - 2], traces[number - 1]];
        low.x = trace.x;
        high.x = trace.x;
        trace.customdata = trace.y.map((_, k) => [low.y[k], high.y[k]]);
      }
    });
    return traces;
  }

  function paint(plot) {
    return Plotly.react(plot.place, dataOf(plot), layoutOf(plot), settings);
  }

  async function start(figure) {
    const plots = reserve(figure);
    const hidden = new Set();
    for (const plot of plots) plot.hidden = hidden;
    try {
      await Promise.all(plots.map(paint));
    } catch (error) {
      figure.classList.remove("live"); // the static picture stays
      throw error;
    }
    drawn.push(...plots);
    for (const plot of plots) plot.place.style.minHeight = "";
    for (const plot of plots) sizes.observe(plot.place);
    for (const button of figure.querySelectorAll(".legend button")) {
      button.addEventListener("click", () => {
        const label = button.dataset.series;
        if (!hidden.delete(label)) hidden.add(label);
        button.setAttribute("aria-pressed", String(!hidden.has(label)));
        plots.forEach(paint);
      });
    }
    figure.dataset.ready = "yes";
  }

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = drawn.find(({ place }) => place === target);
      if (plot && target.clientWidth && target.clientWidth !== plot.width) {
        plot.width = target.clientWidth;
        paint(plot);
      }
    }
  });

  const visible = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) {
        visible.unobserve(target);
        start(target);
      }
    }
  }, { rootMargin: "500px 0px" });

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  figures.forEach(reserve);
  for (const figure of figures) visible.observe(figure);
  addEventListener("resize", () => figures.filter((figure) => !figure.dataset.ready).forEach(reserve));
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  vpac.onTheme(() => drawn.forEach(paint));
})();
