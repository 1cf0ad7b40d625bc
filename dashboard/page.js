"use strict";
// The page shows what the server tells: see update in store.go. Texts are of programs, so that only text nodes are made of them.
(() => {
  const parts = ["compute", "exposed", "waiting", "data", "other"];
  const partText = { compute: "computing", exposed: "exposed communication", waiting: "waiting", data: "data", other: "other" };
  const kinds = ["forward", "backward", "apply", "wait", "feed", "launch", "communicate"];
  const kindText = { forward: "forward", backward: "backward", apply: "apply, other", wait: "waiting", feed: "data", launch: "starting communication", communicate: "communication" };
  const mostPoints = 4096, mostLines = 200, mostNotices = 200;
  const $ = id => document.getElementById(id);

  const fresh = () => ({ curves: {}, steps: {}, plan: null, hasPage: false, lines: {}, workers: [], notices: [], timeline: {}, restarts: 0, began: 0, ended: false, logs: false });
  let state = fresh();
  let clock = 0; // of the server, less ours
  let dirty = new Set();

  // What is told.

  function apply(u) {
    clock = u.now - Date.now();
    if (u.reset) {
      state = fresh();
      Object.assign(state, { began: u.began, logs: !!u.logs });
      for (const [name, c] of Object.entries(u.curves || {}))
        state.curves[name] = { steps: c.steps, times: c.times, means: c.means.map(Number), mins: c.mins.map(Number), maxs: c.maxs.map(Number) };
      for (const name of ["values", "workers", "plan", "timeline", "notices", "lines"]) dirty.add(name);
    }
    for (const p of u.points || []) add(p);
    for (const s of u.steps || []) state.steps[s.worker] = s;
    if (u.points || u.steps) dirty.add("values").add("workers");
    if (u.plan) {
      Object.assign(state, { plan: u.plan, hasPage: !!u.hasPage });
      dirty.add("plan").add("workers");
    }
    if (u.workers) {
      state.workers = u.workers;
      for (const w of Object.keys(state.steps))
        if (w >= u.workers.length) { delete state.steps[w]; delete state.timeline[w]; }
      dirty.add("workers").add("lines");
    }
    for (const [w, t] of Object.entries(u.timeline || {})) { state.timeline[w] = t; dirty.add("timeline"); }
    if (u.notices) { state.notices = state.notices.concat(u.notices).slice(-mostNotices); dirty.add("notices"); }
    for (const [w, lines] of Object.entries(u.lines || {})) {
      state.lines[w] = (state.lines[w] || []).concat(lines).slice(-mostLines);
      dirty.add("lines");
    }
    if (u.restarts) state.restarts = u.restarts;
    if (u.ended) state.ended = true;
    schedule();
  }

  // add appends to a curve as series.add of the server does.
  function add(p) {
    const c = state.curves[p.name] ||= { steps: [], times: [], means: [], mins: [], maxs: [] };
    let n = c.steps.length;
    while (n > 0 && c.steps[n - 1] >= p.step) n--;
    for (const list of Object.values(c)) list.length = n;
    const v = Number(p.value);
    c.steps.push(p.step); c.times.push(p.time); c.means.push(v); c.mins.push(v); c.maxs.push(v);
    if (c.steps.length <= mostPoints) return;
    const half = { steps: [], times: [], means: [], mins: [], maxs: [] };
    for (let i = 0; i + 1 < c.steps.length; i += 2) {
      half.steps.push(c.steps[i + 1]); half.times.push(c.times[i + 1]);
      half.means.push((c.means[i] + c.means[i + 1]) / 2); half.mins.push(Math.min(c.mins[i], c.mins[i + 1])); half.maxs.push(Math.max(c.maxs[i], c.maxs[i + 1]));
    }
    state.curves[p.name] = half;
  }

  // Texts.

  function number(x) {
    if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "∞" : "−∞";
    if (x === 0) return "0";
    const a = Math.abs(x);
    if (a >= 1e6 || a < 1e-4) return x.toExponential(2).replace("e+", "e");
    return String(+x.toPrecision(4));
  }
  function scaled(x, units, base) {
    let i = 0;
    while (Math.abs(x) >= base && i < units.length - 1) { x /= base; i++; }
    return +x.toPrecision(3) + " " + units[i];
  }
  const bytes = x => scaled(x, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
  const count = x => scaled(x, ["", "k", "M", "G", "T", "P", "E"], 1000).trim();
  function seconds(x) {
    if (x >= 3600) return Math.floor(x / 3600) + " h " + Math.floor(x / 60 % 60) + " min";
    if (x >= 100) return Math.floor(x / 60) + " min " + Math.floor(x % 60) + " s";
    if (x >= 1 || x === 0) return +x.toPrecision(3) + " s";
    if (x >= 1e-3) return +(x * 1e3).toPrecision(3) + " ms";
    return +(x * 1e6).toPrecision(3) + " µs";
  }
  const percent = x => (100 * x).toFixed(x < 0.1 ? 1 : 0) + " %";
  const time = ms => new Date(ms).toLocaleTimeString();
  const last = name => { const c = state.curves[name]; return c && c.means.length ? c.means[c.means.length - 1] : undefined; };

  // Elements.

  function el(tag, attrs, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attrs || {})) if (v !== undefined) e.setAttribute(k, v);
    e.append(...children.filter(c => c !== undefined && c !== null));
    return e;
  }
  function svg(tag, attrs, ...children) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v);
    e.append(...children);
    return e;
  }
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const legend = (id, items) => $(id).replaceChildren(...items.map(([c, text]) => el("li", {}, el("span", { class: "swatch " + c }), text)));
  function taskgraph(i) { return i < 0 ? "tg" : "tg c" + i % 8 + (Math.floor(i / 8) % 2 ? " again" : ""); }

  // Curves.

  const charts = new Map(); // by the name of their first series
  const height = 150, left = 46, right = 8, top = 8, bottom = 18;

  // chart finds or makes the box of a chart.
  function chart(into, key, title) {
    let c = charts.get(key);
    if (!c) {
      const value = el("b");
      const picture = svg("svg", { role: "img" });
      c = { box: el("div", { class: "chart" }, el("h3", {}, el("span", { title }, title), value), picture), picture, value, title, at: null };
      picture.addEventListener("pointermove", e => { c.at = e.clientX - picture.getBoundingClientRect().left; c.draw(); });
      picture.addEventListener("pointerleave", () => { c.at = null; c.draw(); });
      charts.set(key, c);
      $(into).append(c.box);
    }
    return c;
  }

  // ticks are round numbers in a range.
  function ticks(lo, hi, n) {
    const rough = (hi - lo) / n, unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(f => f * unit).find(s => s >= rough) || 10 * unit;
    const list = [];
    for (let x = Math.ceil(lo / step) * step; x <= hi + step / 1e6; x += step) list.push(Math.abs(x) < step / 1e6 ? 0 : x);
    return list;
  }

  // axes draws a grid, and returns how steps and values become places.
  function axes(c, steps, lo, hi, text, log) {
    const width = Math.max(c.picture.clientWidth, 120);
    c.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const first = steps[0], final = steps[steps.length - 1];
    const x = s => left + (width - left - right) * (final > first ? (s - first) / (final - first) : 0.5);
    const f = log ? Math.log10 : v => v;
    if (!(hi > lo)) { const pad = Math.abs(hi) * 0.1 || 1; lo = log ? lo / 2 : lo - pad; hi = log ? hi * 2 : hi + pad; }
    const y = v => top + (height - top - bottom) * (1 - (f(v) - f(lo)) / (f(hi) - f(lo)));
    const g = [];
    const marks = log && hi / lo > 30 ? ticks(f(lo), f(hi), 4).filter(Number.isInteger).map(e => 10 ** e) : ticks(lo, hi, 4);
    for (const v of marks) {
      g.push(svg("path", { class: "grid", d: `M${left} ${y(v).toFixed(1)}H${width - right}` }));
      g.push(svg("text", { x: left - 5, y: y(v) + 4, "text-anchor": "end" }, text(v)));
    }
    for (const s of ticks(first, Math.max(final, first + 1), Math.max(2, Math.floor(width / 110))).filter(s => Number.isInteger(s) && s <= final))
      g.push(svg("text", { x: Math.min(Math.max(x(s), left + 8), width - 18), y: height - 4, "text-anchor": "middle" }, count(s)));
    return { x, y, g, width, first, final };
  }

  // nearest is the index of the step under the mouse.
  function nearest(steps, a, at) {
    const s = a.first + (at - left) / (a.width - left - right) * (a.final - a.first);
    let lo = 0, hi = steps.length - 1;
    while (lo < hi) { const m = (lo + hi) >> 1; if (steps[m] < s) lo = m + 1; else hi = m; }
    return lo > 0 && s - steps[lo - 1] < steps[lo] - s ? lo - 1 : lo;
  }

  function drawLine(c, name, text) {
    c.draw = () => {
      const s = state.curves[name];
      if (!s || !s.steps.length) return;
      const finite = list => list.filter(Number.isFinite);
      let lo = Infinity, hi = -Infinity;
      for (const v of finite(s.mins)) lo = Math.min(lo, v);
      for (const v of finite(s.maxs)) hi = Math.max(hi, v);
      const log = $("log").checked && c.values && lo > 0;
      if (!Number.isFinite(lo) || !Number.isFinite(hi)) { lo = 0; hi = 1; }
      const a = axes(c, s.steps, lo, hi, text, log);
      const line = [], over = [], under = [];
      let pen = "M";
      s.steps.forEach((step, i) => {
        if (!Number.isFinite(s.means[i])) { pen = "M"; return; }
        const x = a.x(step).toFixed(1);
        line.push(pen + x + " " + a.y(s.means[i]).toFixed(1));
        pen = "L";
        if (Number.isFinite(s.mins[i]) && Number.isFinite(s.maxs[i])) { over.push(x + " " + a.y(s.maxs[i]).toFixed(1)); under.push(x + " " + a.y(s.mins[i]).toFixed(1)); }
      });
      const g = a.g;
      if (over.length > 1) g.push(svg("path", { class: "band", d: "M" + over.concat(under.reverse()).join("L") + "Z" }));
      if (s.steps.length === 1 && line.length) g.push(svg("circle", { cx: a.x(s.steps[0]), cy: a.y(s.means[0]), r: 3, style: "fill: var(--c0)" }));
      g.push(svg("path", { class: "line", d: line.join("") }));
      s.steps.forEach((step, i) => {
        if (!Number.isFinite(s.means[i])) g.push(svg("rect", { class: "bad", x: a.x(step) - 1.5, y: height - bottom - 5, width: 3, height: 5 }, svg("title", {}, "not finite, step " + step)));
      });
      let shown = s.means.length - 1, before = "";
      if (c.at !== null) {
        shown = nearest(s.steps, a, c.at);
        before = "step " + count(s.steps[shown]) + ": ";
        g.push(svg("path", { class: "cursor", d: `M${a.x(s.steps[shown]).toFixed(1)} ${top}V${height - bottom}` }));
      }
      c.value.textContent = before + text(s.means[shown]);
      c.picture.setAttribute("aria-label", `${c.title}, ${text(s.means[s.means.length - 1])} at step ${s.steps[s.steps.length - 1]}`);
      c.picture.replaceChildren(...g);
    };
    c.draw();
  }

  function drawParts(c) {
    c.draw = () => {
      const all = parts.map(p => state.curves["part/" + p]).filter(Boolean);
      if (all.length < parts.length || !all[0].steps.length) return;
      const steps = all[0].steps;
      const sums = steps.map((_, i) => all.reduce((sum, s) => sum + s.means[i], 0));
      const a = axes(c, steps, 0, Math.max(...sums), seconds, false);
      const g = [];
      let base = steps.map(() => 0);
      all.forEach((s, k) => {
        const next = base.map((b, i) => b + s.means[i]);
        const up = steps.map((step, i) => a.x(step).toFixed(1) + " " + a.y(next[i]).toFixed(1)), down = steps.map((step, i) => a.x(step).toFixed(1) + " " + a.y(base[i]).toFixed(1)).reverse();
        if (steps.length > 1) g.push(svg("path", { class: parts[k], d: "M" + up.concat(down).join("L") + "Z" }));
        else g.push(svg("rect", { class: parts[k], x: a.x(steps[0]) - 12, width: 24, y: a.y(next[0]), height: Math.max(a.y(base[0]) - a.y(next[0]), 0) }));
        base = next;
      });
      let shown = steps.length - 1, before = "";
      if (c.at !== null) {
        shown = nearest(steps, a, c.at);
        before = "step " + count(steps[shown]) + ": ";
        g.push(svg("path", { class: "cursor", d: `M${a.x(steps[shown]).toFixed(1)} ${top}V${height - bottom}` }));
      }
      c.value.textContent = before + seconds(sums[shown]);
      legend("part-legend", parts.map((p, k) => [p, partText[p] + " " + percent(sums[shown] > 0 ? all[k].means[shown] / sums[shown] : 0)]));
      c.picture.setAttribute("aria-label", "a step and its parts: " + $("part-legend").innerText.replaceAll("\n", ", "));
      c.picture.replaceChildren(...a.g, ...g);
    };
    c.draw();
  }

  function showValues() {
    const names = Object.keys(state.curves).filter(n => n.startsWith("value/"));
    const isLoss = n => /loss/i.test(n) ? 0 : 1;
    names.sort((a, b) => isLoss(a) - isLoss(b) || (a < b ? -1 : 1));
    $("no-values").hidden = names.length > 0;
    for (const n of names) {
      const c = chart("values", n, n.slice(6));
      c.values = true;
      drawLine(c, n, number);
    }
    const speeds = { "epl/samples per second": ["samples a second", count], "epl/tokens per second": ["tokens a second", count], "epl/mfu": ["model flops utilization (MFU)", percent], "epl/flops per second": ["FLOP/s of the model", count], "epl/step seconds": ["time of a step", seconds] };
    for (const [name, [title, text]] of Object.entries(speeds))
      if (state.curves[name]) drawLine(chart("speed", name, title), name, text);
    if (state.curves["part/compute"]) drawParts(chart("parts", "parts", "time of a step"));
    for (const [key, c] of charts) // of a server before this one
      if (key !== "parts" && !state.curves[key]) { c.box.remove(); charts.delete(key); }
  }

  // Facts.

  function showFacts() {
    const facts = [];
    const first = state.steps[0];
    if (first) facts.push(["step", count(first.number) === String(first.number) ? String(first.number) : first.number.toLocaleString("en")]);
    const loss = Object.keys(state.curves).filter(n => n.startsWith("value/") && /loss/i.test(n)).sort()[0];
    if (loss) facts.push([loss.slice(6), number(last(loss)), !Number.isFinite(last(loss))]);
    const add = (name, text, f) => { const v = last(name); if (v !== undefined) facts.push([text, f(v)]); };
    add("epl/step seconds", "a step", seconds);
    add("epl/samples per second", "samples/s", count);
    add("epl/tokens per second", "tokens/s", count);
    if (last("epl/mfu") !== undefined) add("epl/mfu", "MFU", percent); else add("epl/flops per second", "FLOP/s of the model", count);
    let most, fullest = 0;
    for (const d of devices()) {
      const of = d.plan && (d.plan.limit || d.plan.peak);
      if (d.peak && (most === undefined || d.peak > most)) most = d.peak;
      if (d.peak && d.plan && d.plan.limit) fullest = Math.max(fullest, d.peak / of);
    }
    if (fullest) facts.push(["of memory, at most", percent(fullest), fullest > 1]); else if (most !== undefined) facts.push(["memory, at most", bytes(most)]);
    if (state.workers.length) {
      const up = state.workers.filter(w => w.state === "running" || w.state === "busy").length;
      facts.push([state.workers.length === 1 ? "worker" : "workers up", up + " of " + state.workers.length, state.workers.some(w => w.state === "failed" || w.state === "silent")]);
    }
    if (state.restarts) facts.push([state.restarts === 1 ? "restart" : "restarts", String(state.restarts)]);
    $("facts").replaceChildren(...facts.map(([text, value, bad]) => el("li", bad ? { class: "bad" } : {}, el("b", {}, value), text)));
  }

  // Workers and devices.

  function devices() {
    const plans = new Map((state.plan ? state.plan.devices : []).map(d => [d.rank, d]));
    const list = [];
    for (const [w, s] of Object.entries(state.steps))
      for (const d of s.devices || []) list.push({ ...d, worker: +w, plan: plans.get(d.rank) });
    return list;
  }

  function bar(device, step) {
    const b = el("div", { class: "bar" });
    if (!device.parts) return b;
    const sum = parts.reduce((n, p) => n + device.parts[p], 0);
    for (const p of parts) {
      const i = el("i", { class: p, title: partText[p] + " " + seconds(device.parts[p]) });
      i.style.width = 100 * device.parts[p] / (sum || 1) + "%";
      b.append(i);
    }
    b.setAttribute("role", "img");
    b.setAttribute("aria-label", parts.map(p => partText[p] + " " + percent(device.parts[p] / (sum || 1))).join(", "));
    return b;
  }

  function memory(d) {
    const planned = d.plan ? d.plan.peak : 0, limit = d.plan ? d.plan.limit || 0 : 0;
    const ample = limit > 10 * Math.max(planned, d.peak);
    const whole = Math.max(planned, d.peak, ample ? 0 : limit) * (limit && !ample ? 1 : 1.1);
    const b = el("div", { class: "bar memory" + (limit && d.peak > limit ? " over" : ""), role: "img" });
    const i = el("i");
    i.style.width = 100 * d.peak / (whole || 1) + "%";
    b.append(i);
    let text = "memory " + bytes(d.peak) + " at most";
    if (planned) {
      const l = el("span", { class: "limit" });
      l.style.left = "calc(" + 100 * planned / whole + "% - 1px)";
      b.append(l);
      text += "; planned " + bytes(planned);
    }
    if (limit) text += "; it has " + bytes(limit);
    for (const [use, n] of Object.entries(d.uses || {})) if (n > 0) text += "; " + use + " " + bytes(n);
    b.title = text;
    b.setAttribute("aria-label", text);
    return b;
  }

  function showWorkers() {
    const all = new Map(state.workers.map(w => [w.index, w]));
    for (const w of Object.keys(state.steps)) if (!all.has(+w)) all.set(+w, { index: +w, state: "running" });
    const by = new Map();
    for (const d of devices()) by.set(d.worker, (by.get(d.worker) || []).concat(d));
    $("no-workers").hidden = all.size > 0;
    const now = Date.now() + clock;
    const boxes = [...all.values()].sort((a, b) => a.index - b.index).map(w => {
      const step = state.steps[w.index];
      let what = w.state === "busy" ? w.doing : w.state;
      if ((w.state === "busy" || w.state === "silent") && w.since) what += " for " + seconds(Math.max(0, Math.round((now - w.since) / 1000)));
      const head = el("header", {}, el("h3", {}, "worker " + w.index), el("span", { class: "state " + w.state }, what), step ? el("span", { class: "dim" }, "step " + step.number) : null, w.host ? el("span", { class: "host" }, w.host) : null, w.reason ? el("span", { class: "why" }, w.reason) : null);
      const box = el("article", { class: "worker " + (w.state === "failed" || w.state === "silent" ? w.state : "") }, head);
      for (const d of by.get(w.index) || []) {
        const row = el("div", { class: "device" }, el("span", { class: "rank", title: "device " + d.rank }, String(d.rank)), bar(d, step), el("span", { class: "n" }, d.parts ? seconds(parts.reduce((n, p) => n + d.parts[p], 0)) : ""));
        if (d.peak) row.append(memory(d), el("span", { class: "n" }, bytes(d.peak)));
        box.append(row);
      }
      return box;
    });
    $("workers").replaceChildren(...boxes);
    legend("memory-legend", boxes.length ? [["held", "memory of a device, the most that lived on it"], ["limit", "planned"]] : []);
  }

  // The plan.

  function showPlan() {
    const p = state.plan;
    $("plan-section").hidden = !p;
    if (!p) return;
    $("plan-link").hidden = !state.hasPage;
    $("plan-summary").replaceChildren(...p.summary.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
    const names = new Map();
    const boxes = new Map();
    for (const d of p.devices) {
      if (!boxes.has(d.worker)) boxes.set(d.worker, []);
      const stripes = el("div", { class: "stripes" });
      for (const w of d.works || []) {
        names.set(w.taskgraph, w.text);
        stripes.append(el("i", { class: taskgraph(w.taskgraph), title: w.text + (w.share ? ", " + w.share : "") }));
      }
      const share = (d.works || []).map(w => w.share).filter(Boolean)[0];
      const cell = el("div", { class: "cell", title: `device ${d.rank}: ` + (d.replica < 0 ? "not used" : `replica ${d.replica}; ` + (d.works || []).map(w => w.text + (w.share ? ", " + w.share : "")).join("; ")) },
        el("b", {}, String(d.rank)), stripes, el("div", { class: "dim" }, d.replica < 0 ? "not used" : "replica " + d.replica), share ? el("div", { class: "dim" }, share) : null, d.peak ? el("div", { class: "dim" }, bytes(d.peak)) : null);
      boxes.get(d.worker).push(cell);
    }
    legend("plan-legend", [...names.entries()].sort((a, b) => a[0] - b[0]).slice(0, 24).map(([i, text]) => [taskgraph(i), text]));
    $("plan").replaceChildren(...[...boxes.entries()].map(([w, cells]) => el("div", { class: "box" }, el("h3", {}, "worker " + w), el("div", { class: "cells" }, ...cells))));
  }

  // The timeline.

  let rows = [], span = 1, placed = null;

  function showTimeline() {
    const all = Object.entries(state.timeline);
    $("timeline-hint").hidden = all.length > 0;
    if (!all.length) return;
    rows = [];
    span = 1;
    let lost = 0;
    for (const [w, t] of all) {
      span = Math.max(span, t.us);
      lost += t.lost || 0;
      for (const r of t.rows) rows.push({ rank: r.rank, bars: r.bars, names: t.names, step: t.step });
    }
    rows.sort((a, b) => a.rank - b.rank);
    const steps = all.map(([, t]) => t.step), lo = Math.min(...steps), hi = Math.max(...steps);
    $("timeline-step").textContent = (lo === hi ? "step " + hi : `steps ${lo} to ${hi}, of each worker its last`) + ", " + seconds(span / 1e6) + (lost ? `; ${lost} short bars are left out` : "");
    let canvas = $("timeline").querySelector("canvas");
    if (!canvas) {
      canvas = el("canvas", { role: "img" });
      canvas.addEventListener("pointermove", point);
      canvas.addEventListener("pointerleave", () => { $("timeline-read").textContent = ""; });
      $("timeline").append(canvas);
      $("timeline-legend").replaceChildren(...kinds.map(k => { const s = el("span", { class: "swatch" }); s.style.background = `var(--${k})`; return el("li", {}, s, kindText[k]); }));
    }
    canvas.setAttribute("aria-label", `what ${rows.length} devices did in a step`);
    const row = rows.length > 16 ? 15 : 24, side = 34, head = 18, width = Math.max($("timeline").clientWidth, 600), high = head + rows.length * row + 2, ratio = devicePixelRatio || 1;
    canvas.style.height = high + "px";
    canvas.width = width * ratio;
    canvas.height = high * ratio;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "11px " + colour("sans");
    g.textBaseline = "middle";
    const fill = kinds.map(colour), dim = colour("dim"), rule = colour("rule");
    const x = us => side + (width - side - 4) * us / span;
    placed = { row, side, head, width };
    g.fillStyle = dim;
    g.strokeStyle = rule;
    for (const t of ticks(0, span, Math.floor(width / 120))) {
      g.beginPath(); g.moveTo(x(t), head - 4); g.lineTo(x(t), high); g.stroke();
      g.fillText(seconds(t / 1e6 || 0), Math.min(x(t) + 3, width - 50), 8);
    }
    rows.forEach((r, i) => {
      const y = head + i * row, thin = Math.max(2, Math.floor(row / 6)), full = row - thin - 3;
      g.fillStyle = dim;
      g.textAlign = "right";
      g.fillText(String(r.rank), side - 6, y + full / 2);
      g.textAlign = "left";
      for (const pass of [false, true]) for (const [kind, start, length, , micro] of r.bars) {
        if ((kind < 3) !== pass) continue; // what it computes is above the rest
        const w = Math.max(x(start + length) - x(start), 0.5), under = kind === 6;
        g.fillStyle = fill[kind] || dim;
        g.fillRect(x(start), under ? y + full + 1 : y, w, under ? thin : full);
        if (kind < 2 && micro >= 0 && w > 14 && full > 13) { g.fillStyle = "#fff"; g.fillText(String(micro), x(start) + w / 2 - 3, y + full / 2 + 1); }
      }
    });
  }

  // point reads the bar under the mouse.
  function point(e) {
    const box = e.target.getBoundingClientRect();
    const i = Math.floor((e.clientY - box.top - placed.head) / placed.row), r = rows[i];
    const us = (e.clientX - box.left - placed.side) / (placed.width - placed.side - 4) * span;
    const hit = r && r.bars.filter(([, start, length]) => us >= start && us <= start + length).sort((a, b) => (a[0] === 6) - (b[0] === 6) || (a[0] > 2) - (b[0] > 2))[0];
    $("timeline-read").textContent = hit ? `device ${r.rank}: ${kindText[kinds[hit[0]]]}, ${r.names[hit[3]]}${hit[4] >= 0 ? `, micro-batch ${hit[4]}` : ""}: ${seconds(hit[2] / 1e6)}, after ${seconds(hit[1] / 1e6)}` : "";
  }

  // Notices and logs.

  function showNotices() {
    $("no-notices").hidden = state.notices.length > 0;
    $("notices").replaceChildren(...state.notices.slice().reverse().map(n => el("li", { class: n.kind }, el("time", {}, time(n.time)), el("span", {}, n.text))));
    const bad = state.notices.filter(n => n.kind === "failure").pop();
    const since = state.notices.filter(n => n.kind === "restart").pop();
    $("alert").hidden = !bad || since && since.time > bad.time;
    if (bad) $("alert").textContent = bad.text;
  }

  function showLines() {
    $("logs-section").hidden = !state.logs;
    if (!state.logs) return;
    const choice = $("log-worker"), workers = [...new Set(state.workers.map(w => w.index).concat(Object.keys(state.lines).map(Number)))].sort((a, b) => a - b);
    if (choice.options.length !== workers.length) {
      const was = choice.value;
      choice.replaceChildren(...workers.map(w => el("option", { value: w }, "worker " + w)));
      if (workers.includes(+was) && was !== "") choice.value = was;
    }
    const box = $("lines"), end = box.scrollHeight - box.scrollTop - box.clientHeight < 20;
    const lines = state.lines[choice.value] || [];
    box.textContent = lines.length ? lines.join("\n") : "It has printed nothing.";
    if (end) box.scrollTop = box.scrollHeight;
  }

  // Drawing, once a frame at most.

  const show = { values: showValues, workers: showWorkers, plan: showPlan, timeline: showTimeline, notices: showNotices, lines: showLines };
  let asked = false;
  function schedule() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const what = dirty;
      dirty = new Set();
      for (const name of what) show[name]();
      if (what.size) showFacts();
      showStatus();
    });
  }
  function all() { for (const name of Object.keys(show)) dirty.add(name); schedule(); }

  let connected = false;
  function showStatus() {
    const age = state.began ? seconds(Math.max(0, Math.round((Date.now() + clock - state.began) / 1000))) : "";
    $("status").className = state.ended ? "" : connected ? "live" : "lost";
    $("status").querySelector(".text").textContent = state.ended ? "the job has ended" : connected ? "live" + (age ? ", for " + age : "") : "no connection; trying again";
  }

  $("log").addEventListener("change", () => { dirty.add("values"); schedule(); });
  $("log-worker").addEventListener("change", () => { dirty.add("lines"); schedule(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  let wide = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; all(); } });
  setInterval(() => { if (!state.ended && state.workers.some(w => w.state === "busy" || w.state === "silent")) dirty.add("workers"); schedule(); }, 1000);

  // The stream. A browser that lost it comes back by itself, and says what it has had.
  const stream = new EventSource("events");
  stream.onopen = () => { connected = true; schedule(); };
  stream.onerror = () => {
    connected = false;
    if (state.ended) stream.close();
    schedule();
  };
  stream.onmessage = e => {
    apply(JSON.parse(e.data));
    if (state.ended) stream.close();
  };
})();
