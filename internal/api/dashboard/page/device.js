// One device: its latest values, and a chart of each sign over a range of time. Few readings
// are drawn as they are, many as aggregates: the mean, and a band from the lowest to the
// highest value.

import { Alerts } from "./alerts.js";
import { Stream, ago, counted, el, flagMark, flagSign, groups, isSilent, named, now, number, notice, patientLink, query, rangesText, request, timeText } from "./common.js";
import { Chart, onTheme } from "./chart.js";
import { Past } from "./past.js";
import { Measured, Sheet, printButton, spanText } from "./print.js";
import { day, hour, iso, maxRaw, meansOf, ranges, rawOf, readRange, stepMs, stepWords } from "./series.js";
import { print as printText } from "./text.en.js";

const tailMs = 1000; // how often live readings are drawn
const checkMs = 5000; // how often the page looks whether the device still exists, and who wears it
const rereadMs = 300000; // how often readings are read again, for late ones, while the range ends now

export function device(main, params) {
  const name = params.get("device") ?? "";
  const path = "v1/devices/" + encodeURIComponent(name);
  const charts = groups(); // those without values are not drawn
  document.title = name + " – Pulsegate";
  let range = null, from = 0, to = 0; // Unix ms; range is a key of ranges, or null
  let chosen = false; // whether the address has a range; if not, it is the newest day with readings
  let zone = localStorage.getItem("zone") ?? "local"; // local, device or utc
  let offset = null; // minutes, of the newest reading that has one
  let drawn = new Map(), data = null, gone = false, closed = false;
  let worn = [], present = null; // in whose span which time lies, as spansOf returns them, and the span of now
  let readAt = 0, news = false; // when the data was read, and whether readings have arrived since

  const status = el("p", { role: "status", class: "quiet" });
  const title = el("h1", {}, name);
  const latest = el("dl", { class: "latest" });
  const subject = el("p", { class: "quiet" });
  const usual = el("p", { class: "quiet" });
  let own = {}, wearer; // the ranges of the device and who wears it now
  const state = el("p", {});
  let newest = null; // time of the newest reading
  // showState says whether the device is silent, which it becomes without an answer of the server.
  const showState = () => {
    const silent = isSilent(newest), text = silent ? "○ silent" : "● fresh";
    if (newest !== null && state.firstElementChild?.textContent !== text) state.replaceChildren(el("span", { class: silent ? "tag silent" : "tag" }, text), ago(newest, "last reading "));
    else if (newest !== null) state.lastElementChild.dataset.at = newest;
  };
  addEventListener("tick", showState);
  const rangeButtons = Object.entries(ranges).map(([key, [label]]) => el("button", { type: "button", "data-range": key, onclick: () => go({ range: key }) }, label));
  const zones = el("select", { id: "zone", onchange: () => { zone = zones.value; localStorage.setItem("zone", zone); if (data?.buckets) load(); else if (data) show(); } },
    el("option", { value: "local" }, `Yours (${Intl.DateTimeFormat().resolvedOptions().timeZone})`), el("option", { value: "device" }, "The device’s"), el("option", { value: "utc" }, "UTC"));
  zones.value = zone;
  const shown = el("span", { class: "shown" });
  const exports = el("p", { class: "exports" });
  const figures = el("div", { class: "figures" });
  const zoom = (factor) => {
    const mid = (from + to) / 2, half = ((to - from) / 2) * factor;
    go({ from: mid - half, to: Math.min(now(), mid + half) });
  };
  const move = (share) => {
    const by = (to - from) * share;
    go({ from: from + by, to: to + by });
  };
  const button = (text, title, call) => el("button", { type: "button", "aria-label": title, title, onclick: call }, text);
  const redraw = () => { if (data !== null && !closed) show(); };
  const alerts = new Alerts(name, redraw);
  let active; // a promise of the list of active alerts
  const past = new Past({ rules: () => active.then(() => alerts.rules), isShown: () => true, textOf: (a) => a.name, onChange: redraw });
  const measured = new Measured((params) => fetch(path + "/readings?" + query({ from: iso(data.from), to: iso(data.to), ...params })), "subject");
  const sheet = new Sheet({ about: () => printText.device(name, label, data ? spanText(data.from, data.to, zoneOf()) : ""), charts: () => drawn.values(), figures, rest: measured.box, before: () => measured.fill() });
  let label;
  const prepare = async () => {
    const mine = loading, isShown = () => data !== null && data.of === loading; // no other range was chosen
    if (isShown()) await measured.load();
    if (mine === loading && isShown()) return;
    measured.clear();
    throw new Error(printText.changed);
  };
  main.append(
    title, sheet.head, state, subject, usual, latest,
    el("div", { class: "bar" },
      el("div", { class: "counts", role: "group", "aria-label": "Range" }, rangeButtons),
      el("div", { class: "counts", role: "group", "aria-label": "Move and zoom" },
        button("←", "Earlier", () => move(-0.5)), button("→", "Later", () => move(0.5)), button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2))),
      el("span", { class: "field" }, el("label", { for: "zone" }, "Times"), zones), printButton(prepare), shown),
    notice(), alerts.box, past.box, status, figures, exports, measured.box);

  const zoneOf = () => (zone === "local" ? "local" : zone === "device" ? (offset ?? 0) : 0);

  // go puts another range into the address.
  function go(p) {
    const next = p.range ? { device: name, range: p.range } : { device: name, from: new Date(Math.round(p.from)).toISOString(), to: new Date(Math.round(p.to)).toISOString() };
    history.replaceState(null, "", "#device?" + query(next));
    take(new URLSearchParams(next));
  }

  function take(p) {
    const a = Date.parse(p.get("from") ?? ""), b = Date.parse(p.get("to") ?? "");
    chosen = a < b || p.get("range") in ranges;
    range = a < b ? null : chosen ? p.get("range") : "24h";
    if (range === null) [from, to] = [a, b];
    press();
    return load();
  }

  function press() {
    for (const b of rangeButtons) b.setAttribute("aria-pressed", String(b.dataset.range === range));
  }

  const isRecent = (d) => now() - Date.parse(d.time) < day;
  // newestDay returns the 24 h that end shortly after the newest reading, in Unix ms.
  const newestDay = (d) => [Date.parse(d.time) - 23 * hour, Date.parse(d.time) + hour];

  let loading = 0;
  async function load() {
    const mine = ++loading;
    try {
      // A list, because a device that does not exist is not an error here.
      const page = await request("v1/devices?" + query({ prefix: name, limit: 1 }));
      if (mine !== loading || closed) return;
      const d = page.devices[0];
      gone = d?.device !== name;
      if (gone) {
        clear();
        return;
      }
      const whole = await request(path);
      if (mine !== loading || closed) return;
      showLatest(whole);
      if (!chosen) {
        range = isRecent(d) ? "24h" : null;
        if (range === null) [from, to] = newestDay(d);
        press();
      }
      if (range !== null) {
        to = now();
        from = ranges[range][1] === 0 ? await firstTime() : to - ranges[range][1];
      }
      active = alerts.load();
      const next = await readRange({ ask, limits: () => request("v1/limits"), note, first: zone === "device", tz: bucketZone }, from, to);
      const listed = await request("v1/rejections?" + query({ device: name, limit: 1000 })).catch(() => ({ rejections: [] }));
      next.leftOut = listed.rejections.filter((r) => r.left_out);
      if (mine !== loading || closed) return;
      data = { ...next, from, to, of: mine };
      measured.clear(); // what it has read may be another subject's now, or be erased
      readAt = performance.now();
      news = false;
      status.replaceChildren();
      if (!chosen && range === null) status.append("No readings in the last 24 h: this is the newest day that has some.");
      else if (data.total === 0) {
        const [from, to] = newestDay(d);
        status.append("No readings in this range. ", el("button", { type: "button", onclick: () => go({ from, to }) }, `Show the newest, of ${timeText(Date.parse(d.time), zoneOf())}`));
      }
      show();
      past.load(range ?? `${from} ${to}`, () => [{ device: name, from, to }]);
    } catch (err) {
      if (mine === loading && !closed) status.textContent = err.message;
    }
  }

  function clear() {
    data = null;
    stream.close();
    past.clear();
    measured.clear();
    for (const c of drawn.values()) c.close();
    drawn = new Map();
    figures.replaceChildren();
    latest.replaceChildren();
    state.replaceChildren();
    newest = null;
    subject.textContent = usual.textContent = "";
    exports.replaceChildren();
    shown.textContent = "";
    status.textContent = "No readings are stored for this device.";
  }

  async function firstTime() {
    const page = await request(path + "/readings?limit=1");
    return page.readings.length ? Date.parse(page.readings[0].time) - 1000 : now() - day;
  }

  const offsetText = (o) => `${o < 0 ? "−" : "+"}${Math.floor(Math.abs(o) / 60)}${o % 60 ? ":" + String(Math.abs(o) % 60).padStart(2, "0") : ""}`;
  const ask = (what, params) => request(`${path}/${what}?` + query(params));
  const note = (newest) => { offset = newest?.utc_offset_minutes ?? offset; };

  // bucketZone returns the zone with which buckets are aligned.
  function bucketZone() {
    if (zone === "local") return Intl.DateTimeFormat().resolvedOptions().timeZone;
    const o = zone === "device" ? (offset ?? 0) : 0;
    const two = (n) => String(n).padStart(2, "0");
    return o ? `${o < 0 ? "-" : "+"}${two(Math.floor(Math.abs(o) / 60))}:${two(Math.abs(o) % 60)}` : "UTC";
  }

  // spansOf returns the spans of time in which one subject wore a device, or nobody (""), in Unix ms.
  function spansOf(d) {
    const spans = [{ subject: "", from: -Infinity, to: Infinity }];
    for (const a of d.assignments ?? []) {
      const span = { subject: a.subject, from: Date.parse(a.from), to: a.to ? Date.parse(a.to) : Infinity }, last = spans.pop();
      if (last.from < span.from) spans.push({ ...last, to: span.from });
      if (spans.at(-1)?.subject === span.subject) span.from = spans.pop().from;
      spans.push(span);
      if (span.to < Infinity) spans.push({ subject: "", from: span.to, to: Infinity });
    }
    return spans;
  }

  // showLatest shows the subject, and the latest values of the present assignment only.
  function showLatest(d) {
    newest = Date.parse(d.time);
    label = d.label;
    title.replaceChildren(...named(name, label), ...(d.group ? [" ", el("span", { class: "name" }, d.group)] : []));
    showState();
    const items = [];
    worn = spansOf(d);
    const since = d.assigned_since ? Date.parse(d.assigned_since) : -Infinity;
    present = worn.find((w) => w.from <= since && since < w.to);
    const sinceText = present.from > -Infinity ? " since " + timeText(present.from, zoneOf()) : "";
    const who = present.subject ? ["Subject ", patientLink(present.subject), sinceText] : [sinceText && "Nobody" + sinceText];
    const whoText = el("p", {}, who).textContent;
    if (subject.textContent !== whoText) subject.replaceChildren(...who);
    [own, wearer] = [d.ranges ?? {}, d.assigned_now];
    usual.textContent = rangesText(own);
    const isPresent = (v) => v !== undefined && Date.parse(v.time) >= present.from;
    for (const c of charts) {
      const values = c.signs.map((s) => d.latest[s]).filter(isPresent);
      if (values.length === 0) {
        if (c.signs.some((s) => d.latest[s])) items.push(el("div", {}, el("dt", {}, c.title), el("dd", {}, el("b", {}, "–")), el("dd", { class: "quiet" }, `(before ${present.subject || timeText(present.from, zoneOf())})`)));
        continue;
      }
      const flags = values.flatMap((v) => v.flags ?? []).map((f) => flagSign(f)[1]);
      items.push(el("div", { class: flags.length ? "flagged" : "" }, el("dt", {}, c.title),
        el("dd", {}, el("b", {}, c.signs.map((s) => number(isPresent(d.latest[s]) ? d.latest[s].value : null)).join("/")), " ", el("span", { class: "unit" }, c.unit)),
        flags.map((f) => el("dd", { class: "why" }, flagMark(f))), el("dd", { class: "quiet" }, ago(Math.max(...values.map((v) => Date.parse(v.time)))))));
    }
    latest.replaceChildren(...items);
  }

  // show draws the data.
  function show() {
    const { from, to } = data; // another range may have been chosen, and not been read yet
    if (data.raw) {
      const last = data.raw.findLast((r) => r.utc_offset_minutes !== undefined);
      if (last) offset = last.utc_offset_minutes;
    }
    const z = zoneOf();
    past.show(z);
    alerts.notice.hidden = past.notice.textContent !== ""; // which says the same, and more
    const spans = worn.filter((w) => w.to > from && w.from < to).map((w) => ({ subject: w.subject || "nobody", from: w.from / 1000, to: w.to / 1000 }));
    shown.textContent = `${timeText(from, z)} to ${timeText(to, z)}${zone === "utc" ? " UTC" : zone === "device" ? (offset === null ? " UTC: the device sent no local time" : ` UTC${offsetText(offset)}`) : ""}`
      + (data.raw ? `, ${counted(data.total, "reading")}` : `, buckets of ${stepWords(data.step)}`);
    for (const c of charts) {
      const spec = data.raw ? rawOf(data, c, together) : meansOf(data, c, together, usualOf);
      if (spec.xs.length === 0) {
        drawn.get(c.key)?.close();
        drawn.get(c.key)?.figure.remove();
        drawn.delete(c.key);
        continue;
      }
      Object.assign(spec, { title: c.title, unit: c.unit, from: from / 1000, to: to / 1000, zone: z, paired: c.paired, leftOut: leftOutOf(c), worn: spans, alerts: past.marks(c.signs, alerts.bands(c.signs)), onZoom: (a, b) => go({ from: a * 1000, to: b * 1000 }) });
      const chart = drawn.get(c.key);
      if (chart) chart.draw(spec);
      else drawn.set(c.key, new Chart(figures, spec));
    }
    measured.show(charts.filter((c) => c.paired && drawn.has(c.key)), `${from} ${to}`, data.raw, z);
    const span = { from: iso(from), to: iso(to) };
    exports.replaceChildren("This range as ", ...["csv", "ndjson", "parquet"].flatMap((f, i) => [i ? ", " : "", el("a", { href: path + "/readings?" + query({ ...span, format: f }), download: `${name}.${f}` }, { csv: "CSV", ndjson: "NDJSON", parquet: "Parquet" }[f])]));
    follow();
  }

  // leftOutOf returns how many values of a chart's signs the device has disowned, as far as the server lists them.
  const leftOutOf = (c) => data.leftOut.filter((r) => c.signs.includes(r.field) && Date.parse(r.time) >= from && Date.parse(r.time) <= to).reduce((n, r) => n + r.left_out, 0);

  // together reports whether the same subject, or nobody, wore the device at two times in Unix s.
  const together = (a, b) => worn.some((w) => w.from <= a * 1000 && b * 1000 < w.to);

  // usualOf returns the usual range of a sign, by whose bounds the ends of a subject's buckets are flagged. Of subjects before
  // the present one, ranges of their own are not known here.
  const usualOf = (s, subject) => {
    const range = own[s]?.usual;
    return range && (range.of !== "subject" || subject === wearer) ? range : data.limits.signs[s].usual;
  };

  // The live tail: readings are added to what is drawn, or everything is read again.
  let tail = [], drawing = 0;
  const stream = new Stream((r) => {
    tail.push(r);
    if (drawing === 0) drawing = setTimeout(drawTail, tailMs);
  }, (a) => alerts.take(a), () => load());
  function drawTail() {
    drawing = 0;
    if (closed || gone || data === null) return;
    if (!data.raw || data.raw.length + tail.length > maxRaw) {
      news = true;
      if (data.raw) load(); // too many to draw each
      else check();
      tail = [];
      return;
    }
    const known = (r) => worn.some((w) => w.subject === (r.subject ?? "") && Date.parse(r.time) >= w.from && Date.parse(r.time) < w.to);
    if (!tail.every(known)) { // nothing is drawn under another subject's name
      tail = [];
      return load();
    }
    const newest = data.raw.length ? Date.parse(data.raw.at(-1).time) : 0;
    for (const r of tail) {
      const t = Date.parse(r.time);
      if (t > newest) data.raw.push(r);
      else if (t === newest) data.raw[data.raw.length - 1] = r;
    }
    data.raw.sort((a, b) => Date.parse(a.time) - Date.parse(b.time));
    tail = [];
    to = now();
    if (range !== "all") from = to - ranges[range][1];
    [data.from, data.to] = [from, to];
    data.raw = data.raw.filter((r) => Date.parse(r.time) >= from);
    data.total = data.raw.length;
    show();
    check();
  }

  // check refreshes the latest values, and reads the data again if that would show: means
  // after half an interval, readings rarely. Each read counts towards the limit of exports.
  async function check() {
    let found;
    try {
      found = (await request("v1/devices?" + query({ prefix: name, limit: 1 }))).devices[0];
    } catch {
      return; // the next one may succeed
    }
    if (closed) return;
    if ((found?.device === name) === gone || (!gone && !chosen && range === null && isRecent(found))) return load();
    if (gone || data === null) return;
    const before = JSON.stringify(worn);
    try {
      showLatest(await request(path));
    } catch {
      return;
    }
    if (closed) return;
    if (JSON.stringify(worn) !== before) return load(); // buckets are divided where the subject changes
    if (range === null) return;
    alerts.load();
    const pause = data.raw ? rereadMs : Math.max(checkMs, stepMs(data.step) / 2);
    if (performance.now() - readAt >= pause && (news || data.raw)) load();
  }
  const follow = () => {
    if (!closed && !document.hidden && range !== null && !gone) stream.follow([name]);
    else stream.close();
  };
  const visible = () => (document.hidden ? stream.close() : range !== null ? load() : check());
  document.addEventListener("visibilitychange", visible);
  const timer = setInterval(() => { if (!document.hidden) check(); }, checkMs);
  const theme = onTheme(() => { for (const c of drawn.values()) c.redraw(); });
  take(params);
  return {
    change(p) {
      if (p.get("device") !== name) return false;
      take(p);
      return true;
    },
    close() {
      closed = true;
      stream.close();
      past.clear();
      sheet.close();
      clearInterval(timer);
      clearTimeout(drawing);
      theme();
      removeEventListener("tick", showState);
      document.removeEventListener("visibilitychange", visible);
      for (const c of drawn.values()) c.close();
    },
  };
}
