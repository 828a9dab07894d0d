// The fleet: counts by state, and a table of devices, worst first. The server sorts, filters
// and pages. The rows on the screen follow the live readings; the order of the rows is
// refreshed from time to time.

import { Alerts } from "./alerts.js";
import { SIGNS, Stream, ago, clockText, el, endsText, flagMark, flagSign, grouped, groups, isSilent, named, notice, now, number, parts, patientLink, query, request } from "./common.js";

const pageSize = 50;
const refreshMs = 20000;
const states = { "": ["All", "devices"], flagged: ["Flagged", "flagged"], stale: ["Silent", "stale"], fresh: ["Fresh", "fresh"] };
const firstColumns = 5; // signs with smaller numbers are shown until other columns are chosen

export function fleet(main, params) {
  document.title = "Fleet – Pulsegate";
  let state = params.get("state") in states ? params.get("state") : "";
  let group = params.get("group") ?? "";
  const kiosk = params.has("kiosk"); // a screen on a wall: tiles, a clock, and nothing to click
  let match = params.get("prefix") ?? ""; // of an address that somebody kept; what is typed is not in the address
  let cursors = [""]; // of the pages up to the shown one
  let next = null; // cursor of the next page
  let rows = new Map(); // by device: { device, time, latest, stale, worst, tr, … }
  const onScreen = new Set();
  const every = groups();
  const saved = localStorage.getItem("columns")?.split(","); // keys of groups
  let columns = every.filter((c) => saved?.includes(c.key) ?? SIGNS[c.key].number < firstColumns);
  let closed = false, pending = null, timer = 0;
  let alerted = false; // there is a column of alerts

  const status = el("p", { role: "status", class: "quiet" });
  const worst = el("p", { class: "worst" });
  const counts = el("div", { class: "counts", role: "group", "aria-label": "Filter by state" });
  const buttons = Object.fromEntries(Object.entries(states).map(([key, [label]]) => {
    const n = el("b", {}, "–");
    const b = el("button", { type: "button", "data-state": key, onclick: () => { state = key; first(); } }, n, " ", label);
    counts.append(b);
    return [key, { b, n }];
  }));
  const search = el("input", { id: "match", type: "search", autocomplete: "off", spellcheck: "false", maxlength: 64, placeholder: "for example 0001" });
  search.value = match;
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    if (kind.value === "patient") offerPatient();
    else typing = setTimeout(() => { match = search.value.trim(); first(); }, 250);
  });
  search.addEventListener("keydown", (e) => { if (e.key === "Enter") person.querySelector("a")?.click(); });
  // The id of a patient must be in no address, so it is not sent while it is typed, but when the view is opened.
  const person = el("span", { class: "patient" });
  const offerPatient = () => { person.replaceChildren(...(search.value.trim() ? ["open ", patientLink(search.value.trim())] : [])); };
  const kind = el("select", {
    "aria-label": "Find", onchange: () => {
      clearTimeout(typing);
      search.value = match = "";
      person.replaceChildren();
      first();
    },
  }, el("option", { value: "device" }, "Name or label has"), el("option", { value: "patient" }, "Patient is"));
  const chosen = el("select", { id: "group", onchange: () => { group = chosen.value; first(); } });
  const choice = el("span", { class: "field", hidden: true }, el("label", { for: "group" }, "Group"), chosen);
  // offer offers groups, and the one that is chosen although it has no device any more.
  function offer(names) {
    const all = ["", ...new Set([...names, group].filter(Boolean))];
    choice.hidden = all.length === 1;
    if (all.join("\n") !== [...chosen.options].map((o) => o.value).join("\n")) chosen.replaceChildren(...all.map((g) => el("option", { value: g }, g || "All groups")));
    chosen.value = group;
  }
  const body = el("tbody", { role: "rowgroup" });
  const head = el("tr", { role: "row" });
  const caption = el("caption", {});
  const table = el("table", { class: "fleet", role: "table" },
    caption,
    el("thead", { role: "rowgroup" }, head), body);
  const alerts = new Alerts("", () => {
    const shown = alerts.rules > 0;
    if (shown !== alerted) {
      alerted = shown;
      showHead();
      for (const row of rows.values()) fill(row);
    }
    for (const row of rows.values()) draw(row);
  });
  const showHead = () => {
    caption.textContent = `Devices, worst first: ${alerted ? "alerts about signs by the place of their rules, then " : ""}fresh flagged values, critical ones first, then older ones, ${alerted ? "alerts about silence, " : ""}silent devices. `
      + "Fresh flagged values are in the order of how far they are beyond the usual range, as a share of the way to the accepted bound. The share has no clinical weight.";
    head.replaceChildren(
      ...["Device", "State", "Last reading", ...(alerted ? ["Alerts"] : [])].map((t, i) => el("th", { scope: "col", role: "columnheader", class: i === 2 ? "num" : "" }, t)),
      ...columns.map((c) => el("th", { scope: "col", role: "columnheader", class: "num" }, c.title + " ", el("span", { class: "unit" }, c.unit))));
  };
  showHead();
  // choose shows or hides a column, here and the next time.
  function choose(key, shown) {
    columns = every.filter((c) => (c.key === key ? shown : columns.includes(c)));
    localStorage.setItem("columns", columns.map((c) => c.key).join(","));
    showHead();
    for (const row of rows.values()) {
      fill(row);
      draw(row);
    }
  }
  const chooser = el("details", { class: "columns" }, el("summary", {}, "Columns"),
    el("fieldset", {}, el("legend", {}, "Signs in the table"), every.map((c) => el("label", {},
      el("input", { type: "checkbox", checked: columns.includes(c), "data-sign": c.key, onchange: (e) => choose(c.key, e.target.checked) }), ` ${c.title} `, el("span", { class: "unit" }, c.unit)))));
  const back = el("button", { type: "button", onclick: () => { cursors.pop(); load(true); } }, "Previous page");
  const forth = el("button", { type: "button", onclick: () => { cursors.push(next); load(true); } }, "Next page");
  const where = el("span", { class: "quiet" });
  const clock = el("p", { class: "clock" }); // a picture that is frozen shows an old time
  document.documentElement.toggleAttribute("data-kiosk", kiosk);
  main.append(el("h1", {}, kiosk && group ? group : "Fleet"), ...(kiosk ? [clock] : []), worst,
    el("div", { class: "bar" }, counts, el("span", { class: "field" }, kind, el("label", { for: "match", class: "hidden" }, "Name, label or patient"), search), person, choice),
    notice(), alerts.box, status, chooser, table, el("div", { class: "pages", role: "group", "aria-label": "Pages" }, back, forth, where));

  const stream = new Stream((r) => {
    const row = rows.get(r.device);
    if (row === undefined) return;
    update(row, r);
    draw(row);
    showWorst();
  }, (a) => alerts.take(a), () => load().then(follow));
  const observer = new IntersectionObserver((entries) => {
    for (const e of entries) {
      if (e.isIntersecting) onScreen.add(e.target.dataset.device);
      else onScreen.delete(e.target.dataset.device);
    }
    clearTimeout(pending);
    pending = setTimeout(follow, 200);
  });
  const follow = () => {
    if (closed || document.hidden) return;
    stream.follow([...onScreen].sort().slice(0, 100));
  };

  // first shows the first page of another selection.
  function first() {
    cursors = [""];
    history.replaceState(null, "", "#fleet" + (state || group || kiosk ? "?" + query({ state, group, kiosk: kiosk ? "1" : "" }) : ""));
    load(true);
  }

  let loading = 0;
  async function load(moves) {
    const mine = ++loading;
    const listed = alerts.load();
    for (const [key, { b }] of Object.entries(buttons)) b.setAttribute("aria-pressed", String(key === state));
    let page;
    try {
      page = await request("v1/devices?" + query({ sort: "worst", counts: true, limit: pageSize, state, group, match, cursor: cursors.at(-1) }));
    } catch (err) {
      if (mine === loading && !closed) status.textContent = err.message;
      return;
    }
    if (mine !== loading || closed) return;
    next = page.next_cursor ?? null;
    for (const [key, [, member]] of Object.entries(states)) buttons[key].n.textContent = grouped(page.counts[member]);
    offer(page.groups ?? []);
    const old = rows;
    rows = new Map();
    const trs = [];
    for (const d of page.devices) {
      const row = old.get(d.device) ?? newRow(d.device);
      Object.assign(row, { time: Date.parse(d.time), label: d.label, ranges: d.ranges ?? {}, wearer: d.assigned_now, worst: d.worst ?? {}, latest: {} });
      if (row.link.textContent !== (d.label ? d.label + " " : "") + d.device) row.link.replaceChildren(...named(d.device, d.label));
      for (const [sign, v] of Object.entries(d.latest)) row.latest[sign] = { value: v.value, time: Date.parse(v.time), subject: v.subject, flags: (v.flags ?? []).map((f) => flagSign(f)[1]) };
      rows.set(d.device, row);
      draw(row);
      trs.push(row.tr);
    }
    const focused = document.activeElement;
    if (trs.length !== body.children.length || trs.some((tr, i) => body.children[i] !== tr)) {
      body.replaceChildren(...trs);
      if (focused && body.contains(focused)) focused.focus({ preventScroll: true });
      observer.disconnect();
      onScreen.clear();
      for (const tr of trs) observer.observe(tr);
    }
    const total = state === "" ? page.counts.devices : page.counts[states[state][1]];
    const before = (cursors.length - 1) * pageSize;
    where.textContent = trs.length === 0 ? "" : `${grouped(before + 1)} to ${grouped(before + trs.length)} of ${grouped(total)}`;
    back.disabled = cursors.length === 1;
    forth.disabled = next === null;
    status.textContent = trs.length > 0 ? "" : page.counts.devices > 0 ? "No device is in this state." : match || group ? "No device is selected." : "No device has sent readings yet.";
    showWorst();
    listed.then(() => alerts.about([...rows.keys()]));
    if (performance.getEntriesByName("first-table").length === 0) performance.mark("first-table"); // make bench-page reads it
    if (moves === true && cursors.length > 1) table.scrollIntoView({ block: "start" });
  }

  const cell = (props, label) => el("td", { role: "cell", "data-label": label, ...props });

  function newRow(device) {
    const row = { device, tr: el("tr", { role: "row", "data-device": device }), state: cell({}, "State"), age: cell({ class: "num" }, "Last reading"), alerts: cell({}, "Alerts") };
    row.link = el("a", { href: "#device?" + query({ device }) });
    row.name = el("th", { scope: "row", role: "rowheader" }, row.link);
    fill(row);
    return row;
  }

  // fill gives a row the cells of the columns.
  function fill(row) {
    row.cells = columns.map((c) => cell({ class: "num" }, `${c.title} ${c.unit}`));
    row.tr.replaceChildren(row.name, row.state, row.age, ...(alerted ? [row.alerts] : []), ...row.cells);
  }

  const isFlagged = (row) => Object.values(row.latest).some((v) => v.flags.length > 0);

  function draw(row) {
    const flagged = isFlagged(row);
    row.stale = isSilent(row.time);
    row.tr.className = flagged ? "flagged" : row.stale ? "stale" : "";
    const words = [flagged ? el("span", { class: "tag flag" }, "◆ flagged") : null, row.stale ? el("span", { class: "tag silent" }, "○ silent") : null];
    // What is flagged, or is why the row is where it is, is shown whichever columns are chosen.
    const hidden = Object.keys(row.latest).filter((s) => (row.latest[s].flags.length > 0 || s === row.worst.sign) && !columns.some((c) => c.signs.includes(s)));
    row.state.replaceChildren(...(flagged || row.stale ? words.filter(Boolean) : [el("span", { class: "tag" }, "● fresh")]),
      ...hidden.map((s) => el("div", {}, `${SIGNS[s]?.label ?? s} `, valueOf(row, [s], ` ${SIGNS[s]?.unit ?? ""}`))));
    row.age.replaceChildren(el("span", { class: "value" }, ago(row.time)));
    const names = alerts.names(row.device);
    row.alerts.replaceChildren(names.length ? el("span", { class: "tag alert" }, "⚠ " + names.join(", ")) : el("span", { class: "quiet" }, alerts.unsure ? "?" : "–"));
    columns.forEach((c, i) => row.cells[i].replaceChildren(valueOf(row, c.signs)));
  }

  // valueOf returns the latest values of some signs, with their flags, and the age of the oldest one if it is not that of the row.
  function valueOf(row, signs, unit = "") {
    const values = signs.map((s) => row.latest[s]);
    const known = values.filter(Boolean);
    if (known.length === 0) return el("span", { class: "quiet" }, "–");
    const flags = known.flatMap((v) => v.flags);
    const oldest = Math.min(...known.map((v) => v.time));
    return el("span", {}, el("span", { class: flags.length ? "value flag" : "value" }, values.map((v) => number(v?.value)).join("/") + unit),
      flags.flatMap((f) => [" ", el("span", { class: "why" }, flagMark(f))]),
      signs.filter((s) => row.ranges[s]?.usual && row.latest[s] && row.latest[s].subject === row.wearer).flatMap((s) =>
        [" ", el("span", { class: "when" }, (signs.length > 1 ? SIGNS[s].label.toLowerCase() + " " : "") + "usual " + endsText(row.ranges[s].usual))]),
      row.time - oldest > 60000 ? [" ", el("span", { class: "when" }, ago(oldest))] : []);
  }

  // update puts a live reading into a row.
  function update(row, r) {
    const time = Date.parse(r.time);
    row.time = Math.max(row.time, time);
    for (const sign of Object.keys(SIGNS)) {
      if (!(sign in r) || row.latest[sign]?.time > time) continue;
      row.latest[sign] = { value: r[sign], time, subject: r.subject, flags: (r.flags ?? []).map(flagSign).filter(([s]) => s === sign).map(([, t]) => t) };
    }
  }

  // showWorst says in a sentence what the first row means.
  function showWorst() {
    const row = rows.values().next().value;
    if (row === undefined || cursors.length > 1) {
      worst.replaceChildren();
      return;
    }
    const link = el("a", { href: "#device?" + query({ device: row.device }) }, named(row.device, row.label));
    const { class: why, alert } = row.worst;
    const sign = row.worst.sign ?? Object.keys(row.latest).find((s) => row.latest[s].flags.length > 0); // a flag that has just come
    const v = row.latest[sign];
    const texts = why === "alert" || why === "silence_alert" ? [el("b", {}, `⚠ ${alert}:`)] : [];
    if (v !== undefined) texts.push(el("b", {}, `${SIGNS[sign]?.label ?? sign} ${number(v.value)} ${SIGNS[sign]?.unit ?? ""}`), [v.flags.map(flagMark).join(", "), ago(v.time, v.flags.length ? ", measured " : "measured ")]);
    else if (row.stale || why === "silence_alert") texts.push(el("b", {}, ago(row.time, "silent for ", "")));
    if (texts.length === 0) worst.replaceChildren(state || match || group ? "No device that is selected is flagged or silent." : "No device is flagged or silent.");
    else worst.replaceChildren("Worst: ", link, " – ", ...texts.flatMap((t, i) => [i ? " " : "", t].flat()));
  }

  // On paper, the table has all columns.
  let sheet = null, onScreenColumns;
  function toPaper(all) {
    [onScreenColumns, columns] = [columns, all];
    showHead();
    for (const row of rows.values()) {
      fill(row);
      draw(row);
    }
  }
  async function makeSheet() {
    const [{ Sheet }, { print }] = await Promise.all([import("./print.js"), import("./text.en.js")]);
    if (closed || sheet !== null) return;
    const about = () => print.fleet([state && states[state][0], group, match].filter(Boolean).join(", "), where.textContent);
    sheet = new Sheet({ about, before: () => toPaper(every), after: () => toPaper(onScreenColumns) });
    table.before(sheet.head);
  }

  const visible = () => {
    if (document.hidden) stream.close();
    else load().then(follow);
  };
  document.addEventListener("visibilitychange", visible);
  // tick shows devices as silent that have become so, also without an answer of the server.
  const tick = () => {
    if (kiosk) clock.textContent = clockText(parts(now(), "local"), true);
    const silent = [...rows.values()].filter((row) => row.stale !== isSilent(row.time));
    for (const row of silent) draw(row);
    if (silent.length > 0) showWorst();
  };
  addEventListener("tick", tick);
  timer = setInterval(() => { if (!document.hidden) load(); }, refreshMs);
  load().then(makeSheet).catch(() => {}); // without it, the view is printed as it is
  return {
    close() {
      closed = true;
      sheet?.close();
      stream.close();
      observer.disconnect();
      clearInterval(timer);
      removeEventListener("tick", tick);
      document.documentElement.removeAttribute("data-kiosk");
      clearTimeout(typing);
      document.removeEventListener("visibilitychange", visible);
    },
  };
}
