// The page: which view is shown, and whether the reader is signed in. The view and its
// parameters are in the address after #, which browsers do not send.

import { abandon, el, loadSigns, request } from "./common.js";
import { fleet } from "./fleet.js";

const main = document.getElementById("main");
const who = document.getElementById("who");
const views = {
  fleet: async () => fleet,
  device: async () => (await import("./device.js")).device,
  system: async () => (await import("./system.js")).system,
};

let current = null; // the view that is shown: { name, close(), change(params)? }
let session = null;
let turn = 0; // counts calls of show, of which the last one wins

const closed = () => session.tokens || session.provider; // to people who are not signed in

function place() {
  const [name, rest] = location.hash.slice(1).split("?");
  return { name: name in views ? name : "fleet", params: new URLSearchParams(rest ?? "") };
}

async function show() {
  const { name, params } = place();
  const mine = ++turn;
  if (closed() && !session.signed_in) return signIn();
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
  if (session.provider) {
    const mine = turn;
    const { choices } = await import("./provider.js");
    if (mine !== turn) return;
    document.title = "Sign in – Pulsegate";
    main.replaceChildren(...choices(message, session.tokens && (() => tokenForm())));
    return header();
  }
  tokenForm(message);
}

function tokenForm(message) {
  document.title = "Sign in – Pulsegate";
  const error = el("p", { role: "alert", class: "error" }, message ?? "");
  const input = el("input", { id: "token", type: "password", autocomplete: "current-password", spellcheck: "false", required: true, "aria-describedby": "token-help" });
  const submit = async (e) => {
    e.preventDefault();
    error.textContent = "";
    try {
      await request("v1/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: input.value.trim() }) });
      input.value = "";
      await start();
    } catch (err) {
      error.textContent = err.status === 401 ? "This is not a valid token." : err.message;
      input.focus();
    }
  };
  main.replaceChildren(
    el("h1", {}, "Sign in"),
    el("form", { class: "signin", method: "post", onsubmit: submit },
      el("input", { type: "text", autocomplete: "username", value: "pulsegate", hidden: true, "aria-hidden": "true", tabindex: "-1" }), // for password managers
      el("label", { for: "token" }, "Token with the right to read"), input,
      el("p", { id: "token-help", class: "quiet" }, "It is sent to this server once, and the page does not keep it. You stay signed in for 12 hours, or until you sign out or the token is revoked."),
      el("button", {}, "Sign in"), error));
  input.focus();
  header();
}

function header() {
  who.replaceChildren();
  if (!closed() || !session.signed_in) return;
  who.append(el("button", {
    type: "button", onclick: async () => {
      // First, because what the view requests would fail without a session.
      leave();
      const ended = await request("v1/session", { method: "DELETE" }).catch(() => null); // start shows whether it has ended
      if (ended?.continue) return location.assign(ended.continue); // to end the provider's session
      await start();
    },
  }, "Sign out"));
}

async function start() {
  try {
    const state = document.documentElement.dataset.session; // of the page as it was loaded
    delete document.documentElement.dataset.session;
    if (state === undefined) session = await request("v1/session");
    else session = {
      tokens: state !== "open" && state !== "provider", signed_in: !["out", "provider", "either"].includes(state),
      all_devices: state === "open" || state === "all", provider: state === "provider" || state === "either",
    };
    if (session.signed_in || !closed()) await loadSigns();
  } catch (err) {
    main.replaceChildren(el("h1", {}, "Pulsegate"), el("p", { role: "alert", class: "error" }, err.message),
      el("button", { type: "button", onclick: start }, "Try again"));
    return;
  }
  document.querySelector("nav").hidden = !session.signed_in && closed();
  header();
  await show();
}

addEventListener("hashchange", () => {
  if (location.hash !== "#main" && session !== null) show();
});
addEventListener("signedout", async () => {
  try {
    session = await request("v1/session");
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
