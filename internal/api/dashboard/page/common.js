// What the views share: elements, requests, names of signs, and texts of values and times.

// el makes an element. Properties that begin with "on" are listeners, others are attributes;
// those that are false, null or undefined are left out.
export function el(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return e;
}

// SIGNS are the vital signs by their names in the API, in the order of their numbers. loadSigns fills it.
export const SIGNS = {};

// unitText returns a UCUM code as people write it.
const unitText = (code) => ({ Cel: "°C", "[degF]": "°F", 1: "" })[code] ?? code.replace(/[[\]]/g, "");

let staleMs = Infinity;

// isSilent reports whether the newest reading of a device, of a time in Unix ms, is older than --stale-after.
export const isSilent = (ms) => now() - ms > staleMs;

// loadSigns asks the server for its signs, and after what time a device is silent.
export async function loadSigns() {
  const { signs, stale_after_seconds } = await request("v1/limits");
  staleMs = stale_after_seconds * 1000;
  for (const [name, s] of Object.entries(signs).sort((a, b) => a[1].number - b[1].number)) SIGNS[name] = { ...s, unit: unitText(s.unit) };
}

// groups returns the signs as they are shown: a pair is one group.
export function groups() {
  const lows = Object.values(SIGNS).map((s) => s.pair?.low);
  return Object.entries(SIGNS).filter(([name]) => !lows.includes(name)).map(([name, s]) => ({
    key: name, title: s.pair?.label ?? s.label, unit: s.unit, signs: s.pair ? [name, s.pair.low] : [name], paired: s.pair !== undefined,
  }));
}

// flagSign returns the sign at which a flag such as "x_bpm high" is shown, and its text.
export function flagSign(flag) {
  const [name, text] = [flag.slice(0, flag.indexOf(" ")), flag.slice(flag.indexOf(" ") + 1)];
  const [high, s] = Object.entries(SIGNS).find(([, s]) => s.pair?.difference === name) ?? [];
  return s ? [high, s.pair.difference_label.toLowerCase() + " " + text] : [name, text];
}

export const flagMark = (text) => (text.endsWith("high") ? "▲ " : text.endsWith("low") ? "▼ " : "◆ ") + text;

export const notice = () => el("p", { class: "notice" }, "Flags mark unusual values. Pulsegate is not an alarm system, and readings may arrive late. "
  + "Usual ranges are for adults, not in pregnancy, and not for patients with a target of 88–92 % SpO₂.");

// What was last heard of the server, by its clock and by both clocks of the browser. One of these may be set to another
// time, and the other one may stop while the computer sleeps.
const heard = { server: Date.now(), date: Date.now(), performance: performance.now() };
let streaming = false; // only events of a stream show that the page is live
let asking = false;
const quietMs = 15000; // after so long without an event, the page is not live

// instant returns the time by both clocks of the browser, and since how long ago that was.
export const instant = () => ({ date: Date.now(), performance: performance.now() });
export const since = (at) => Math.max(Date.now() - at.date, performance.now() - at.performance);

const elapsed = () => since(heard);

// now returns the time by the server's clock, in Unix ms.
export const now = () => Math.round(heard.server + elapsed());

const hear = (server) => Object.assign(heard, { server, ...instant() });

// correct takes the server's time from the Date of an answer, which has whole seconds.
function correct(date) {
  const ms = Date.parse(date ?? "");
  if (streaming || Number.isNaN(ms)) return;
  const sure = Math.abs(ms + 500 - now()) < 2000;
  hear(sure ? now() : ms + 500);
}

// ago makes an element with the time since ms, which goes on while the page is shown. before and after are texts around it.
export const ago = (ms, before = "", after = " ago") => el("span", { "data-at": ms, "data-before": before, "data-after": after }, before + ageText(now() - ms) + after);

// tick shows the ages of now, and since when the page is not live.
function tick() {
  if (document.hidden) return;
  for (const e of document.querySelectorAll("[data-at]")) {
    const text = e.dataset.before + ageText(now() - e.dataset.at) + e.dataset.after;
    if (e.textContent !== text) e.textContent = text;
  }
  const quiet = elapsed() > quietMs;
  const band = document.getElementById("band");
  if (band.hidden === quiet) {
    band.hidden = !quiet;
    document.documentElement.toggleAttribute("data-quiet", quiet);
    band.firstElementChild.textContent = quiet ? "Not live since " + clockText(parts(heard.server, "local"), true) : "";
  }
  if (quiet) band.lastElementChild.textContent = `, for ${ageText(elapsed())}. What is shown is older.`;
  dispatchEvent(new Event("tick"));
  if (streaming || asking || elapsed() < quietMs / 3) return;
  asking = true;
  request("v1/session").catch(() => {}).finally(() => { asking = false; });
}
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick); // before the page is painted
addEventListener("pageshow", tick);

// A Failure is an answer other than success.
export class Failure extends Error {
  constructor(status, problem) {
    super(problem?.detail || problem?.title || `The server answered ${status}.`);
    this.status = status;
  }
}

let pending = new AbortController();

// abandon ends the requests that are not answered yet.
export function abandon() {
  pending.abort();
  pending = new AbortController();
}

// request returns the JSON of an address relative to the page, or throws a Failure, or an
// AbortError if it was abandoned.
export async function request(path, options) {
  let answer;
  try {
    const signal = options?.signal ? AbortSignal.any([pending.signal, options.signal]) : pending.signal;
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options, signal });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Failure(0, { title: "The server cannot be reached." });
  }
  correct(answer.headers.get("Date"));
  const text = await answer.text();
  let body = null;
  try {
    body = text === "" ? null : JSON.parse(text);
  } catch {
    if (answer.ok) throw new Failure(0, { title: "The answer is incomplete." });
  }
  if (!answer.ok) {
    // 403 may mean that the session has lost its rights.
    if ((answer.status === 401 || answer.status === 403) && path !== "v1/session") dispatchEvent(new Event("signedout"));
    throw new Failure(answer.status, body);
  }
  return body;
}

const patients = () => JSON.parse(sessionStorage.getItem("patients") ?? "[]"); // [key, id], the last ones last

// patientHref returns the address of the view of a patient. It has a random key, whose id only this tab knows.
function patientHref(id) {
  const known = patients();
  let key = known.find(([, k]) => k === id)?.[0];
  if (key === undefined) {
    key = [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem("patients", JSON.stringify([...known.slice(-99), [key, id]]));
  }
  return "#patient?" + query({ key });
}

// patientOf returns the id of a patient by the key in an address, if this tab knows it.
export const patientOf = (key) => patients().find(([k]) => k === key)?.[1];

// patientLink makes a link to the view of a patient. The key is made when it is followed, and for the id that it shows.
export const patientLink = (id) => el("a", { href: "#patient", onclick: ({ currentTarget: a }) => { a.href = patientHref(a.textContent); } }, id);

export const forgetPatients = () => sessionStorage.removeItem("patients");

// renew makes an element like another one, and leaves what is the same in place: links keep the focus and the pointer.
// Listeners are not taken over.
export function renew(old, next) {
  if (old.nodeName !== next.nodeName) return old.replaceWith(next);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const name of old.getAttributeNames()) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const name of next.getAttributeNames()) if (old.getAttribute(name) !== next.getAttribute(name)) old.setAttribute(name, next.getAttribute(name));
  const were = [...old.childNodes];
  [...next.childNodes].forEach((child, i) => (i < were.length ? renew(were[i], child) : old.append(child)));
  for (const child of were.slice(next.childNodes.length)) child.remove();
}

// named returns how a device is called: by its label, if it has one, and its name.
export const named = (device, label) => (label ? [label + " ", el("span", { class: "name" }, device)] : [device]);

// query returns a query string without the parameters that are empty.
export const query = (params) => new URLSearchParams(Object.entries(params).filter(([, v]) => v !== "" && v !== null && v !== undefined)).toString();

// endsText returns a range of values, whose ends may be missing: no limit.
export function endsText({ min, max }) {
  if (min === undefined) return max === undefined ? "any" : "at most " + number(max);
  return max === undefined ? "at least " + number(min) : `${number(min)} to ${number(max)}`;
}

const whose = { subject: "this patient’s", device: "this device’s", group: "the group’s" };

// rangesText returns the ranges that are not those of all, and whose they are.
export const rangesText = (ranges) => Object.entries(ranges ?? {}).flatMap(([sign, parts]) => Object.entries(parts).map(([part, r]) =>
  `${part} ${SIGNS[sign]?.label ?? sign} ${endsText(r)} ${SIGNS[sign]?.unit ?? ""} (${whose[r.of] ?? r.of})`)).join(", ").replace(/^./, (c) => c.toUpperCase());

// ageText returns how long ago something was.
export function ageText(ms) {
  const s = Math.round(ms / 1000);
  if (s < -5) return "in the future";
  if (s < 60) return Math.max(s, 0) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  if (s < 40 * 86400) return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
  return Math.floor(s / 86400) + " d";
}

const two = (n) => String(n).padStart(2, "0");
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// parts returns what a clock shows at a time. zone is "local", or an offset from UTC in minutes.
export function parts(ms, zone) {
  if (zone === "local") {
    const d = new Date(ms);
    return { year: d.getFullYear(), month: d.getMonth(), day: d.getDate(), hour: d.getHours(), minute: d.getMinutes(), second: d.getSeconds() };
  }
  const d = new Date(ms + zone * 60000);
  return { year: d.getUTCFullYear(), month: d.getUTCMonth(), day: d.getUTCDate(), hour: d.getUTCHours(), minute: d.getUTCMinutes(), second: d.getUTCSeconds() };
}

export const dayText = (p) => `${p.day} ${months[p.month]}`;
export const clockText = (p, seconds) => `${two(p.hour)}:${two(p.minute)}` + (seconds ? ":" + two(p.second) : "");
export function timeText(ms, zone) {
  const p = parts(ms, zone);
  return `${p.year}-${two(p.month + 1)}-${two(p.day)} ${clockText(p, true)}`;
}

// number returns a number with at most three decimals, as readings have.
export const number = (v) => (v === null || v === undefined || Number.isNaN(v) ? "–" : String(Math.round(v * 1000) / 1000));
export const grouped = (n) => n.toLocaleString("en");

// counted returns how many there are of something: "1 reading", "2 readings".
export const counted = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;

// A Stream follows v1/live for some devices while the page is visible.
export class Stream {
  #source = null;
  #devices = "";
  #waitMs = 1000;
  #timer = 0;

  // onLost is called some time after a stream has ended, longer each time: the session may
  // have ended too, or the browser may open it again.
  constructor(onReading, onAlert, onLost) {
    this.onReading = onReading;
    this.onAlert = onAlert;
    this.onLost = onLost;
  }

  // follow selects the devices; at most 100.
  follow(devices) {
    const key = devices.join(" ");
    if (key === this.#devices && this.#source !== null && this.#source.readyState !== EventSource.CLOSED) return;
    this.close();
    this.#devices = key;
    if (devices.length === 0) return;
    streaming = true;
    this.#source = new EventSource("v1/live?" + new URLSearchParams(devices.map((d) => ["device", d])));
    const on = (name, call) => this.#source.addEventListener(name, (e) => {
      hear(now());
      call(JSON.parse(e.data));
    });
    on("reading", this.onReading);
    on("alert", this.onAlert);
    on("time", ({ time }) => { hear(Date.parse(time)); tick(); });
    this.#source.addEventListener("open", () => { this.#waitMs = 1000; });
    this.#source.addEventListener("error", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(this.onLost, this.#waitMs);
      this.#waitMs = Math.min(2 * this.#waitMs, 60000);
    });
  }

  close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    streaming = streaming && this.#source === null;
    this.#source = null;
    this.#devices = "";
  }
}
