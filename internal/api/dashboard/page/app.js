// The page: which view is shown, and whether the reader is signed in. The view and its
// parameters are in the address after #, which browsers do not send.

import { abandon, clockText, dayText, el, forgetPatients, loadSigns, now, parts, request } from "./common.js";
import { fleet } from "./fleet.js";

const main = document.getElementById("main");
const who = document.getElementById("who");
const views = {
  fleet: async () => fleet,
  device: async () => (await import("./device.js")).device,
  patient: async () => (await import("./patient.js")).patient,
  system: async () => (await import("./system.js")).system,
};

let current = null; // the view that is shown: { name, close(), change(params)? }
let session = null; // whether somebody is signed in, or need not be, and may read all devices
let ends = Infinity; // when the session ends at the latest, by the server's clock
let asksAt = 0; // when to ask for the session again
let turn = 0; // counts calls of show, of which the last one wins

function place() {
  const [name, rest] = location.hash.slice(1).split("?");
  return { name: name in views ? name : "fleet", params: new URLSearchParams(rest ?? "") };
}

async function show() {
  const { name, params } = place();
  const mine = ++turn;
  if (!session.signed_in) return signIn();
  if (current?.name === name && current.change?.(params)) return;
  const view = await views[name]();
  if (mine !== turn) return;
  current?.close();
  for (const a of document.querySelectorAll("nav a")) {
    if (a.dataset.view === name) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
    if (a.dataset.view === "system") a.hidden = !session.all_devices;
  }
  const moved = current !== null;
  main.replaceChildren();
  current = { name, ...view(main, params) };
  if (moved) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

// leave ends the view that is shown, or will be, and its requests.
function leave() {
  turn++;
  if (current === null) return;
  current.close();
  current = null;
  abandon();
}

// signIn removes what is shown, and offers to sign in. If a session has ended, a band says since when.
async function signIn(endedAt) {
  leave();
  forgetPatients(); // the next one to sign in may be somebody else
  const mine = turn;
  document.title = "Sign in – Pulsegate";
  const ended = endedAt === undefined ? [] : [endedBand(parts(endedAt, "local"))];
  main.replaceChildren(...ended);
  let elements;
  try {
    const { choices } = await import("./signin.js");
    elements = await choices("", start);
  } catch {
    elements = [el("p", { role: "alert", class: "error" }, "The server cannot be reached."),
      el("button", { type: "button", onclick: () => location.reload() }, "Try again")];
  }
  if (mine !== turn) return;
  main.replaceChildren(...ended, ...elements);
  main.querySelector("input:not([hidden])")?.focus();
  header();
}

const endedBand = (p) => el("p", { class: "ended" },
  el("b", { role: "alert" }, `Your session has ended. No values since ${dayText(p)} ${clockText(p, true)}.`));

function header() {
  who.replaceChildren();
  if (session.open || !session.signed_in) return;
  who.append(el("button", {
    type: "button", onclick: async () => {
      // First, because what the view requests would fail without a session.
      leave();
      forgetPatients();
      await import("./signin.js").then(({ signOut }) => signOut(start), start);
    },
  }, "Sign out"));
}

const dayMs = 24 * 3600 * 1000;

// ask asks the server for the session, which renews the cookie of a kiosk, and forgets when to ask again.
async function ask() {
  asksAt = now() + 60000; // if there is no answer
  const { tokens, signed_in, all_devices, expires } = await request("v1/session?renew=1");
  if (signed_in) asksAt = now() + dayMs;
  ends = expires === undefined ? Infinity : Date.parse(expires);
  return { open: signed_in && !tokens && expires === undefined, signed_in, all_devices };
}

// check asks for the session, and ends the view if there is none any more.
async function check() {
  const was = session?.signed_in;
  try {
    session = await ask();
  } catch {
    return; // the view says what it misses, or was left
  }
  if (was && !session.signed_in) end(now());
}

function end(at) {
  session = { ...session, signed_in: false };
  document.querySelector("nav").hidden = true;
  return signIn(at);
}

async function start() {
  try {
    const state = document.documentElement.dataset.session; // of the page as it was loaded
    delete document.documentElement.dataset.session;
    if (state === undefined) session = await ask();
    else session = { open: state === "open", signed_in: state !== "out", all_devices: state === "open" || state === "all" };
    if (session.signed_in) await loadSigns();
  } catch (err) {
    main.replaceChildren(el("h1", {}, "Pulsegate"), el("p", { role: "alert", class: "error" }, err.message),
      el("button", { type: "button", onclick: start }, "Try again"));
    return;
  }
  document.querySelector("nav").hidden = !session.signed_in;
  header();
  await show();
}

// Without a session the sign-in stays as it is, with what was typed into it; then start shows the view.
addEventListener("hashchange", () => {
  if (location.hash !== "#main" && session?.signed_in) show();
});
addEventListener("signedout", check);

// The values go when the session ends, also if the server cannot be asked. Another tab may have begun a new one.
addEventListener("tick", async () => {
  if (session === null || session.open) return;
  if (!session.signed_in) { // a screen on a wall goes on by itself if its session was only thought to have ended
    const waits = main.querySelector(".ended") !== null && !main.querySelector("#token")?.value && now() >= asksAt;
    if (waits && (await ask().catch(() => null))?.signed_in) start();
  } else if (now() >= ends) {
    await end(ends);
    const next = await ask().catch(() => null);
    if (next?.signed_in) start();
  } else if (now() >= asksAt) check();
});
document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault();
  main.focus();
});
start();
