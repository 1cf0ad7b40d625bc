"use strict";
// Zooms the timeline: bars, numbers and ticks are moved; nothing is stretched.
(() => {
  const svg = document.querySelector("svg.timeline"), plot = svg.querySelector(".plot"), axis = svg.querySelector(".axis");
  const width = +plot.getAttribute("width"), left = +plot.getAttribute("x"), span = +plot.dataset.span;
  const lines = plot.querySelector(".ticks"), height = plot.getAttribute("height"), labelY = plot.getAttribute("y");
  const bars = [...plot.querySelectorAll("g > rect")].map((rect) => ({
    rect, x: +rect.getAttribute("x"), w: +rect.getAttribute("width"), number: rect.parentNode.querySelector("text"),
  }));
  const make = (tag, attributes) => {
    const e = document.createElementNS(svg.namespaceURI, tag);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    return e;
  };
  let zoom = 1, from = 0; // from: where the plot begins, in pixels of the whole

  function show() {
    zoom = Math.min(Math.max(zoom, 1), 5000);
    from = Math.min(Math.max(from, 0), width - width / zoom);
    for (const { rect, x, w, number } of bars) {
      const at = (x - from) * zoom, wide = w * zoom;
      rect.setAttribute("x", at);
      rect.setAttribute("width", wide);
      if (!number) continue;
      // The number stays in sight while a part of its bar is.
      const a = Math.max(at, 0), b = Math.min(at + wide, width);
      number.setAttribute("x", (a + b) / 2);
      number.setAttribute("display", b - a > number.textContent.length * 7 + 2 ? "inline" : "none");
    }
    // Ticks are at round times, as in picture.go.
    const least = (span / zoom) * 90 / width, ten = 10 ** Math.floor(Math.log10(least));
    const step = Math.max(1, ten * [1, 2, 5, 10].find((f) => f * ten >= least || f === 10));
    const [unit, name] = step >= 1e9 ? [1e9, "s"] : step >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
    const grid = [], labels = [];
    const begin = (from / width) * span;
    for (let i = Math.ceil(begin / step); i * step <= begin + span / zoom; i++) {
      const x = ((i * step) / span * width - from) * zoom;
      grid.push(make("path", { d: `M${x} 0V${height}` }));
      const label = make("text", { x, y: labelY, dy: -6 });
      label.textContent = `${+((i * step) / unit).toPrecision(12)} ${name}`;
      labels.push(label);
    }
    lines.replaceChildren(...grid);
    axis.replaceChildren(...labels);
  }
  // at returns which pixel of the plot is under the mouse, whatever size the picture has.
  const at = (e) => {
    const box = svg.getBoundingClientRect();
    return (e.clientX - box.left) * (svg.viewBox.baseVal.width / box.width) - left;
  };
  function zoomBy(factor, x) {
    const kept = from + x / zoom;
    zoom = Math.min(Math.max(zoom * factor, 1), 5000);
    from = kept - x / zoom;
    show();
  }
  svg.addEventListener("wheel", (e) => {
    e.preventDefault();
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      from += e.deltaX / zoom;
      show();
    } else zoomBy(1.002 ** -e.deltaY, Math.min(Math.max(at(e), 0), width));
  }, { passive: false });
  let grabbed = null;
  svg.addEventListener("pointerdown", (e) => { grabbed = { x: at(e), from }; svg.setPointerCapture(e.pointerId); });
  svg.addEventListener("pointerup", () => { grabbed = null; });
  svg.addEventListener("pointermove", (e) => {
    if (!grabbed) return;
    from = grabbed.from - (at(e) - grabbed.x) / zoom;
    show();
  });
  document.getElementById("in").addEventListener("click", () => zoomBy(2, width / 2));
  document.getElementById("out").addEventListener("click", () => zoomBy(1 / 2, width / 2));
  document.getElementById("all").addEventListener("click", () => { zoom = 1; show(); });
  for (const id of ["tools", "how"]) document.getElementById(id).hidden = false;
})();
