// Alerts by the rules of the server: those that are active, as a list, and for the fleet's column and
// the bands of charts.

import { ago, counted, el, grouped, named, now, query, request, timeText } from "./common.js";

const most = 1000; // that the server lists, and of those that have ended

// keyOf tells alerts apart that may be active at one time.
export const keyOf = (a) => JSON.stringify([a.name, a.device, a.sign, a.labels]);

export class Alerts {
  rules = 0; // of the server; 0: nothing is shown
  active = []; // the newest first
  #ended = []; // since the view was opened
  #total = 0;
  #ready = true; // the server knows the states of all devices but
  #unread = 0; // devices, which it cannot read
  #others = []; // of devices that about has asked for
  #soon = 0; // not 0: what has changed will be shown, with all that changes until then
  unsure = false; // devices may have alerts that are in neither list

  // device is "" for all. onChange is called when there may be others.
  constructor(device, onChange) {
    this.device = device;
    this.onChange = onChange;
    this.summary = el("summary", {});
    this.notice = el("p", { class: "notice" });
    this.rows = el("div", { class: "rows", tabindex: "0", role: "region", "aria-label": "Active alerts" });
    this.section = el("details", { class: "alerts", hidden: true }, this.summary, this.rows);
    this.box = el("div", {}, this.section, this.notice);
  }

  // load reads what is active.
  async load() {
    let body;
    try {
      body = await request("v1/alerts?" + query({ device: this.device, limit: most }));
    } catch {
      return; // the next one may succeed
    }
    Object.assign(this, { rules: body.rules, active: body.alerts });
    this.#total = body.total;
    this.#ready = body.ready;
    this.#unread = body.unread;
    this.unsure = !body.ready || body.unread > 0 || body.total > body.alerts.length;
    this.notice.textContent = body.rules > 0 ? body.notice : "";
    this.#show();
  }

  // about reads the alerts of some devices, after load, if the list does not have all.
  async about(devices) {
    if (!this.unsure || devices.length === 0) return;
    const body = await request("v1/alerts?" + new URLSearchParams([["limit", most], ...devices.map((d) => ["device", d])])).catch(() => null);
    if (body === null) return;
    this.#others = body.alerts;
    this.unsure = !body.ready || body.unread > 0 || body.total > body.alerts.length;
    this.onChange();
  }

  // take takes an event of the stream.
  take(a) {
    const others = this.active.filter((b) => keyOf(b) !== keyOf(a));
    this.#others = this.#others.filter((b) => keyOf(b) !== keyOf(a));
    const listed = others.length < this.active.length;
    if (listed || a.ended && this.#total > this.active.length) this.#total--; // it was listed, or not
    if (!a.ended) this.#total++;
    this.active = a.ended ? others : [a, ...others.slice(0, most - 1)];
    this.unsure ||= this.#total > this.active.length;
    if (a.ended && listed && this.device !== "") this.#ended = [...this.#ended.slice(1 - most), a];
    this.#soon ||= requestAnimationFrame(() => this.#show());
  }

  names(device) {
    return [...new Set([...this.active, ...this.#others].filter((a) => a.device === device).map((a) => a.name))];
  }

  // bands returns the times of alerts about some signs, or about silence, in Unix s.
  bands(signs) {
    return [...this.#ended, ...this.active].filter((a) => a.sign === undefined || signs.includes(a.sign)).map((a) => ({
      from: Date.parse(a.since) / 1000, to: (a.ended ? Date.parse(a.ended) : now()) / 1000, text: a.name, key: keyOf(a), goesOn: !a.ended,
    })).sort((a, b) => a.from - b.from);
  }

  #show() {
    this.#soon = 0;
    this.section.hidden = this.rules === 0;
    this.summary.textContent = !this.#ready ? "Active alerts are not known yet" : (this.#total === 0 ? "No active alert" : counted(this.#total, "active alert")) +
      (this.#unread > 0 ? `; those of ${counted(this.#unread, "device")} are not known` : "");
    const heads = ["Alert", "Device", "Condition", "Active since", "Labels"];
    const rows = this.active.map((a) => el("tr", {}, el("th", { scope: "row" }, a.name),
      el("td", {}, el("a", { href: "#device?" + query({ device: a.device }) }, named(a.device, a.label))), el("td", {}, a.condition),
      el("td", {}, timeText(Date.parse(a.since), "local"), ", ", ago(Date.parse(a.since))),
      el("td", {}, Object.entries(a.labels ?? {}).map(([k, v]) => `${k} = ${v}`).join(", "))));
    this.rows.replaceChildren(...(this.#total > rows.length ? [el("p", { class: "quiet" }, `The newest ${grouped(rows.length)} of ${grouped(this.#total)}.`)] : []),
      ...(rows.length ? [el("table", {}, el("thead", {}, el("tr", {}, heads.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, rows))] : []));
    this.onChange();
  }
}
