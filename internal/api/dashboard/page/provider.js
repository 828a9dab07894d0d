// The sign-in at the provider of people's accounts. It is loaded only if there is one.

import { el } from "./common.js";

// choices returns the elements of the sign-in. withToken, if it is a function, shows the form for tokens.
export const choices = (message, withToken) => [
  el("h1", {}, "Sign in"),
  el("div", { class: "signin" },
    el("p", { role: "alert", class: "error" }, message ?? ""),
    el("a", { class: "button", href: "v1/session/begin" }, "Sign in with your account"),
    el("p", { class: "quiet" }, "You are sent to the sign-in of your organisation, and back. You stay signed in for 12 hours at most. Sign out when you leave a shared computer."),
    withToken ? el("button", { type: "button", onclick: withToken }, "Use a token instead") : null),
];
