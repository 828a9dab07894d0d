// One patient: the newest value of each sign, a chart of each over all devices that the patient has worn, while they were
// assigned, and these assignments. What it reads is asked for by POST, because addresses must not name a patient; and
// rarely, because each request is recorded in the audit log. Between them, values come from the stream of the devices.
//
// No value may stay under the name of a patient whose it is not. Assignments are corrected, also those of the past, so
// the view keeps the assignments by which it was read, and compares them with those of each device. At a difference it
// shows nothing until it has read all again, and it hides what it has not been able to compare for some time.

import { Chart, onTheme } from "./chart.js";
import { SIGNS, Stream, ago, counted, el, flagMark, flagSign, groups, instant, isSilent, named, now, number, notice, patientOf, query, rangesText, renew, request, since, timeText } from "./common.js";
import { Past } from "./past.js";
import { Measured, Sheet, printButton, spanText } from "./print.js";
import { day, iso, maxRaw, meansOf, ranges, rawOf, readRange, stepWords } from "./series.js";
import { past as pastText, print as printText } from "./text.en.js";

const drawMs = 1000; // how often live readings are drawn
const lookMs = 10000; // how often the view compares its assignments with those of the devices
const mostLooked = 50; // devices at a time
const unsureMs = 30000; // how long values are shown after the last comparison, for each mostLooked devices
const rereadMs = 300000; // how often all is read again
const leastRereadMs = 30000; // the same after a failure
const mostRuns = 12; // of one device's values after another's that a chart tells apart

export function patient(main, params) {
  const key = params.get("key"), id = patientOf(key);
  document.title = "Patient – Pulsegate";
  if (id === undefined) {
    main.append(el("h1", {}, "Patient"), el("p", {}, "The address of a patient’s view names nobody: only the tab that made it knows whose it is. Open the patient from a device."));
    return { close() {} };
  }
  const ask = (what, params = {}) => request(`v1/subjects/${what}?` + query(params), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ subject: id }) });
  const charts = groups();
  let range = "24h", from = 0, to = 0; // Unix ms; range is a key of ranges, or null
  let drawn = new Map(), data = null, closed = false, loading = 0, pauseMs = rereadMs;
  let latest = {}, own = {}, assigned = []; // the spans in Unix ms
  let loaded = false; // whether values are shown, or hidden
  let reading = false; // whether all is being read
  let stale = false; // whether the charts miss something, so that all must be read again soon
  let readAt = instant(); // when all was read, or tried to
  let sure = { ...instant(), time: now() }; // when the assignments were those of the server for sure

  const status = el("p", { role: "status", class: "quiet" });
  const missing = el("p", { role: "status", class: "quiet" });
  const wears = el("p", { class: "quiet" });
  const usual = el("p", { class: "quiet" });
  const cards = el("dl", { class: "latest" });
  const shown = el("span", { class: "shown" });
  const figures = el("div", { class: "figures" });
  const rows = el("tbody", {});
  const buttons = Object.entries(ranges).map(([k, [label]]) => el("button", { type: "button", "data-range": k, onclick: () => go({ range: k }) }, label));
  const button = (text, title, call) => el("button", { type: "button", "aria-label": title, title, onclick: call }, text);
  const move = (share) => go({ from: from + (to - from) * share, to: to + (to - from) * share });
  const zoom = (factor) => {
    const mid = (from + to) / 2, half = ((to - from) / 2) * factor;
    go({ from: mid - half, to: Math.min(now(), mid + half) });
  };
  const saved = el("span", { role: "status" });
  const title = el("h1", {}, "Patient"); // with the id when the server has allowed it
  const unsure = el("p", { role: "status", class: "error" });
  const labels = new Map(); // of devices
  const past = new Past({
    rules: async () => (await request("v1/alerts?" + query({ device: assigned[0]?.device, limit: 1 }))).rules,
    isShown: (a) => a.subject === id && assigned.some((w) => w.device === a.device && w.from <= a.from && a.to <= w.to),
    textOf: (a) => pastText.ofDevice(a.name, a.label ?? a.device), onChange: () => { if (data !== null && !closed) show(); },
  });
  const measured = new Measured((params) => asked({ from: iso(data.from), to: iso(data.to), ...params }), "device");
  const sheet = new Sheet({ about: () => (data ? printText.patient(id, spanText(data.from, data.to, "local")) : ""), charts: () => drawn.values(), figures, rest: measured.box, before: () => measured.fill() });
  const prepare = async () => {
    const mine = loading, spans = spansText(assigned), isShown = () => data !== null && data.of === loading; // no other range was chosen
    if (isShown()) await measured.load();
    if (mine === loading && isShown() && spans === spansText(assigned)) return;
    measured.clear();
    throw new Error(printText.changed);
  };
  const values = [el("div", {}, wears, usual, cards), el("div", {}, past.box, figures, el("h2", {}, "Assignments"), el("table", {}, el("thead", {}, el("tr", {}, ["Device", "From", "To"].map((h) => el("th", { scope: "col" }, h)))), rows), measured.box)];
  main.append(title, sheet.head, unsure, values[0],
    el("div", { class: "bar" },
      el("div", { class: "counts", role: "group", "aria-label": "Range" }, buttons),
      el("div", { class: "counts", role: "group", "aria-label": "Move and zoom" },
        button("←", "Earlier", () => move(-0.5)), button("→", "Later", () => move(0.5)), button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2))), printButton(prepare), shown),
    notice(), missing, status, values[1],
    el("p", { class: "exports" }, "This range as ", ["csv", "ndjson", "parquet"].flatMap((f) => [el("button", { type: "button", "data-format": f, onclick: () => save(f) }, { csv: "CSV", ndjson: "NDJSON", parquet: "Parquet" }[f]), " "]), saved));

  // save downloads the range. The name of the file has no id.
  async function save(format) {
    if (!loaded) return;
    saved.textContent = "Reading…";
    try {
      const answer = await asked({ from: iso(from), to: iso(to), format });
      if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.detail ?? `The server answered ${answer.status}.`);
      const blob = await answer.blob();
      if (closed) return;
      const href = URL.createObjectURL(blob);
      el("a", { href, download: "patient." + format }).click();
      setTimeout(() => URL.revokeObjectURL(href), 60000);
      saved.textContent = "";
    } catch (err) {
      saved.textContent = err.message;
    }
  }
  const saving = new AbortController();
  const asked = (params) => fetch("v1/subjects/readings?" + query(params), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ subject: id }), signal: saving.signal });

  // go puts another range into the address.
  function go(p) {
    const next = p.range ? { key, range: p.range } : { key, from: iso(p.from), to: iso(p.to) };
    history.replaceState(null, "", "#patient?" + query(next));
    take(new URLSearchParams(next));
  }

  function take(p) {
    const a = Date.parse(p.get("from") ?? ""), b = Date.parse(p.get("to") ?? "");
    range = a < b ? null : p.get("range") in ranges ? p.get("range") : "24h";
    if (range === null) [from, to] = [a, b];
    for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.range === range));
    return load();
  }

  async function load() {
    const mine = ++loading, began = { ...instant(), time: now() };
    readAt = began;
    [reading, stale] = [true, false];
    try {
      const d = await ask("latest");
      if (mine !== loading || closed) return;
      const before = spansText(assigned);
      latest = {};
      for (const [sign, v] of Object.entries(d.latest)) latest[sign] = { ...v, time: Date.parse(v.time), flags: (v.flags ?? []).map((f) => flagSign(f)[1]) };
      own = d.ranges ?? {};
      assigned = d.assignments.map((a) => ({ device: a.device, from: Date.parse(a.from), to: a.to ? Date.parse(a.to) : Infinity }));
      if (spansText(assigned) !== before) clearRange();
      title.textContent = "Patient " + id;
      [loaded, sure, at] = [true, began, 0];
      follow(); // before the charts are read, so that nothing is missed between
      drawTail(); // of what has arrived, the answer may be older
      veil();
      if (range !== null) {
        to = now();
        from = ranges[range][1] > 0 ? to - ranges[range][1] : Math.min(to - day, ...assigned.map((a) => a.from));
      }
      const next = await readRange({ ask, limits: () => request("v1/limits"), tz: () => Intl.DateTimeFormat().resolvedOptions().timeZone }, from, to);
      if (mine !== loading || closed) return;
      data = { ...next, range, from, to, of: mine };
      measured.clear(); // what it has read may be erased now
      pauseMs = rereadMs;
      reading = false;
      missing.textContent = d.unread ? `The newest value may be missing of ${d.unread.map((s) => SIGNS[s]?.label ?? s).join(", ")}.` : "";
      sayEmpty();
      show();
      drawTail();
      past.load(range ?? `${from} ${to}`, () => wornIn(from, to));
      if (labels.size === 0) look();
    } catch (err) {
      if (mine !== loading || closed) return;
      reading = false;
      pauseMs = refused(err) ? rereadMs : leastRereadMs;
      if (refused(err)) {
        clear();
        title.textContent = "Patient";
      }
      status.textContent = err.message;
    }
    follow();
  }

  const refused = (err) => err.status === 401 || err.status === 403 || err.status === 404;
  const sayEmpty = () => { status.textContent = data.total > 0 ? "" : assigned.length === 0 ? "No device was ever assigned to this patient." : "No readings in this range."; };
  const spansText = (spans) => spans.map((a) => `${a.device} ${a.from} ${a.to}`).sort().join("\n");

  // wornIn returns for each device the part of a range from its first assignment there on, the last ones first. It is not only to the
  // last one's end, because values of it may have arrived later.
  const wornIn = (a, b) => [...Map.groupBy(assigned.filter((w) => w.from < b && w.to > a).sort((x, y) => y.from - x.from), (w) => w.device)].map(([device, of]) => (
    { device, from: Math.max(a, of.at(-1).from), to: b }));

  function clearRange() {
    data = null;
    past.clear();
    measured.clear();
    for (const c of drawn.values()) c.close();
    drawn = new Map();
    figures.replaceChildren();
    shown.textContent = "";
  }

  // clear removes all that was measured of the patient.
  function clear() {
    clearRange();
    stream.close();
    [latest, own, assigned, tail, loaded] = [{}, {}, [], [], false];
    for (const e of [wears, usual, cards, rows, missing]) e.replaceChildren();
    veil();
  }

  // veil hides the values if it has not been known for some time whose they are.
  function veil() {
    const count = new Set(assigned.map((a) => a.device)).size, hide = loaded && since(sure) > unsureMs * Math.max(1, Math.ceil(count / mostLooked));
    const text = hide ? `No values are shown: since ${timeText(sure.time, "local")}, the server could not be asked whose they are.` : "";
    if (unsure.textContent !== text) unsure.textContent = text;
    for (const e of values) e.style.visibility = hide ? "hidden" : "";
  }

  const link = (device) => el("a", { href: "#device?" + query({ device }) }, named(device, labels.get(device)));

  // showLatest shows the newest values, each with its device, and what the patient wears. What is flagged and not old is first.
  function showLatest() {
    const ms = now(), worn = assigned.filter((a) => a.from <= ms && ms < a.to);
    renew(wears, el("p", { class: "quiet" }, worn.length === 0 ? ["Wears no device now."] : ["Wears ", ...worn.flatMap((a, i) => [i ? ", " : "", link(a.device), " since " + timeText(a.from, "local")])]));
    usual.textContent = rangesText(own);
    const first = (c) => c.signs.some((s) => latest[s]?.flags.length > 0 && !isSilent(latest[s].time));
    renew(cards, el("dl", { class: "latest" }, charts.toSorted((a, b) => first(b) - first(a)).flatMap((c) => {
      const values = c.signs.map((s) => latest[s]), known = values.filter(Boolean);
      if (known.length === 0) return [];
      const flags = known.flatMap((v) => v.flags), oldest = known.reduce((a, b) => (b.time < a.time ? b : a));
      return [el("div", { class: flags.length ? "flagged" : "" }, el("dt", {}, c.title),
        el("dd", {}, el("b", {}, values.map((v) => number(v?.value)).join("/")), " ", el("span", { class: "unit" }, c.unit)),
        flags.map((f) => el("dd", { class: "why" }, flagMark(f))), el("dd", { class: "quiet" }, ago(oldest.time), ", ", [...new Set(known.map((v) => v.device))].flatMap((d, i) => [i ? " and " : "", link(d)])))];
    })));
    renew(rows, el("tbody", {}, assigned.toSorted((a, b) => b.from - a.from).map((a) => el("tr", {}, el("th", { scope: "row" }, link(a.device)),
      el("td", {}, timeText(a.from, "local")), el("td", {}, a.to === Infinity ? "now" : timeText(a.to, "local"))))));
  }

  // runsOf returns the spans, in Unix s, in which a group of signs has values of one device after another, if they are few.
  function runsOf(c) {
    const runs = [];
    for (const r of data.raw) {
      if (!c.signs.some((s) => s in r)) continue;
      const x = Date.parse(r.time) / 1000;
      if (runs.at(-1)?.subject === r.device) continue;
      if (runs.length > 0) runs.at(-1).to = x;
      runs.push({ subject: r.device, from: runs.length ? x : -Infinity, to: Infinity });
    }
    return runs.length > mostRuns ? [] : runs;
  }

  const usualOf = (s) => own[s]?.usual ?? data.limits.signs[s].usual;

  function show() {
    const { from, to } = data; // another range may have been chosen, and not been read yet
    past.show("local");
    shown.textContent = `${timeText(from, "local")} to ${timeText(to, "local")}` + (data.raw ? `, ${counted(data.total, "reading")}` : `, buckets of ${stepWords(data.step)}`);
    const together = (a, b, device) => assigned.some((w) => w.device === device && w.from <= a * 1000 && b * 1000 < w.to);
    for (const c of charts) {
      const spec = data.raw ? rawOf(data, c, together) : meansOf(data, c, () => true, usualOf);
      if (spec.xs.length === 0) {
        drawn.get(c.key)?.close();
        drawn.get(c.key)?.figure.remove();
        drawn.delete(c.key);
        continue;
      }
      Object.assign(spec, { title: c.title, unit: c.unit, from: from / 1000, to: to / 1000, zone: "local", paired: c.paired, leftOut: 0, worn: data.raw ? runsOf(c) : [], whose: "Device", alerts: past.marks(c.signs), onZoom: (a, b) => go({ from: a * 1000, to: b * 1000 }) });
      const chart = drawn.get(c.key);
      if (chart) chart.draw(spec);
      else drawn.set(c.key, new Chart(figures, spec));
    }
    measured.show(charts.filter((c) => c.paired && drawn.has(c.key)), `${from} ${to}`, data.raw, "local");
  }

  const isOf = (r) => r.subject === id && assigned.some((a) => a.device === r.device && a.from <= Date.parse(r.time) && Date.parse(r.time) < a.to);
  let tail = [], drawing = 0, foreign = false;
  const stream = new Stream((r) => {
    if (!isOf(r)) foreign = true; // late, or the device is assigned anew
    else if (tail.length < maxRaw) tail.push(r);
    else stale = true;
    drawing ||= setTimeout(drawTail, drawMs);
  }, () => {}, () => {
    if (since(readAt) > leastRereadMs) return load();
    stale = true; // readings may have arrived in between
    look();
    follow();
  });
  // keep makes a value of a reading the newest of its sign, unless a newer one is known.
  function keep(sign, time, value) {
    if (!(latest[sign]?.time > time)) latest[sign] = { ...value, time };
  }
  function drawTail() {
    drawing = 0;
    if (closed) return;
    if (foreign && since(lookedAt) > lookMs / 2) look();
    foreign = false;
    tail = tail.filter(isOf); // the assignments may have been corrected since it arrived
    if (!loaded) return;
    for (const r of tail) {
      for (const sign of Object.keys(SIGNS)) {
        if (sign in r) keep(sign, Date.parse(r.time), { value: r[sign], device: r.device, flags: (r.flags ?? []).map(flagSign).filter(([s]) => s === sign).map(([, t]) => t) });
      }
    }
    showLatest();
    if (reading) return; // what is read may not have them
    if (tail.length > 0 && range !== null && data?.raw && data.range === range && !stale) drawRaw();
    tail = [];
  }

  // drawRaw adds the tail to what is drawn of the range that ends now.
  function drawRaw() {
    const known = new Map([...data.raw, ...tail].map((r) => [r.time + r.device, r])), ends = now(), begins = range === "all" ? from : ends - ranges[range][1];
    const raw = [...known.values()].filter((r) => Date.parse(r.time) >= begins).sort((a, b) => Date.parse(a.time) - Date.parse(b.time));
    if (raw.length > maxRaw) {
      stale = true;
      return;
    }
    [from, to, data.raw, data.total] = [begins, ends, raw, raw.length];
    [data.from, data.to] = [from, to];
    if (status.textContent === "No readings in this range.") sayEmpty();
    show();
  }

  const follow = () => {
    const ms = now();
    if (closed || document.hidden) stream.close();
    else stream.follow([...new Set(assigned.filter((a) => a.from <= ms && ms < a.to).map((a) => a.device))].sort().slice(0, 100));
  };

  let looking = false, lookedAt = instant(), at = 0, roundBegan = sure; // at: of which device the next look is
  // look compares the assignments with those of some devices, and then of the others. If they differ, it reads all again.
  async function look() {
    if (looking || closed || !loaded) return;
    looking = true;
    lookedAt = instant();
    const mine = loading, devices = [...new Set(assigned.map((a) => a.device))];
    if (at === 0) roundBegan = { ...instant(), time: now() };
    try {
      for (const device of devices.slice(at, at + mostLooked)) {
        const { found, newest } = await assignedOf(device);
        if (closed || mine !== loading || !loaded) return;
        if (found !== spansText(assigned.filter((a) => a.device === device))) {
          clear();
          status.textContent = "Assignments of this patient have changed. Reading…";
          load();
          return;
        }
        for (const [sign, v] of Object.entries(newest)) { // what the stream has missed
          const time = Date.parse(v.time);
          if (isOf({ ...v, device })) keep(sign, time, { value: v.value, device, flags: (v.flags ?? []).map((f) => flagSign(f)[1]) });
        }
        at++;
      }
      showLatest();
      if (at < devices.length) return;
      [sure, at] = [roundBegan, 0];
    } catch {
      // the next look may succeed; until then, the view is less sure
    } finally {
      looking = false;
      if (!closed) veil();
    }
  }

  const bare = new Set(); // devices without readings, of which the server does not tell assignments
  // assignedOf returns what the server knows of a device: the text of its assignments to this patient, "" if it may not be
  // read; and its newest values.
  async function assignedOf(device) {
    try {
      const d = await request("v1/devices/" + encodeURIComponent(device), { signal: AbortSignal.timeout(lookMs) });
      bare.delete(device);
      labels.set(device, d.label);
      return { found: spansText((d.assignments ?? []).filter((a) => a.subject === id).map((a) => ({ device, from: Date.parse(a.from), to: a.to ? Date.parse(a.to) : Infinity }))), newest: d.latest };
    } catch (err) {
      const same = { found: spansText(assigned.filter((a) => a.device === device)), newest: {} };
      if (err.status === 404 && (bare.has(device) || !hasValues(device))) return same;
      if (err.status === 404) bare.add(device); // its readings may have been erased
      if (refused(err)) return { found: "", newest: {} };
      throw err;
    }
  }
  const hasValues = (device) => !data?.raw || data.raw.some((r) => r.device === device) || Object.values(latest).some((v) => v.device === device);

  async function check() {
    if (document.hidden) return;
    await look();
    if (!closed && since(readAt) >= (stale ? leastRereadMs : pauseMs)) load();
  }
  function visible() {
    if (document.hidden) stream.close();
    else load(); // while it was hidden, nothing was followed
  }
  function ticked() { // each second, and before a tab that was hidden is painted
    const was = unsure.textContent;
    veil();
    if (was === "" && unsure.textContent !== "") look();
  }
  const timer = setInterval(check, lookMs);
  document.addEventListener("visibilitychange", visible);
  addEventListener("tick", ticked);
  const theme = onTheme(() => { for (const c of drawn.values()) c.redraw(); });
  take(params);
  return {
    change(p) {
      if (p.get("key") !== key) return false;
      take(p);
      return true;
    },
    close() {
      closed = true;
      saving.abort();
      past.clear();
      sheet.close();
      stream.close();
      clearInterval(timer);
      clearTimeout(drawing);
      theme();
      document.removeEventListener("visibilitychange", visible);
      removeEventListener("tick", ticked);
      for (const c of drawn.values()) c.close();
    },
  };
}
