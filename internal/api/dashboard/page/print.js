// Sheets of paper: a view is printed in light colours, without controls, with what it is about, its span and the time of printing,
// also at the foot of each page. The browser's own header has the title and the address, which name no patient.

import { clockText, dayText, el, flagMark, flagSign, now, number, parts, timeText } from "./common.js";
import { print as text } from "./text.en.js";

const mostRows = 2000; // of a list of measurements
const mostBytes = 64 << 20; // that are read for it
const pagePx = 1350; // height of a page of A4 without its margins, with the zoom of style.css

// paperTime returns a time as paper has it.
export const paperTime = (ms, zone) => { const p = parts(ms, zone); return `${dayText(p)} ${p.year}, ${clockText(p, true)}`; };

// spanText returns the span of a sheet.
export const spanText = (from, to, zone) => text.span(paperTime(from, zone), paperTime(to, zone), zone === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : text.offset(zone));

// cssText returns a text as a string of CSS.
const cssText = (s) => `"${s.replaceAll(/[^\w .,:-]/gu, (c) => `\\${c.codePointAt(0).toString(16)} `)}"`;

// A Sheet prepares a view for paper while it is printed, and makes its button. of has
//   about(): what the view is about, and its span,
//   charts(), figures, rest: the charts that are drawn, if any, the element of these, and what has pages of its own,
//   before(), after(): what else the view does, if anything.
export class Sheet {
  constructor(of) {
    this.of = of;
    this.head = el("p", { class: "sheet" });
    this.style = new CSSStyleSheet();
    addEventListener("beforeprint", this.#before);
    addEventListener("afterprint", this.#after);
  }

  #before = () => {
    const about = `${this.of.about()}. ${text.printed(paperTime(now(), "local"))}`;
    this.head.textContent = about;
    this.style.replaceSync(`@page { @bottom-left { content: ${cssText(about)}; font: 8pt sans-serif; } @bottom-right { content: counter(page) " / " counter(pages); font: 8pt sans-serif; } }`);
    document.adoptedStyleSheets = [this.style];
    document.documentElement.toggleAttribute("data-print", true);
    this.of.before?.();
    for (const e of document.querySelectorAll("[data-at]")) e.textContent = " " + paperTime(Number(e.dataset.at), "local"); // an age would be of no moment
    const { charts, figures, rest } = this.of;
    if (!charts) return;
    const all = [...charts()], plots = all.reduce((a, c) => a + c.box.offsetHeight, 0); // two pages, and a plot of what breaks leave empty
    const free = 2 * pagePx - (figures.closest("main").offsetHeight - rest.offsetHeight - plots);
    for (const c of all) c.redraw(Math.max(100, Math.min(200, Math.floor(free / (all.length + 1)))));
  };

  #after = () => {
    document.documentElement.removeAttribute("data-print");
    document.adoptedStyleSheets = [];
    this.of.after?.();
    for (const c of this.of.charts?.() ?? []) c.redraw();
  };

  close() {
    removeEventListener("beforeprint", this.#before);
    removeEventListener("afterprint", this.#after);
    document.documentElement.removeAttribute("data-print");
    document.adoptedStyleSheets = [];
  }
}

// printButton makes a button that prints when prepare has succeeded.
export function printButton(prepare) {
  const status = el("span", { role: "status" });
  const button = el("button", {
    type: "button", onclick: async () => {
      status.textContent = text.preparing;
      button.disabled = true;
      try {
        await prepare();
        status.textContent = "";
        window.print();
      } catch (err) {
        status.textContent = err.message;
      } finally {
        button.disabled = false;
      }
    },
  }, text.button);
  return el("span", { class: "field" }, button, status);
}

// A Measured lists each measurement of the signs that are given in pairs, such as blood pressure, of a range: charts of many readings
// show means. It is on paper only.
export class Measured {
  #shown = null; // { pairs, range, readings, zone } of the charts; the groups of signs, a name of the range, and its readings if these are all
  #read = null; // { range, readings, more }

  // read asks for the readings of the range as NDJSON, and returns the answer. whose is what tells readings apart: device or subject.
  constructor(read, whose) {
    Object.assign(this, { read, whose });
    this.box = el("div", { class: "sheet" });
  }

  show(pairs, range, readings, zone) {
    this.#shown = { pairs, range, readings, zone };
    if (this.#read?.range !== range) this.#read = null;
  }

  clear() {
    this.#shown = this.#read = null;
    this.box.replaceChildren();
  }

  // fill lists what is known, before it is printed.
  fill() {
    const { pairs, readings } = this.#shown ?? { pairs: [] };
    if (readings || this.#read) this.#list(this.#read ?? { readings });
    else this.box.replaceChildren(...(pairs.length ? [el("p", {}, text.unread(pairs.map((c) => c.title).join(", ")))] : []));
  }

  // load reads what is not known.
  async load() {
    const { pairs, range, readings } = this.#shown ?? { pairs: [] };
    if (pairs.length === 0 || readings || this.#read) return;
    const mark = "end-" + [...crypto.getRandomValues(new Uint8Array(8))].map((b) => b.toString(16)).join(""); // at the end of a whole answer
    const answer = await this.read({ format: "ndjson", end: mark });
    if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.detail ?? text.failed(answer.status));
    const found = [], reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", bytes = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if ((bytes += part.value.length) > mostBytes) {
        reader.cancel();
        throw new Error(text.tooMuch);
      }
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      if (lines.at(-1) === mark) [rest] = lines.splice(-1);
      for (const line of lines) {
        const r = JSON.parse(line);
        if (found.length <= mostRows && pairs.some((c) => c.signs.some((s) => s in r))) found.push(r);
      }
    }
    if (rest.trim() !== mark) throw new Error(text.incomplete);
    this.#read = { range, readings: found.slice(0, mostRows), more: found.length > mostRows };
  }

  #list({ readings, more }) {
    const { pairs, zone } = this.#shown;
    this.box.replaceChildren(...pairs.flatMap((c) => {
      const rows = readings.filter((r) => c.signs.some((s) => s in r)).map((r) => el("tr", {}, el("th", { scope: "row" }, timeText(Date.parse(r.time), zone)),
        el("td", { class: "num" }, c.signs.map((s) => number(r[s])).join("/")), el("td", {}, (r.flags ?? []).map(flagSign).filter(([s]) => c.signs.includes(s)).map(([, t]) => flagMark(t)).join(", ")),
        el("td", {}, r[this.whose] ?? text.nobody)));
      return rows.length === 0 ? [] : [el("h2", {}, c.title + " ", el("span", { class: "unit" }, c.unit)), more ? el("p", {}, text.first(mostRows)) : "",
        el("table", {}, el("thead", {}, el("tr", {}, [...text.heads, text.whose[this.whose]].map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, rows))];
    }));
  }
}
