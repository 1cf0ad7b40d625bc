"use strict";
// Shows the columns, of which only the part in view exists as elements, and answers the mouse in the picture. All of
// it comes from one JSON value, whose form is pageModel in page.go. Text gets into the page as text nodes only.
(() => {
  const $ = (id) => document.getElementById(id);
  const model = JSON.parse($("model").textContent);
  const { stages, sizes, slots, taskGraphs, classes } = model;
  const phases = ["forward", "backward", "apply"];
  const rowHeight = 20; // --row in page.css
  const chunk = 12; // lines are rendered anew whenever that many have scrolled by
  const maxNames = 8; // inputs shown in a line; the detail shows all
  const markColours = 8; // .m0 to .m7 in page.css

  // el makes an element with text or elements inside.
  function el(tag, className, ...children) {
    const e = document.createElement(tag);
    if (className) e.className = className;
    e.append(...children);
    return e;
  }

  // ---- The model: lines, and where values are defined and used. ----

  const where = new Map(); // value → slots in which some stage defines or uses it
  slots.forEach((lines, slot) => {
    for (const l of lines) {
      l.slot = slot;
      l.a ||= 0;
      l.z ||= stages.length;
      l.outs = l.s ? l.s.split(";") : [];
      l.names = l.k ? [] : l.outs.map((_, i) => (i ? `${l.i}.${i}` : `${l.i}`));
      l.inputs = l.n ? l.n.split(" ") : [];
      l.twin = l.w ? l.w.split(" ") : [];
      for (const v of [...l.names, ...l.inputs, ...l.twin]) {
        if (!where.has(v)) where.set(v, []);
        const list = where.get(v);
        if (list[list.length - 1] !== slot) list.push(slot);
      }
    }
  });
  const lineAt = (slot, stage) => slots[slot].find((l) => l.a <= stage && stage < l.z);
  const defines = (l, v) => l.names.includes(v);
  const taskGraphOf = (l) => (l.t ? taskGraphs[l.t - 1] : "outside");
  const colourOf = (l) => (l.t ? classes[l.t - 1] : classes[classes.length - 1]);
  const percent = (v) => (v === "_" ? v : "%" + v);
  const shapeOf = (l) => l.outs.join(", ");

  function bytesOf(l) {
    let n = 0;
    for (const s of l.outs) n += sizes[s];
    if (n < 1024) return n + " B";
    const e = Math.min(6, Math.floor(Math.log(n) / Math.log(1024)));
    return (n / 1024 ** e).toFixed(1) + " " + "KMGTPE"[e - 1] + "iB";
  }

  // What happened to a line, seen from a stage: "new", "changed", "gone" (the next stage lacks it) or "".
  function fate(l, stage) {
    const lines = slots[l.slot];
    if (l.a === stage && stage > 0) return lines.some((o) => o.z === stage) ? "changed" : "new";
    if (l.z === stage + 1 && l.z < stages.length && !lines.some((o) => o.a === l.z)) return "gone";
    return "";
  }

  // text is what the filter looks at, with spaces around values so that %1 does not find %12.
  function text(l) {
    return (l.text ||= ` ${[...l.names, ...l.inputs, ...l.twin].map(percent).join(" ")} ${l.o || ""} ${l.x || ""} ${shapeOf(l)} ${l.l || ""} ${l.g || ""} ${l.k ? "" : taskGraphOf(l) + " " + phases[l.p || 0]} `.toLowerCase());
  }

  // ---- Marks: values in colour. They live in the address, as #v12,v40.1. ----

  const marks = new Map(); // value → colour

  function mark(v) {
    const taken = new Set(marks.values());
    let c = 0;
    while (taken.has(c)) c++;
    if (c === markColours) { // the oldest gives its colour
      const oldest = marks.keys().next().value;
      c = marks.get(oldest);
      marks.delete(oldest);
    }
    marks.set(v, c);
  }

  function toggle(v) {
    if (!marks.delete(v)) mark(v);
    marksChanged();
  }

  function marksChanged() {
    const hash = [...marks.keys()].map((v) => "v" + v).join(",");
    history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
    showMarks();
  }

  function showMarks() {
    $("marks").replaceChildren(...[...marks].map(([v, c]) => {
      const b = el("button", "m" + c, percent(v) + " ×");
      b.type = "button";
      b.title = `remove the mark; in ${where.get(v).length} lines`;
      b.onclick = () => toggle(v);
      return b;
    }));
    for (const a of document.querySelectorAll("main a.v")) paint(a, a.getAttribute("href").slice(2));
    render(true);
    pictures.forEach((p) => p.showMarks());
  }

  function paint(a, v) {
    const c = marks.get(v);
    a.className = c === undefined ? "v" : "v marked m" + c;
  }

  // show marks values and goes to where the last of them is defined.
  function show(values) {
    values = values.filter((v) => where.has(v));
    if (!values.length) return;
    values.filter((v) => !marks.has(v)).forEach(mark);
    marksChanged();
    const v = values[values.length - 1];
    goTo(where.get(v).find((s) => slots[s].some((l) => defines(l, v))) ?? where.get(v)[0]);
  }

  // readHash shows what the address names.
  function readHash() {
    show(location.hash.slice(1).split(",").filter((h) => h[0] === "v").map((h) => h.slice(1)));
  }

  // ---- Columns. ----

  const scroller = $("columns");
  const columns = stages.map((s, stage) => {
    const button = el("button", "", s.name);
    button.type = "button";
    const counts = el("span", "counts dim", ` ${s.ops} ops`);
    for (const [n, sign, c] of [[s.added, "+", "plus"], [s.changed, "~", "tilde"], [s.removed, "−", "minus"]]) {
      if (n) counts.append("  ", el("span", c, sign + n));
    }
    const file = el("a", "", "text");
    if (s.file) file.href = s.file; else file.hidden = true;
    const why = el("div", "why", s.why);
    why.title = s.why;
    const body = el("div", "body");
    const lines = el("div", "lines");
    const cursor = el("div", "cursor");
    const box = el("div", "col", el("div", "head", file, button, counts, why), body);
    body.append(cursor, lines);
    const col = { stage, box, body, lines, cursor, open: stage === 0 || s.added + s.changed + s.removed > 0 };
    button.onclick = () => fold(col, !col.open);
    button.title = "fold or unfold " + s.name;
    // The grip at the head's corner widens the column.
    const head = box.firstChild; // resize: horizontal
    new ResizeObserver(() => { if (col.open && head.style.width) { box.style.width = head.style.width; } }).observe(head);
    scroller.append(box);
    return col;
  });
  const anyChange = columns.some((c) => c.stage > 0 && c.open);
  if (!anyChange && columns.length > 1) columns[columns.length - 1].open = true;

  function fold(col, open) {
    col.open = open;
    layout();
  }

  // layout brings the columns up to date with which of them are open, and which slots are in view.
  let view = [];
  function layout() {
    const text0 = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const tg = $("by-taskgraph").value, phase = $("by-phase").value;
    const onlyChanges = $("only-changes").checked, leaves = $("leaves").checked;
    const open = columns.filter((c) => c.open).map((c) => c.stage);
    const selective = text0.length || tg !== "" || phase !== "" || onlyChanges || !leaves;
    const matches = (l) =>
      (leaves || !l.f) &&
      (tg === "" || (!l.k && (l.t || 0) === +tg)) &&
      (phase === "" || (!l.k && (l.p || 0) === +phase)) &&
      text0.every((w) => text(l).includes(w[0] === "%" ? ` ${w} ` : w));
    view = [];
    let all = 0;
    slots.forEach((lines, slot) => {
      if (!lines.some((l) => open.some((s) => l.a <= s && s < l.z))) return;
      all++;
      if (onlyChanges && lines.length === 1 && lines[0].a === 0 && lines[0].z === stages.length) return;
      if (selective && !lines.some(matches)) return;
      view.push(slot);
    });
    $("shown").textContent = view.length === all ? `${all} lines` : `${view.length} of ${all} lines`;
    for (const c of columns) {
      c.box.classList.toggle("folded", !c.open);
      c.box.querySelector("button").setAttribute("aria-expanded", c.open);
      if (!c.open) c.box.style.width = "";
      c.body.style.height = view.length * rowHeight + "px";
    }
    if (current && !view.includes(current.slot)) current = null;
    render(true);
  }

  let rendered = ""; // what render last drew
  function render(force) {
    const top = Math.floor(scroller.scrollTop / rowHeight / chunk) * chunk;
    const first = Math.max(0, top - chunk);
    const last = Math.min(view.length, top + Math.ceil(scroller.clientHeight / rowHeight) + 2 * chunk);
    const left = scroller.scrollLeft, right = left + scroller.clientWidth;
    // Columns that are out of sight are left as they are.
    const seen = columns.filter((c) => c.open && c.box.offsetLeft < right && c.box.offsetLeft + c.box.offsetWidth > left);
    const key = first + " " + last + " " + seen.map((c) => c.stage);
    if (!force && key === rendered) return;
    rendered = key;
    for (const c of seen) {
      const lines = [];
      for (let i = first; i < last; i++) {
        const l = lineAt(view[i], c.stage);
        lines.push(l ? lineElement(l, c.stage) : el("div", "line gap"));
        lines[lines.length - 1].dataset.slot = view[i];
      }
      c.lines.style.transform = `translateY(${first * rowHeight}px)`;
      c.lines.replaceChildren(...lines);
    }
    showCursor();
  }

  function valueElement(v) {
    if (v === "_") return "_";
    const a = el("a", "", percent(v));
    a.href = "#v" + v;
    a.tabIndex = -1; // the arrow keys get there; tabbing through thousands would not
    paint(a, v);
    return a;
  }

  function valueList(values, most) {
    const list = [];
    let hidden = 0;
    values.forEach((v, i) => {
      if (i >= most && !marks.has(v)) return void hidden++;
      if (list.length) list.push(" ");
      list.push(valueElement(v));
    });
    if (hidden) list.push(` … ${hidden} more`);
    return list;
  }

  // endElement shows the end of a text that is too long: its box runs right to left, the text in it does not.
  function endElement(className, text) {
    const inner = el("bdi", "", text);
    inner.dir = "ltr";
    return el("span", className, inner);
  }

  function lineElement(l, stage) {
    const f = fate(l, stage);
    const sign = { new: "+", changed: "~", gone: "−" }[f] || "";
    const line = el("div", "line " + f);
    const bar = el("span", "bar " + (l.k ? "" : colourOf(l)));
    const indent = "  ".repeat(l.d || 0);
    const op = l.o || "";
    if (l.k) {
      line.classList.add(l.k === 1 ? "open" : "return");
      line.append(bar, el("span", "sign", sign), el("span", "phase"), el("span", "def"),
        l.k === 1 ? el("span", "what", indent, op + ":") : el("span", "what", indent, "return ", ...valueList(l.inputs, maxNames)));
      return line;
    }
    const what = el("span", "what", indent, el("b", "", op));
    if (l.inputs.length) what.append(" ", ...valueList(l.inputs, maxNames));
    if (l.twin.length) what.append(" twin ", ...valueList(l.twin, maxNames));
    if (l.x) what.append(" ", op === "Parameter" ? endElement("attrs path", l.x) : el("span", "attrs", l.x));
    const def = el("span", "def", valueElement(l.names[0] ?? String(l.i)));
    for (const v of l.names.slice(1)) if (marks.has(v)) def.append(" ", valueElement(v));
    const phase = phases[l.p || 0][0].toUpperCase();
    line.append(bar, el("span", "sign", sign), el("span", "phase " + phase, phase), def, what,
      el("span", "shape", shapeOf(l)), endElement("src", (l.l || "").replace(/^.*\//, "")));
    return line;
  }

  // describe says all about a line, as text and values.
  function describe(l, stage) {
    if (l.k) return [el("b", "", l.k === 1 ? l.o : "return"), " ", ...valueList(l.inputs, Infinity)];
    const users = new Set();
    for (const v of l.names) {
      for (const s of where.get(v)) {
        const u = lineAt(s, stage);
        if (u && u.inputs.includes(v)) users.add(u.k ? "return" : u.names[0] ?? String(u.i));
      }
    }
    const out = l.names.length ? l.names : [String(l.i)];
    const parts = [...valueList(out, Infinity), " = ", el("b", "", l.o || ""), "(", ...valueList(l.inputs, Infinity), ")"];
    if (l.x) parts.push(" " + l.x);
    parts.push(` → ${shapeOf(l)}`);
    if (l.twin.length) parts.push(" twin ", ...valueList(l.twin, Infinity));
    parts.push(el("br"), el("span", "dim", `${stages[stage].name}: ${phases[l.p || 0]}, ${taskGraphOf(l)}${l.g ? " (found by " + l.g + ")" : ""}, ${bytesOf(l)}${l.l ? ", " + l.l : ""}; `));
    const list = [...users];
    parts.push(list.length ? "used by " : el("span", "dim", "not used"));
    list.forEach((v) => parts.push(v === "return" ? "return " : valueElement(v), " "));
    return parts;
  }

  // ---- The current line: under the mouse or moved to by keys. ----

  let current = null; // {slot, stage}
  function setCurrent(slot, stage) {
    current = { slot, stage };
    const l = lineAt(slot, stage);
    $("detail").replaceChildren(...(l ? describe(l, stage) : [el("span", "dim", `${stages[stage].name}: not there after this pass`)]));
    showCursor();
  }

  function showCursor() {
    const i = current ? view.indexOf(current.slot) : -1;
    for (const c of columns) {
      c.cursor.hidden = i < 0;
      c.cursor.style.top = i * rowHeight + "px";
      c.box.classList.toggle("current", i >= 0 && c.stage === current.stage);
    }
  }

  // goTo shows a slot: in an open column that has the same line as the given stage, or any if that is undefined.
  function goTo(slot, stage, quietly) {
    const line = stage === undefined ? undefined : lineAt(slot, stage);
    if (stage === undefined || (line && !columns[stage].open)) {
      const has = (c) => (line ? lineAt(slot, c.stage) === line : lineAt(slot, c.stage));
      stage = (columns.find((c) => c.open && has(c)) || columns.find(has)).stage;
    }
    const col = columns[stage];
    if (!col.open) fold(col, true);
    if (!view.includes(slot)) {
      for (const id of ["filter", "by-taskgraph", "by-phase"]) $(id).value = "";
      $("only-changes").checked = false;
      $("leaves").checked = true;
      layout();
    }
    if (!quietly) $("ops").scrollIntoView();
    const top = view.indexOf(slot) * rowHeight;
    const visible = top > scroller.scrollTop + 10 && top < scroller.scrollTop + scroller.clientHeight - 110;
    if (!quietly || !visible) scroller.scrollTop = top - scroller.clientHeight / 2 + 60;
    const left = col.box.offsetLeft, right = left + col.box.offsetWidth;
    if (left < scroller.scrollLeft || right > scroller.scrollLeft + scroller.clientWidth) scroller.scrollLeft = left - 30;
    render(false);
    setCurrent(slot, stage);
    if (!quietly) {
      const shown = col.lines.querySelector(`[data-slot="${slot}"]`);
      if (shown) shown.classList.add("flash");
    }
  }

  scroller.addEventListener("scroll", () => requestAnimationFrame(() => render(false)));
  window.addEventListener("resize", () => render(true));
  scroller.addEventListener("mousemove", (e) => {
    const line = e.target.closest(".line"), box = e.target.closest(".col");
    if (!line || !box || !line.dataset.slot) return;
    const stage = columns.findIndex((c) => c.box === box), slot = +line.dataset.slot;
    if (!current || current.slot !== slot || current.stage !== stage) setCurrent(slot, stage);
  });
  // A click on a value in the columns marks it and stays; one in the summary also goes to the value.
  document.addEventListener("click", (e) => {
    const a = e.target.closest("a.v");
    if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    const v = a.getAttribute("href").slice(2);
    if (!a.closest("#browser")) return show([v]);
    toggle(v);
    if (a.closest("#detail") && current) setCurrent(current.slot, current.stage);
  });

  // moveTo goes to line i of the view or, where the stage has none there, to the next that it has in direction by.
  function moveTo(i, stage, by) {
    i = Math.max(0, Math.min(view.length - 1, i));
    while (by && view[i + by] !== undefined && !lineAt(view[i], stage)) i += by;
    if (view.length) goTo(view[i], stage, true);
  }

  scroller.addEventListener("keydown", (e) => {
    if (e.target !== scroller || e.ctrlKey || e.metaKey || e.altKey) return;
    const opened = columns.filter((c) => c.open).map((c) => c.stage);
    if (!opened.length) return;
    const i = current ? view.indexOf(current.slot) : -1;
    const stage = current && opened.includes(current.stage) ? current.stage : opened[0];
    const at = opened.indexOf(stage);
    const page = Math.max(1, Math.floor(scroller.clientHeight / rowHeight) - 6);
    const marked = (s) => slots[s].some((l) => [...l.names, ...l.inputs].some((v) => marks.has(v)));
    const keys = {
      ArrowDown: () => moveTo(i + 1, stage, 1), ArrowUp: () => moveTo(i - 1, stage, -1),
      PageDown: () => moveTo(i + page, stage, 1), PageUp: () => moveTo(i - page, stage, -1),
      Home: () => moveTo(0, stage, 1), End: () => moveTo(view.length - 1, stage, -1),
      ArrowLeft: () => moveTo(i, opened[Math.max(0, at - 1)]),
      ArrowRight: () => moveTo(i, opened[Math.min(opened.length - 1, at + 1)]),
      Enter: () => {
        const l = current && lineAt(current.slot, current.stage);
        if (l && l.names.length) toggle(l.names[0]);
      },
      n: () => { const k = view.findIndex((s, j) => j > i && marked(s)); if (k >= 0) moveTo(k, stage); },
      p: () => { const k = view.findLastIndex((s, j) => j < i && marked(s)); if (k >= 0) moveTo(k, stage); },
      Escape: () => { marks.clear(); marksChanged(); },
    };
    if (keys[e.key]) {
      e.preventDefault();
      keys[e.key]();
    }
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) {
      e.preventDefault();
      $("ops").scrollIntoView();
      $("filter").focus({ preventScroll: true });
    }
  });

  // ---- Tools. ----

  taskGraphs.forEach((t, i) => $("by-taskgraph").append(new Option(`${i} ${t}`, i + 1)));
  $("by-taskgraph").append(new Option("outside", 0));
  phases.forEach((p, i) => $("by-phase").append(new Option(p, i)));
  $("tools").addEventListener("input", () => {
    layout();
    const i = current ? view.indexOf(current.slot) : 0;
    scroller.scrollTop = i * rowHeight - scroller.clientHeight / 3;
  });
  $("tools").addEventListener("submit", (e) => e.preventDefault());
  $("open-all").onclick = () => {
    const open = !columns.every((c) => c.open);
    columns.forEach((c) => (c.open = open || c.stage === 0));
    $("open-all").textContent = open ? "fold all" : "open all";
    layout();
  };

  const variables = $("variables");
  if (variables) {
    const rows = [...variables.tBodies[0].rows].map((row) => ({ row, text: row.textContent.toLowerCase() }));
    $("variable-filter").addEventListener("input", (e) => {
      const wanted = e.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      let n = 0;
      for (const r of rows) {
        r.row.hidden = !wanted.every((w) => r.text.includes(w));
        if (!r.row.hidden) n++;
      }
      $("variable-count").textContent = wanted.length ? `${n} of ${rows.length}` : "";
    });
  }

  // ---- The picture. Its geometry is that of picture.go. ----

  const svgNS = "http://www.w3.org/2000/svg";
  const pictures = [...document.querySelectorAll(".picture svg")].map((svg) => {
    const stage = +svg.dataset.stage, left = +svg.dataset.left, pitch = +svg.dataset.pitch;
    const perRow = +svg.dataset.perRow, row = +svg.dataset.row, bar = +svg.dataset.bar;
    const bars = [[], [], []]; // slots by phase
    const place = new Map(); // slot → [phase, index]
    slots.forEach((_, slot) => {
      const l = lineAt(slot, stage);
      if (!l || l.k || l.d || l.f) return;
      place.set(slot, [l.p || 0, bars[l.p || 0].length]);
      bars[l.p || 0].push(slot);
    });
    const lanes = [...svg.querySelectorAll("g[data-phase]")].map((g) => ({ phase: +g.dataset.phase, top: +g.dataset.top }));

    function slotUnder(e) {
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const x = (e.clientX - box.left) * scale, y = (e.clientY - box.top) * scale;
      const lane = lanes.findLast((l) => y >= l.top);
      if (!lane || x < left) return undefined;
      const col = Math.floor((x - left) / pitch);
      return col < perRow ? bars[lane.phase][Math.floor((y - lane.top) / row) * perRow + col] : undefined;
    }

    // frame returns a rectangle around a bar, from y1 above its base line to y2 above it.
    function frame(slot, className, y1, y2) {
      const [phase, i] = place.get(slot);
      const top = lanes.find((l) => l.phase === phase).top;
      const r = document.createElementNS(svgNS, "rect");
      const base = top + (Math.floor(i / perRow) + 1) * row - 4;
      const width = Math.max(pitch, 6); // wide enough to be seen among thousands
      const set = { x: left + (i % perRow) * pitch - 0.75 - (width - pitch) / 2, y: base - y1, width, height: y1 - y2, class: className };
      for (const k in set) r.setAttribute(k, set[k]);
      return r;
    }

    const markLayer = svg.appendChild(document.createElementNS(svgNS, "g"));
    const atLayer = svg.appendChild(document.createElementNS(svgNS, "g"));
    svg.addEventListener("mousemove", (e) => {
      const slot = slotUnder(e);
      const tip = $("tip");
      tip.hidden = slot === undefined;
      atLayer.replaceChildren();
      if (slot === undefined) return;
      const l = lineAt(slot, stage);
      tip.replaceChildren(...describe(l, stage));
      tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
      tip.style.top = (e.clientY + 18 + tip.offsetHeight < innerHeight ? e.clientY + 18 : e.clientY - tip.offsetHeight - 10) + "px";
      atLayer.append(frame(slot, "at", bar + 3, -2));
    });
    svg.addEventListener("mouseleave", () => { $("tip").hidden = true; atLayer.replaceChildren(); });
    svg.addEventListener("click", (e) => {
      const slot = slotUnder(e);
      if (slot === undefined) return;
      const v = lineAt(slot, stage).names[0];
      if (v !== undefined && !marks.has(v)) { mark(v); marksChanged(); }
      goTo(slot, stage);
    });

    return {
      // A full frame is where a value is computed, a small one below the line where it is used.
      showMarks() {
        const frames = [];
        for (const [v, c] of marks) {
          for (const slot of where.get(v) || []) {
            const l = place.has(slot) && lineAt(slot, stage);
            if (!l) continue;
            if (defines(l, v)) frames.push(frame(slot, "mark m" + c, row - 5, bar + 3));
            else if (l.inputs.includes(v)) frames.push(frame(slot, "mark m" + c, 0, -4));
          }
        }
        markLayer.replaceChildren(...frames);
      },
    };
  });

  for (const e of document.querySelectorAll(".js")) e.hidden = false;
  layout();
  showMarks();
  window.addEventListener("hashchange", readHash);
  readHash();
})();
