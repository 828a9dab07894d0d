// The sign-in at the provider of people's accounts. If there is one, it takes the place of the sign-in with a token,
// which is then token.js.

import { el, request } from "./common.js";
import { choices as token } from "./token.js";

// choices returns the elements of the sign-in, which calls start if it does not lead elsewhere.
export async function choices(message, start) {
  const { tokens } = await request("v1/session").catch(() => ({}));
  const withToken = ({ target }) => {
    const main = target.closest("main");
    main.replaceChildren(...token("", start));
    main.querySelector("#token").focus();
  };
  return [
    el("h1", {}, "Sign in"),
    el("div", { class: "signin" },
      el("p", { role: "alert", class: "error" }, message ?? ""),
      el("button", { type: "button", onclick: () => location.assign("v1/session/begin") }, "Sign in with your account"),
      el("p", { class: "quiet" }, "You are sent to the sign-in of your organisation, and back. You stay signed in for 12 hours at most. Sign out when you leave a shared computer."),
      tokens ? el("button", { type: "button", onclick: withToken }, "Use a token instead") : null),
  ];
}

// signOut ends the session here and at the provider. If it has none there, it calls start, which shows whether it has ended.
export async function signOut(start) {
  const ended = await request("v1/session", { method: "DELETE" }).catch(() => null);
  if (ended?.continue) location.assign(ended.continue);
  else await start();
}
