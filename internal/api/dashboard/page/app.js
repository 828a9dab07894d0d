// The page: which view is shown, and whether the reader is signed in. The view and its
// parameters are in the address after #, which browsers do not send.

import { abandon, el, forgetPatients, loadSigns, request } from "./common.js";
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

async function signIn(message) {
  leave();
  forgetPatients(); // the next one to sign in may be somebody else
  const mine = turn;
  const { choices } = await import("./signin.js");
  const elements = await choices(message, start);
  if (mine !== turn) return;
  document.title = "Sign in – Pulsegate";
  main.replaceChildren(...elements);
  main.querySelector("input:not([hidden])")?.focus();
  header();
}

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

// ask asks the server for the session. A server that asks nobody to sign in has none that expires.
async function ask() {
  const { signed_in, all_devices, expires } = await request("v1/session");
  return { open: signed_in && expires === undefined, signed_in, all_devices };
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
addEventListener("signedout", async () => {
  try {
    session = await ask();
  } catch {
    return; // the view says what it misses, or was left
  }
  if (session.signed_in) return;
  document.querySelector("nav").hidden = true;
  signIn("Your session has ended.");
});
document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault();
  main.focus();
});
start();
