// The system: numbers of /metrics, as they are now and in the last hour.

import { Failure, ago, el, grouped, number, request, timeText } from "./common.js";
import { Chart, onTheme } from "./chart.js";

const everyMs = 5000;
const shownRejections = 100;

const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
};

const total = (m, name) => (m[name] ?? []).reduce((a, s) => a + (s.value ?? s.count ?? 0), 0);
const labelled = (m, name, label) => Object.fromEntries((m[name] ?? []).map((s) => [s.labels[label], s.value]));

const graphs = [
  { title: "Readings stored", unit: "/s", of: (h) => h.stored_per_second },
  { title: "Commits", unit: "/s", of: (h) => h.commits_per_second },
  { title: "Time of a commit, 99 % below", unit: "ms", of: (h) => h.commit_p99_seconds.map((s) => (s === null ? null : s * 1000)) },
  { title: "Connections", unit: "open", of: (h) => h.connections },
];

export function system(main) {
  document.title = "System – Pulsegate";
  const status = el("p", { role: "status", class: "quiet" });
  const facts = el("dl", { class: "latest" });
  const figures = el("div", { class: "figures half" });
  const refusals = el("tbody", {});
  const outcomes = el("tbody", {});
  const table = (caption, head, body) => el("table", { class: "plain" }, el("caption", {}, caption), el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { scope: "col", class: i ? "num" : "" }, h)))), body);
  const rejected = el("tbody", {});
  const rejectedCaption = el("caption", {});
  const rejections = el("section", { hidden: true }, el("h2", {}, "Rejections"),
    el("p", { class: "quiet" }, "Readings that were rejected although their protocol has no way to tell the client."),
    el("div", { class: "rows", tabindex: 0, role: "region", "aria-label": "Rejections" }, el("table", {}, rejectedCaption,
      el("thead", {}, el("tr", {}, ["Time", "Input", "Gateway", "Device", "Field", "Reason"].map((h) => el("th", { scope: "col" }, h)))), rejected)));
  main.append(el("h1", {}, "System"), status, facts, figures,
    el("div", { class: "tables" }, table("Readings since the start, by outcome", ["Outcome", "Readings"], outcomes), table("Refused since the start, by reason", ["Reason", "Requests"], refusals)),
    rejections,
    el("p", { class: "quiet" }, "All metrics are on the admin listener under /metrics, for Prometheus."));

  const charts = [];
  let closed = false, timer = 0, gather = 0;

  async function load() {
    const mine = ++gather;
    clearTimeout(timer);
    try {
      const [s, r] = await Promise.all([request("v1/system"), request("v1/rejections?limit=" + shownRejections).catch(() => null)]);
      if (closed || mine !== gather) return;
      status.textContent = "";
      if (r !== null) showRejections(r);
      show(s.metrics, s.history);
    } catch (err) {
      if (closed || mine !== gather) return;
      if (!(err instanceof Failure)) throw err;
      status.textContent = err.message;
    }
    if (!document.hidden) timer = setTimeout(load, everyMs);
  }

  function showRejections({ rejections: list, total }) {
    rejections.hidden = list.length === 0;
    rejectedCaption.textContent = `The newest ${grouped(list.length)} of ${grouped(total)} since the start`;
    rejected.replaceChildren(...list.map((r) => el("tr", {},
      [timeText(Date.parse(r.time), "local"), r.input, r.gateway ?? "–", r.device ?? "–", r.field || "–", r.left_out > 1 ? `${r.reason} (${r.left_out} values)` : r.reason].map((text) => el("td", {}, text)))));
  }

  function show(m, history) {
    const newest = (column, unit, factor = 1) => {
      const v = history[column].at(-1) ?? null;
      return v === null ? "–" : `${number(Math.round(v * factor * 10) / 10)} ${unit}`;
    };
    const free = total(m, "pulsegate_store_free_bytes"), least = total(m, "pulsegate_store_min_free_bytes");
    const failed = total(m, "pulsegate_store_failed") > 0, low = least > 0 && free < least;
    const rows = [
      ["Readings stored", newest("stored_per_second", "/s")], ["Commits", newest("commits_per_second", "/s")],
      ["Time of a commit", newest("commit_p50_seconds", "ms", 1000), `half; 99 % below ${newest("commit_p99_seconds", "ms", 1000)}`],
      ["Connections", grouped(total(m, "pulsegate_connections")), `${grouped(total(m, "pulsegate_live_subscribers"))} of them live`],
      ["Devices", grouped(total(m, "pulsegate_store_devices"))],
      ["Disk used", bytes(total(m, "pulsegate_store_size_bytes"))], ["Disk free", bytes(free), low ? "▼ too little: readings are rejected" : `at least ${bytes(least)} needed`],
      ["Memory", bytes(total(m, "process_resident_memory_bytes"))], ["Started", ago(total(m, "process_start_time_seconds") * 1000), failed ? "◆ the store has failed" : ""],
    ];
    facts.replaceChildren(...rows.map(([name, value, more]) => el("div", { class: (low && name === "Disk free") || (failed && name === "Started") ? "flagged" : "" }, el("dt", {}, name), el("dd", {}, el("b", {}, value)), more ? el("dd", { class: "quiet" }, more) : null)));
    const fill = (body, list) => body.replaceChildren(...list.map(([k, v]) => el("tr", {}, el("th", { scope: "row" }, k.replaceAll("_", " ")), el("td", { class: "num" }, grouped(v)))));
    fill(outcomes, Object.entries(labelled(m, "pulsegate_readings_total", "outcome")).sort((a, b) => b[1] - a[1]));
    const reasons = { ...labelled(m, "pulsegate_auth_refused_total", "reason"), ...labelled(m, "pulsegate_refused_requests_total", "reason") };
    const some = Object.entries(reasons).filter(([, v]) => v > 0).sort((a, b) => b[1] - a[1]);
    fill(refusals, some.length ? some : [["none", 0]]);
    const n = history.connections.length, step = history.step_seconds, to = Date.parse(history.to) / 1000;
    if (n === 0) return;
    const xs = history.connections.map((_, i) => to - (n - 1 - i) * step);
    graphs.forEach((g, i) => {
      const spec = { title: g.title, unit: g.unit, from: to - Math.max(60, n * step), to, zero: true, zone: "local", xs, lines: [{ label: g.title, values: g.of(history).map((v) => v && Math.round(v * 100) / 100) }], flags: [], leastGapS: 0, onZoom() {} };
      if (charts[i]) charts[i].draw(spec);
      else charts[i] = new Chart(figures, spec);
    });
  }

  const visible = () => (document.hidden ? clearTimeout(timer) : load());
  document.addEventListener("visibilitychange", visible);
  const theme = onTheme(() => charts.forEach((c) => c.redraw()));
  load();
  return {
    change: () => true,
    close() {
      closed = true;
      clearTimeout(timer);
      theme();
      document.removeEventListener("visibilitychange", visible);
      charts.forEach((c) => c.close());
    },
  };
}
