// The sign-in with a token.

import { el, request } from "./common.js";

// choices returns the elements of the sign-in, which calls start.
export function choices(message, start) {
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
  return [
    el("h1", {}, "Sign in"),
    el("form", { class: "signin", method: "post", onsubmit: submit },
      el("input", { type: "text", autocomplete: "username", value: "pulsegate", hidden: true, "aria-hidden": "true", tabindex: "-1" }), // for password managers
      el("label", { for: "token" }, "Token with the right to read"), input,
      el("p", { id: "token-help", class: "quiet" }, "It is sent to this server once, and the page does not keep it. You stay signed in for 12 hours, or until you sign out or the token is revoked; with a token for a wall, as long as it is valid."),
      el("button", {}, "Sign in"), error),
  ];
}

// signOut ends the session, and calls start, which shows whether it has ended.
export async function signOut(start) {
  await request("v1/session", { method: "DELETE" }).catch(() => {});
  await start();
}
