// Alerts that were active in a range of time, by today's rules over what is stored now, for the views of a device and of a
// patient: marks on charts, and a list.

import { keyOf } from "./alerts.js";
import { painted } from "./chart.js";
import { el, grouped, named, now, query, request, timeText } from "./common.js";
import { iso } from "./series.js";
import { past as text } from "./text.en.js";

const most = 1000; // that the server lists of one device
const mostDevices = 20; // that are asked about, one after another, because the server evaluates few ranges at a time

export class Past {
  #alerts = []; // what the server has listed, the newest first, with times in Unix ms; end is that of the answer if it goes on
  #cut = false; // there are more, before these
  #asOf = 0; // when they were read
  #zone = null; // in which they are shown
  #range = null; // a name of the range that was asked for: each is once
  #asking = new AbortController();

  // rules returns a promise of the number of rules. isShown reports whether a part of an alert is to be shown. onChange is
  // called when there are others.
  constructor({ rules, isShown, textOf, onChange }) {
    Object.assign(this, { rules, isShown, textOf, onChange });
    this.status = el("p", { class: "quiet", role: "status" });
    this.summary = el("summary", {});
    this.rows = el("div", { class: "rows", tabindex: "0", role: "region", "aria-label": text.region });
    this.more = el("p", {});
    this.section = el("details", { class: "past", hidden: true }, this.summary, this.rows, this.more);
    this.notice = el("p", { class: "notice" });
    this.box = el("div", {}, this.section, this.status, this.notice);
  }

  // load asks for the alerts of a range when the charts are painted, unless it was asked for. spans returns those of devices, the
  // last ones first: [{ device, from, to }] in Unix ms.
  async load(range, spans) {
    if (range === this.#range) return;
    this.clear();
    this.#range = range;
    const { signal } = this.#asking = new AbortController(), asOf = now(), found = [];
    const again = (label) => el("button", { type: "button", onclick: () => { this.clear(); this.load(range, spans); } }, label);
    let cut = false, notice = "", devices = [];
    try {
      await painted();
      const rules = signal.aborted ? 0 : await this.rules();
      if (signal.aborted) return;
      if (rules === 0) {
        this.#range = null; // there may be some the next time
        return;
      }
      this.status.textContent = text.reading;
      devices = spans();
      for (const { device, from, to } of devices.slice(0, mostDevices)) {
        const body = await request("v1/alerts?" + query({ device, from: iso(from), to: iso(to), limit: most }), { signal });
        const end = Date.parse(body.to);
        found.push(...body.alerts.map((a) => ({ ...a, from: Date.parse(a.since), to: a.ended ? Date.parse(a.ended) : end, goesOn: !a.ended })));
        [cut, notice] = [cut || body.total > body.alerts.length, body.notice];
      }
    } catch (err) {
      if (signal.aborted) return;
      if (err.status === 400) this.status.textContent = text.tooLong;
      else this.status.replaceChildren(err.status === 503 ? text.busy : text.failed(err.message), " ", again(text.again));
      return;
    }
    if (signal.aborted) return;
    this.#alerts = found.filter(this.isShown).sort((a, b) => b.from - a.from);
    [this.#cut, this.#asOf, this.#zone] = [cut, asOf, null];
    this.notice.textContent = notice;
    this.status.textContent = devices.length > mostDevices ? text.devices(mostDevices) : "";
    this.more.replaceChildren(again(text.reread));
    this.section.hidden = false;
    this.onChange();
  }

  // clear forgets what was read, so that it is read again.
  clear() {
    this.#asking.abort();
    [this.#alerts, this.#range] = [[], null];
    this.section.hidden = true;
    for (const e of [this.status, this.summary, this.rows, this.notice]) e.replaceChildren();
  }

  // marks returns the marks of alerts about some signs, or about silence, for a chart, with those of others, which are known
  // better: alerts that are active, or were a moment ago.
  marks(signs, others = []) {
    const better = (a) => others.some((o) => o.key === keyOf(a) && o.from * 1000 <= a.to && a.from <= o.to * 1000);
    const own = this.#alerts.filter((a) => (a.sign === undefined || signs.includes(a.sign)) && !better(a));
    return [...others, ...own.map((a) => ({ from: a.from / 1000, to: a.to / 1000, text: this.textOf(a), goesOn: a.goesOn }))].sort((a, b) => a.from - b.from);
  }

  // show shows the list with times of a zone.
  show(zone) {
    if (zone === this.#zone || this.section.hidden) return;
    this.#zone = zone;
    const rows = this.#alerts.map((a) => el("tr", {}, el("th", { scope: "row" }, a.name),
      el("td", {}, named(a.device, a.label)), el("td", {}, a.condition),
      el("td", {}, timeText(a.from, zone)), el("td", {}, a.goesOn ? text.goesOn(timeText(a.to, zone)) : timeText(a.to, zone))));
    this.summary.textContent = text.listed(rows.length === 0 ? text.none : grouped(rows.length) + (this.#cut ? "+" : ""), timeText(this.#asOf, zone));
    this.rows.replaceChildren(...(this.#cut ? [el("p", { class: "quiet" }, text.cut)] : []),
      ...(rows.length ? [el("table", {}, el("thead", {}, el("tr", {}, text.heads.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, rows))] : []));
  }
}
