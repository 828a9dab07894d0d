// A chart of one sign, or of the two pressures: a figure with a name, a summary in words, a
// canvas drawn by uPlot whose cursor moves with the arrow keys, and a table of its data.

import { clockText, counted, dayText, el, number, parts, timeText } from "./common.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const maxRows = 1500; // of a table of data
const markPx = 3; // least distance of paired marks with caps

// onTheme calls back when the colours change, and returns how to stop that.
export function onTheme(call) {
  dark.addEventListener("change", call);
  return () => dark.removeEventListener("change", call);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// uPlot is a classic script, which the first view does without.
const ready = new Promise((done, failed) => {
  const at = (name) => new URL(name, import.meta.url).href;
  document.head.append(el("link", { rel: "stylesheet", href: at("uPlot.min.css") }), el("script", { src: at("uPlot.iife.min.js"), onload: done, onerror: failed }));
});

// painted waits until the charts that are drawn now are on the screen.
export const painted = () => ready.then(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));

// withGaps returns columns with an empty point in each gap: where the distance of two points
// is more than some times the usual one of their sources, and more than leastS. Where the values of another subject or
// source begin, the line ends, too. index has where each point was, and -1 for the empty ones.
export function withGaps(xs, columns, times, leastS, worn = [], sources = []) {
  const steps = new Map(), last = new Map();
  xs.forEach((x, i) => {
    const s = sources[i];
    if (!steps.has(s)) steps.set(s, []);
    if (last.has(s)) steps.get(s).push(x - last.get(s));
    last.set(s, x);
  });
  // A source of one point has no usual distance: the other's counts, and if that has none, there is no gap between them.
  const usual = new Map([...steps].map(([s, of]) => [s, Float64Array.from(of).sort()[of.length >> 1]]));
  const limit = (a, b) => Math.max(times * Math.max(usual.get(a) ?? usual.get(b) ?? Infinity, usual.get(b) ?? 0), leastS);
  const outX = [], out = columns.map(() => []), index = [];
  let gaps = 0;
  for (let i = 0; i < xs.length; i++) {
    const gap = i > 0 && xs[i] - xs[i - 1] > limit(sources[i - 1], sources[i]);
    if (gap || i > 0 && (sources[i - 1] !== sources[i] || worn.some((w) => xs[i - 1] < w.from && w.from <= xs[i]))) {
      outX.push((xs[i] + xs[i - 1]) / 2);
      index.push(-1);
      for (const c of out) c.push(null);
    }
    if (gap) gaps++;
    outX.push(xs[i]);
    index.push(i);
    columns.forEach((c, k) => out[k].push(c[i]));
  }
  return { xs: outX, columns: out, gaps, index };
}

// A Chart is made of what is shown:
//   title, unit, from, to (Unix s), zone,
//   xs (Unix s), lines: [{ label, values, min?, max? }] with arrays as long as xs,
//   paired: whether the two lines are marks of one measurement,
//   flags and, if there are any, alerts: [{ from, to, text, points?, goesOn? }] in Unix s, with the points that are flagged if not all
//   of the range are, and whether an alert has no end, leastGapS, bucket (text) if lines are means,
//   worn, if known: [{ subject, from, to }] in Unix s, all spans of the range: by whom the device was worn,
//   whose: what a subject of worn is, if not one; sources: the device of each point, if known,
//   zero: whether the axis begins at 0,
//   onZoom(from, to).
export class Chart {
  #plot = null;
  #observer = null;
  #index = -1;
  #chosen = -1; // the point to which the keys are moving the cursor: others may have the same time

  constructor(parent, shown) {
    this.shown = shown;
    const id = "chart-" + shown.title.toLowerCase().replaceAll(/[^a-z]+/g, "-");
    this.summary = el("p", { class: "summary", id: id + "-summary" });
    this.box = el("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-label": shown.title + ": point in time", "aria-describedby": id + "-summary",
      "aria-valuemin": "0", "aria-valuemax": "0", "aria-valuenow": "0", "aria-valuetext": "no point chosen", onkeydown: (e) => this.#key(e), onblur: () => this.#point(-1),
    });
    this.readout = el("p", { class: "readout", "aria-hidden": "true" });
    this.rows = el("div", { class: "rows", tabindex: "0", role: "region", "aria-label": shown.title + ": data" });
    this.details = el("details", { ontoggle: () => this.#table() }, el("summary", {}, "Table of data", el("span", { class: "hidden" }, ": " + shown.title)), this.rows);
    this.figure = el("figure", { "aria-labelledby": id, "data-chart": shown.title },
      el("figcaption", { id }, shown.title, " ", el("span", { class: "unit" }, shown.unit)), this.summary, this.box, this.readout, this.details);
    parent.append(this.figure);
    this.draw(shown);
  }

  // draw shows other data under the same title.
  async draw(shown) {
    this.shown = shown;
    this.data = withGaps(shown.xs, shown.lines.flatMap((l) => (l.min ? [l.max, l.min, l.values] : [l.values])), shown.bucket ? 1.5 : 3, shown.leastGapS, shown.worn, shown.sources);
    this.summary.textContent = this.#words();
    if (this.details.open) this.#table();
    await ready;
    this.redraw();
  }

  // redraw draws again, in the colours and with the width of now. On paper, the height is another.
  redraw(height) {
    if (!this.figure.isConnected) return;
    const width = this.box.clientWidth;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(width, height), [this.data.xs, ...this.data.columns], this.box);
    this.box.setAttribute("aria-valuemax", String(Math.max(0, this.data.xs.length - 1)));
    if (this.#observer === null) {
      this.#observer = new ResizeObserver(() => {
        if (this.#plot && this.box.clientWidth !== this.#plot.width) this.#plot.setSize({ width: this.box.clientWidth, height: this.#plot.height });
      });
      this.#observer.observe(this.box);
    }
  }

  close() {
    this.#observer?.disconnect();
    this.#plot?.destroy();
    this.#plot = null;
  }

  // #changes: whether another subject, or nobody, begins to wear the device in the range.
  get #changes() {
    return this.shown.worn?.length > 1;
  }

  // #mixed: whether values of several devices follow each other too often to name each change.
  get #mixed() {
    return !this.#changes && new Set(this.shown.sources).size > 1;
  }

  // #who returns whose a point is: by its index, and by its time if that is -1.
  #who(x, i) {
    return this.shown.sources?.length && this.shown.whose ? this.shown.sources[i] ?? "" : this.shown.worn.find((w) => x >= w.from && x < w.to)?.subject ?? "";
  }

  #flagsAt(x, i) {
    return [...new Set(this.shown.flags.filter((r) => (r.points ? r.points.has(i) : r.from <= x && r.to >= x)).map((r) => r.text))].join(", ");
  }

  #words() {
    const s = this.shown;
    if (s.lines.every((l) => l.values.every((v) => v === null))) return "No values in this range.";
    const ofLine = (l) => {
      const known = l.values.filter((v) => v !== null);
      const low = (l.min ?? l.values).reduce((a, v) => (v !== null && v < a ? v : a), Infinity);
      const high = (l.max ?? l.values).reduce((a, v) => (v !== null && v > a ? v : a), -Infinity);
      const n = l.counts ? l.counts.reduce((a, v) => a + v, 0) : known.length;
      if (n === 0) return `${l.label}: no values`;
      if (n === 1) return `${l.label}: 1 value, ${number(low)} ${s.unit}`;
      const mean = (l.counts ? l.values.reduce((a, v, i) => a + v * l.counts[i], 0) : known.reduce((a, v) => a + v, 0)) / n;
      return `${l.label}: ${counted(n, "value")} from ${number(low)} to ${number(high)} ${s.unit}, mean ${number(Math.round(mean * 10) / 10)}`;
    };
    // Values of different subjects have no mean in common.
    const texts = !this.#changes ? s.lines.map(ofLine) : s.worn.filter((w) => w.subject !== "nobody" || s.xs.some((x) => x >= w.from && x < w.to)).map((w) => {
      const part = (all) => all?.filter((v, i) => s.xs[i] >= w.from && s.xs[i] < w.to);
      return `${w.subject}, ${w.from < s.from ? "" : "from " + timeText(w.from * 1000, s.zone) + ", "}` +
        s.lines.map((l) => ofLine({ label: l.label, values: part(l.values), min: part(l.min), max: part(l.max), counts: part(l.counts) })).join(", ");
    });
    const leftOut = s.leftOut ? `, ${counted(s.leftOut, "value")} left out, which the device disowns` : "";
    const gaps = (this.data.gaps === 0 ? "No gaps" : counted(this.data.gaps, "gap")) + leftOut;
    const flags = s.zero ? "" : s.flags.length === 0 ? ", no flags" : ", " + counted(s.flags.length, "flagged range");
    const alerts = s.alerts?.filter((a) => a.to >= s.from && a.from <= s.to) ?? [];
    const alerted = alerts.length === 0 ? "" : ", " + counted(alerts.length, "alert") + ": "
      + [...Map.groupBy(alerts, (a) => a.text)].map(([text, of]) => text + (of.length > 1 ? ` (${of.length})` : "")).join(", ");
    const mixed = this.#mixed ? ` Values of ${[...new Set(s.sources)].join(" and ")} in turn, which no line joins.` : "";
    return `${texts.join(". ")}.${mixed} ${gaps}${flags}${alerted}.` + (s.bucket ? ` Each point is the mean of ${s.bucket}; the band is from the lowest to the highest value.` : "");
  }

  #table() {
    const s = this.shown;
    if (!this.details.open) return this.rows.replaceChildren();
    const heads = ["Time", ...s.lines.flatMap((l) => (l.min ? [`${l.label}: mean`, "lowest", "highest", "values"] : [l.label])), "Flags", ...(this.#changes || this.#mixed ? [s.whose ?? "Subject"] : [])];
    const from = Math.max(0, s.xs.length - maxRows);
    const trs = [];
    for (let i = from; i < s.xs.length; i++) {
      trs.push(el("tr", {}, el("th", { scope: "row" }, timeText(s.xs[i] * 1000, s.zone)),
        s.lines.flatMap((l) => (l.min ? [l.values[i], l.min[i], l.max[i], l.counts[i]] : [l.values[i]])).map((v) => el("td", { class: "num" }, number(v))),
        el("td", {}, this.#flagsAt(s.xs[i], i)), this.#changes || this.#mixed ? el("td", {}, this.#who(s.xs[i], i)) : null));
    }
    this.rows.replaceChildren(...(from > 0 ? [el("p", { class: "quiet" }, `The newest ${maxRows} rows.`)] : []),
      el("table", {}, el("caption", {}, `${s.title} in ${s.unit}`), el("thead", {}, el("tr", {}, heads.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, trs)));
  }

  #key(e) {
    const n = this.data.xs.length, page = Math.max(1, Math.round(n / 20));
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page };
    let i = this.#index;
    if (e.key === "Home") i = 0;
    else if (e.key === "End") i = n - 1;
    else if (e.key === "Escape") i = -1;
    else if (e.key in steps) {
      const step = steps[e.key];
      i = i < 0 ? (step > 0 ? 0 : n - 1) : Math.min(n - 1, Math.max(0, i + step));
      while (i > 0 && i < n - 1 && this.data.columns.every((c) => c[i] === null)) i += Math.sign(step); // a gap
    } else return;
    e.preventDefault();
    this.#point(i);
  }

  // #point moves the cursor to a point; -1: nowhere.
  #point(i) {
    this.#index = this.#chosen = i;
    if (this.#plot === null) return;
    if (i < 0) this.#plot.setCursor({ left: -10, top: -10 });
    else this.#plot.setCursor({ left: this.#plot.valToPos(this.data.xs[i], "x"), top: this.#plot.over.clientHeight / 2 });
    this.#chosen = -1;
  }

  #moved(u) {
    const i = this.#chosen >= 0 ? this.#chosen : u.cursor.idx;
    let text = "";
    if (i !== null && i !== undefined && u.cursor.left >= 0) {
      let k = 0;
      const values = this.shown.lines.map((l) => {
        const c = this.data.columns;
        if (!l.min) return `${l.label} ${number(c[k++][i])}`;
        k += 3;
        return `${l.label} ${number(c[k - 1][i])} (${number(c[k - 2][i])} to ${number(c[k - 3][i])})`;
      });
      const x = this.data.xs[i], flags = this.#flagsAt(x, this.data.index[i]);
      text = `${this.#changes || this.#mixed ? this.#who(x, this.data.index[i]) + ", " : ""}${timeText(x * 1000, this.shown.zone)}: ${values.join(", ")} ${this.shown.unit}` + (flags ? `, flagged: ${flags}` : "");
      this.#index = i;
      this.box.setAttribute("aria-valuenow", String(i));
    }
    this.readout.textContent = text;
    this.box.setAttribute("aria-valuetext", text || "no point chosen");
  }

  #options(width, height = Math.max(140, Math.min(260, Math.round(width / 3.6)))) {
    const s = this.shown, zone = s.zone, columns = this.data.columns;
    const ink = colour("--ink"), grid = colour("--grid"), lines = [colour("--line-1"), colour("--line-2")], fills = [colour("--fill-1"), colour("--fill-2")];
    const isolated = [];
    for (let i = 0; i < this.data.xs.length; i++) {
      if (columns.some((c) => c[i] !== null && (c[i - 1] ?? null) === null && (c[i + 1] ?? null) === null)) isolated.push(i);
    }
    const filter = (u, si, show) => (show ? null : isolated);
    const series = [{}], bands = [];
    s.lines.forEach((l, k) => {
      const dash = k === 1 ? [6, 3] : undefined;
      if (l.min) {
        const edge = { stroke: lines[k], width: 0.5, points: { show: false, filter } };
        bands.push({ series: [series.length, series.length + 1], fill: fills[k] });
        series.push(edge, { ...edge });
      }
      if (s.paired && !l.min) series.push({ stroke: lines[k], paths: () => null, points: { show: false } });
      else series.push({ stroke: lines[k], width: 1.5, dash, points: { size: 4, fill: lines[k], filter } });
    });
    return {
      width, height, padding: [8, 26, 0, 0],
      tzDate: (ts) => (zone === "local" ? new Date(ts * 1000) : uPlot.tzDate(new Date(ts * 1000 + zone * 60000), "Etc/UTC")),
      legend: { show: false },
      series, bands,
      scales: { x: { min: s.from, max: s.to, range: () => [s.from, s.to] }, y: { range: (u, min, max) => (min === null ? [0, 1] : s.zero ? [0, max > 0 ? max * 1.1 : 1] : uPlot.rangeNum(min, max, 0.1, false)) } },
      axes: [
        { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, font: "12px system-ui, sans-serif", size: 28, space: 70, values: (u, splits, ai, space, incr) => splits.map((t) => {
          const p = parts(t * 1000, zone);
          if (incr >= 86400) return incr >= 28 * 86400 ? `${dayText(p).split(" ")[1]} ${p.year}` : dayText(p);
          return p.hour === 0 && p.minute === 0 && p.second === 0 ? dayText(p) : clockText(p, incr < 60);
        }) },
        { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, font: "12px system-ui, sans-serif", size: (u, values) => 18 + 7 * Math.max(4, ...(values ?? []).map((v) => v.length)), space: 36 },
      ],
      cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { size: 7 } },
      hooks: {
        setCursor: [(u) => this.#moved(u)],
        setSelect: [(u) => {
          if (u.select.width < 4) return;
          const a = u.posToVal(u.select.left, "x"), b = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          s.onZoom(a, b);
        }],
        drawClear: [(u) => this.#shade(u)],
        draw: [(u) => {
          if (s.paired && s.lines.every((l) => !l.min)) this.#marks(u, lines);
          this.#labels(u);
          this.#wearers(u);
        }],
      },
    };
  }

  // #spans returns ranges of time in pixels of the canvas; those that touch and have the same text are one.
  #spans(u, ranges) {
    const { left, width } = u.bbox, spans = [];
    for (const f of ranges) {
      const a = Math.max(left, u.valToPos(f.from, "x", true) - 2), b = Math.min(left + width, u.valToPos(f.to, "x", true) + 2);
      if (b < left || a > left + width) continue;
      const last = spans.at(-1);
      if (last && last.text === f.text && a <= last.b + 1) last.b = Math.max(last.b, b);
      else spans.push({ a, b, text: f.text });
    }
    return spans;
  }

  #shade(u) {
    const { ctx } = u, { left, top, width, height } = u.bbox;
    ctx.save();
    for (const { a, b } of this.#spans(u, this.shown.flags)) {
      ctx.fillStyle = colour("--shade");
      ctx.fillRect(a, top, b - a, height);
      ctx.fillStyle = colour("--flag"); // a line on top, so that colour is not the only sign
      ctx.fillRect(a, top, b - a, 3 * devicePixelRatio);
    }
    for (const { a, b } of this.#spans(u, this.shown.alerts ?? [])) { // with a line at the bottom
      ctx.fillStyle = colour("--alert-shade");
      ctx.fillRect(a, top, b - a, height);
      ctx.fillStyle = colour("--silent");
      ctx.fillRect(a, top + height - 4 * devicePixelRatio, b - a, 4 * devicePixelRatio);
    }
    for (const a of this.shown.alerts ?? []) { // where it begins, and where it ends
      for (const t of a.goesOn ? [a.from] : [a.from, a.to]) {
        const x = Math.round(u.valToPos(t, "x", true));
        if (x >= left && x <= left + width) ctx.fillRect(x - devicePixelRatio, top, 2 * devicePixelRatio, height);
      }
    }
    ctx.restore();
  }

  #labels(u) {
    const { ctx } = u, px = devicePixelRatio;
    ctx.save();
    ctx.font = `${11 * px}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "top";
    const write = (ranges, mark, ink, y) => {
      ctx.fillStyle = colour(ink);
      let end = 0;
      for (const { a, text } of this.#spans(u, ranges)) {
        const label = mark + text, w = ctx.measureText(label).width;
        const x = Math.min(a + 2 * px, u.bbox.left + u.bbox.width - w);
        if (x < end) continue; // its line is drawn, and its text is in the table or in the summary
        ctx.fillText(label, x, y);
        end = x + w + 8 * px;
      }
    };
    write(this.shown.flags, "⚑ ", "--flag", u.bbox.top + 5 * px);
    write(this.shown.alerts ?? [], "⚠ ", "--silent", u.bbox.top + u.bbox.height - 18 * px);
    ctx.restore();
  }

  // #wearers draws a line where another subject begins to wear the device, with the subjects on both sides, one text
  // below another where they are close; what has no room is in the summary.
  #wearers(u) {
    if (!this.#changes) return;
    const { ctx } = u, { left, top, width, height } = u.bbox, px = devicePixelRatio, ends = []; // of the texts in each row
    ctx.save();
    ctx.font = `bold ${11 * px}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    this.shown.worn.slice(1).forEach((w, i) => {
      const at = Math.round(u.valToPos(w.from, "x", true)), text = `${this.shown.worn[i].subject} → ${w.subject}`, long = ctx.measureText(text).width;
      ctx.fillStyle = colour("--ink");
      ctx.fillRect(at - px, top, 2 * px, height);
      const x = Math.max(left, Math.min(at - long / 2, left + width - long)), free = ends.findIndex((end) => end < x), row = free < 0 ? ends.length : free;
      const y = top + (20 + 15 * row) * px;
      if (y + 15 * px > top + height) return;
      ends[row] = x + long + 4 * px;
      ctx.fillStyle = colour("--panel");
      ctx.fillRect(x - 2 * px, y - px, long + 4 * px, 14 * px);
      ctx.fillStyle = colour("--ink");
      ctx.fillText(text, x, y);
    });
    ctx.restore();
  }

  // #marks draws each pressure measurement as a line from diastolic to systolic with caps.
  #marks(u, [stroke]) {
    const { ctx } = u, px = devicePixelRatio, [xs, high, low] = u.data;
    const cap = u.bbox.width / px / Math.max(1, xs.length) >= markPx ? 3 * px : 1 * px;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    ctx.beginPath();
    ctx.strokeStyle = stroke;
    ctx.lineWidth = 1.5 * px;
    for (let i = 0; i < xs.length; i++) {
      if (high[i] === null || low[i] === null) continue;
      const x = Math.round(u.valToPos(xs[i], "x", true)), a = u.valToPos(high[i], "y", true), b = u.valToPos(low[i], "y", true);
      ctx.moveTo(x - cap, a);
      ctx.lineTo(x + cap, a);
      ctx.moveTo(x, a);
      ctx.lineTo(x, b);
      ctx.moveTo(x - cap, b);
      ctx.lineTo(x + cap, b);
    }
    ctx.stroke();
    ctx.restore();
  }
}
