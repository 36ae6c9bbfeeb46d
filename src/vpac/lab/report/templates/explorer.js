// The slider over prices of variance: maps of the policy, the variance and the visitation, and the frontier.
(() => {
  "use strict";
  const slider = document.getElementById("psi");
  if (!slider) return;
  const world = vpac.data("data-explorer");
  const { rows, columns, points, moves } = world;
  const cells = Array.from({ length: rows * columns }, (_, index) => ({
    index, row: Math.floor(index / columns), column: index % columns,
  })).filter(({ index }) => !world.walls[index]);
  const written = (value, digits = 4) => (
    value === null ? "–" : String(Number(value.toPrecision(digits))).replace("-", "−")
  );

  function make(parent, tag, attributes = {}, text = null) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    parent.append(element);
    return element;
  }

  const hex = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  function shade(scale, share) {
    const place = Math.min(Math.max(share, 0), 1) * (scale.length - 1);
    const below = Math.min(Math.floor(place), scale.length - 2);
    const [a, b] = [hex(scale[below]), hex(scale[below + 1])];
    return `rgb(${a.map((part, k) => Math.round(part + (place - below) * (b[k] - part))).join(",")})`;
  }

  // The edges between frozen cells and the others.
  function outline() {
    const frozen = (row, column) => (
      row >= 0 && column >= 0 && row < rows && column < columns && world.frozen[row * columns + column]
    );
    let path = "";
    for (const { row, column } of cells.filter(({ index }) => world.frozen[index])) {
      if (!frozen(row - 1, column)) path += `M${column},${row}h1`;
      if (!frozen(row + 1, column)) path += `M${column},${row + 1}h1`;
      if (!frozen(row, column - 1)) path += `M${column},${row}v1`;
      if (!frozen(row, column + 1)) path += `M${column + 1},${row}v1`;
    }
    return path;
  }

  function hatch() {
    return cells.filter(({ index }) => world.frozen[index]).map(({ row, column }) => (
      `M${column + 0.06},${row + 0.3}l0.24,-0.24M${column + 0.7},${row + 0.94}l0.24,-0.24`
    )).join("");
  }

  function frame(id) {
    const svg = document.getElementById(id);
    svg.setAttribute("viewBox", `0 0 ${columns} ${rows}`);
    make(svg, "rect", { width: columns, height: rows, class: "wall" });
    return svg;
  }

  function finish(svg) {
    make(svg, "path", { d: hatch(), class: "hatch-under" });
    make(svg, "path", { d: hatch(), class: "hatch" });
    make(svg, "path", { d: outline(), class: "edge-under" });
    make(svg, "path", { d: outline(), class: "edge" });
    const [row, column] = world.goal;
    make(svg, "circle", { cx: column + 0.5, cy: row + 0.5, r: 0.4, class: "goal" });
    make(svg, "text", { x: column + 0.5, y: row + 0.72, class: "goal-letter" }, "G");
  }

  function arrow(cell, action) {
    const [down, right] = moves[action];
    const [x, y] = [cell.column + 0.5, cell.row + 0.5];
    const size = 0.32 / Math.hypot(down, right);
    const tip = [x + size * right, y + size * down];
    const side = (turn) => [
      tip[0] - 0.55 * size * (right + turn * 0.8 * down), tip[1] - 0.55 * size * (down - turn * 0.8 * right),
    ];
    return `M${x - size * right},${y - size * down}L${tip}M${side(1)}L${tip}L${side(-1)}`;
  }

  function policyMap(id) {
    const svg = frame(id);
    for (const { row, column } of cells) make(svg, "rect", { x: column, y: row, width: 1, height: 1, class: "floor" });
    finish(svg);
    const same = make(svg, "path", { class: "arrow" });
    const other = make(svg, "path", { class: "arrow changed" });
    return (point) => {
      const acting = cells.filter(({ index }) => point.actions[index] >= 0);
      const changed = acting.filter(({ index }) => point.actions[index] !== points[0].actions[index]);
      const paths = (chosen) => chosen.map((cell) => arrow(cell, point.actions[cell.index])).join("");
      same.setAttribute("d", paths(acting.filter((cell) => !changed.includes(cell))));
      other.setAttribute("d", paths(changed));
      svg.setAttribute("aria-label", `Policy at ψ = ${written(point.psi)}: an arrow in each cell; `
        + `${changed.length} of ${acting.length} differ from ψ = ${written(points[0].psi)}`);
    };
  }

  function valueMap(id, key, scale, words) {
    const svg = frame(id);
    const squares = cells.map(({ row, column }) => {
      const square = make(svg, "rect", { x: column, y: row, width: 1.01, height: 1.01 });
      return { square, hint: make(square, "title") };
    });
    finish(svg);
    const highest = Math.max(...points.flatMap((point) => point[key]));
    document.getElementById(`${id}-high`).textContent = written(highest, 3);
    const bar = document.getElementById(`${id}-bar`);
    bar.style.background = `linear-gradient(to right, ${scale.join(", ")})`;
    return (point) => {
      cells.forEach(({ index, row, column }, number) => {
        const value = point[key][index];
        const { square, hint } = squares[number];
        if (value === null) square.setAttribute("class", "floor");
        else square.setAttribute("fill", shade(scale, value / highest));
        hint.textContent = value === null ? "goal" : `row ${row}, column ${column}: ${written(value)}`;
      });
      const top = Math.max(...point[key]);
      svg.setAttribute("aria-label", `${words} at ψ = ${written(point.psi)}: at most ${written(top, 3)} in a cell`);
    };
  }

  // About five round numbers between two ends.
  function ticks(low, high) {
    const rough = (high - low) / 6;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high; k += 1) found.push(Number((k * step).toPrecision(6)));
    return found;
  }

  function frontier(id, choose) {
    const svg = document.getElementById(id);
    svg.replaceChildren();
    const [width, height, left, bottom, edge] = [svg.clientWidth || 600, svg.clientHeight || 240, 58, 44, 14];
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const padded = (values, below) => {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const space = high - low || 10;
      return [low - below * space, high + 0.08 * space];
    };
    const [x0, x1] = padded(points.map(({ variance }) => variance), 0.08);
    const [y0, y1] = padded(points.map(({ mean }) => mean), 0.2);
    const x = (variance) => left + ((variance - x0) / (x1 - x0)) * (width - left - edge);
    const y = (mean) => height - bottom - ((mean - y0) / (y1 - y0)) * (height - bottom - edge);
    for (const value of ticks(x0, x1)) {
      make(svg, "path", { d: `M${x(value)},${edge}V${height - bottom}`, class: "gridline" });
      make(svg, "text", { x: x(value), y: height - bottom + 15, class: "tick middle" }, written(value));
    }
    for (const value of ticks(y0, y1)) {
      make(svg, "path", { d: `M${left},${y(value)}H${width - edge}`, class: "gridline" });
      make(svg, "text", { x: left - 6, y: y(value) + 4, class: "tick end" }, written(value));
    }
    make(svg, "text", { x: (left + width - edge) / 2, y: height - 6, class: "tick middle" }, "variance of the return");
    make(svg, "text", { x: -(height - bottom + edge) / 2, y: 14, transform: "rotate(-90)", class: "tick middle" }, "mean return");
    make(svg, "path", { d: `M${points.map((point) => [x(point.variance), y(point.mean)]).join("L")}`, class: "frontier" });
    points.forEach((point, number) => {
      const dot = make(svg, "circle", { cx: x(point.variance), cy: y(point.mean), r: 4, class: "dot" });
      make(dot, "title", {}, `ψ = ${written(point.psi)}`);
      dot.addEventListener("click", () => choose(number));
    });
    const ring = make(svg, "circle", { r: 9, class: "ring" });
    const core = make(svg, "circle", { r: 5, class: "core" });
    const label = make(svg, "text", { class: "here" });
    return (point) => {
      const [cx, cy] = [x(point.variance), y(point.mean)];
      for (const mark of [ring, core]) {
        mark.setAttribute("cx", cx);
        mark.setAttribute("cy", cy);
      }
      label.textContent = `ψ = ${written(point.psi)}`;
      const onLeft = cx > width * 0.6;
      label.setAttribute("x", cx + (onLeft ? -14 : 14));
      label.setAttribute("y", cy + 18);
      label.setAttribute("text-anchor", onLeft ? "end" : "start");
      svg.setAttribute("aria-label", `Frontier: ψ = ${written(point.psi)} is at variance ${written(point.variance)} `
        + `and mean ${written(point.mean)}`);
    };
  }

  const views = [
    policyMap("map-policy"),
    valueMap("map-variance", "cellVariance", world.scales.variance, "Variance of the return from each cell"),
    valueMap("map-visitation", "visitation", world.scales.visitation, "Visits of each cell"),
  ];
  let onFrontier = null;

  function choose(number) {
    slider.value = String(number);
    show();
  }

  function show() {
    const point = points[Number(slider.value)];
    for (const name of ["psi", "mean", "variance", "std", "sharpe"]) {
      const place = document.getElementById(`now-${name}`);
      place.textContent = written(point[name]);
      place.dataset.value = String(point[name]);
    }
    slider.setAttribute("aria-valuetext", `ψ = ${written(point.psi)}`);
    views.forEach((view) => view(point));
    onFrontier(point);
  }

  // Redraw the frontier, whose units are pixels, for each width, so that its text stays legible on a phone.
  const place = document.getElementById("map-frontier");
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth && place.clientWidth !== width) {
      width = place.clientWidth;
      onFrontier = frontier("map-frontier", choose);
      onFrontier(points[Number(slider.value)]);
    }
  }).observe(place);
  onFrontier = frontier("map-frontier", choose);

  slider.addEventListener("input", show);
  show();
})();
