// The system: numbers of /metrics, as they are now and over the last minutes of this page.

import { Failure, ageText, el, grouped, number, request } from "./common.js";
import { Chart, onTheme } from "./chart.js";

const everyMs = 2000;
const keep = 180; // samples: 6 min

const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
};

const total = (m, name) => (m[name] ?? []).reduce((a, s) => a + (s.value ?? s.count ?? 0), 0);
const labelled = (m, name, label) => Object.fromEntries((m[name] ?? []).map((s) => [s.labels[label], s.value]));

// quantile returns a quantile of what a histogram has counted between two samples.
function quantile(now, before, q) {
  const a = now?.[0], b = before?.[0];
  const n = a.count - b.count;
  if (n <= 0) return null;
  let low = 0, below = 0;
  for (let i = 0; i < a.buckets.length; i++) {
    const [bound, c] = a.buckets[i], within = c - b.buckets[i][1];
    if (within >= q * n) return low + ((bound - low) * (q * n - below)) / Math.max(1, within - below);
    [low, below] = [bound, within];
  }
  return low;
}

const graphs = [
  { title: "Readings stored", unit: "/s", of: (m, p, s) => (labelled(m, "pulsegate_readings_total", "outcome").stored - labelled(p, "pulsegate_readings_total", "outcome").stored) / s },
  { title: "Commits", unit: "/s", of: (m, p, s) => (total(m, "pulsegate_commit_duration_seconds") - total(p, "pulsegate_commit_duration_seconds")) / s },
  { title: "Time of a commit, 99 % below", unit: "ms", of: (m, p) => { const v = quantile(m.pulsegate_commit_duration_seconds, p.pulsegate_commit_duration_seconds, 0.99); return v === null ? null : v * 1000; } },
  { title: "Connections", unit: "open", of: (m) => total(m, "pulsegate_connections") },
];

export function system(main) {
  document.title = "System – Pulsegate";
  const status = el("p", { role: "status", class: "quiet" });
  const facts = el("dl", { class: "latest" });
  const figures = el("div", { class: "figures half" });
  const refusals = el("tbody", {});
  const outcomes = el("tbody", {});
  const table = (caption, head, body) => el("table", { class: "plain" }, el("caption", {}, caption), el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { scope: "col", class: i ? "num" : "" }, h)))), body);
  main.append(el("h1", {}, "System"), status, facts, figures,
    el("div", { class: "tables" }, table("Readings since the start, by outcome", ["Outcome", "Readings"], outcomes), table("Refused since the start, by reason", ["Reason", "Requests"], refusals)),
    el("p", { class: "quiet" }, "All metrics are on the admin listener under /metrics, for Prometheus."));

  const samples = [], charts = [];
  let closed = false, timer = 0, gather = 0;

  async function load() {
    const mine = ++gather;
    clearTimeout(timer);
    try {
      const s = await request("v1/system");
      if (closed || mine !== gather) return;
      status.textContent = "";
      const t = Date.parse(s.time);
      if (samples.length === 0 || t > samples.at(-1).t) samples.push({ t, m: s.metrics });
      if (samples.length > keep) samples.shift();
      show();
    } catch (err) {
      if (closed || mine !== gather) return;
      if (!(err instanceof Failure)) throw err;
      status.textContent = err.message;
    }
    if (!document.hidden) timer = setTimeout(load, everyMs);
  }

  function show() {
    const { t, m } = samples.at(-1), before = samples.at(-6) ?? samples[0];
    const s = (t - before.t) / 1000;
    const rate = (now, old) => (s > 0 ? number(Math.round(((now - old) / s) * 10) / 10) : "–");
    const ms = (q) => { const v = s > 0 ? quantile(m.pulsegate_commit_duration_seconds, before.m.pulsegate_commit_duration_seconds, q) : null; return v === null ? "–" : number(Math.round(v * 10000) / 10) + " ms"; };
    const stored = (x) => labelled(x, "pulsegate_readings_total", "outcome").stored;
    const commits = (x) => total(x, "pulsegate_commit_duration_seconds");
    const free = total(m, "pulsegate_store_free_bytes"), least = total(m, "pulsegate_store_min_free_bytes");
    const failed = total(m, "pulsegate_store_failed") > 0, low = least > 0 && free < least;
    const rows = [
      ["Readings stored", rate(stored(m), stored(before.m)) + " /s"], ["Commits", rate(commits(m), commits(before.m)) + " /s"],
      ["Time of a commit", ms(0.5), `half; 99 % below ${ms(0.99)}`],
      ["Connections", grouped(total(m, "pulsegate_connections")), `${grouped(total(m, "pulsegate_live_subscribers"))} of them live`],
      ["Devices", grouped(total(m, "pulsegate_store_devices"))],
      ["Disk used", bytes(total(m, "pulsegate_store_size_bytes"))], ["Disk free", bytes(free), low ? "▼ too little: readings are rejected" : `at least ${bytes(least)} needed`],
      ["Memory", bytes(total(m, "process_resident_memory_bytes"))], ["Running for", ageText(t - total(m, "process_start_time_seconds") * 1000), failed ? "◆ the store has failed" : ""],
    ];
    facts.replaceChildren(...rows.map(([name, value, more]) => el("div", { class: (low && name === "Disk free") || (failed && name === "Running for") ? "flagged" : "" }, el("dt", {}, name), el("dd", {}, el("b", {}, value)), more ? el("dd", { class: "quiet" }, more) : null)));
    const fill = (body, list) => body.replaceChildren(...list.map(([k, v]) => el("tr", {}, el("th", { scope: "row" }, k.replaceAll("_", " ")), el("td", { class: "num" }, grouped(v)))));
    fill(outcomes, Object.entries(labelled(m, "pulsegate_readings_total", "outcome")).sort((a, b) => b[1] - a[1]));
    const reasons = { ...labelled(m, "pulsegate_auth_refused_total", "reason"), ...labelled(m, "pulsegate_refused_requests_total", "reason") };
    const some = Object.entries(reasons).filter(([, v]) => v > 0).sort((a, b) => b[1] - a[1]);
    fill(refusals, some.length ? some : [["none", 0]]);
    if (samples.length < 2) return;
    graphs.forEach((g, i) => {
      const xs = [], ys = [];
      for (let k = 1; k < samples.length; k++) {
        const v = g.of(samples[k].m, samples[k - 1].m, (samples[k].t - samples[k - 1].t) / 1000);
        xs.push(samples[k].t / 1000);
        ys.push(v);
      }
      const spec = { title: g.title, unit: g.unit, from: samples[0].t / 1000, to: t / 1000, zero: true, zone: "local", xs, lines: [{ label: g.title, values: ys }], flags: [], leastGapS: (everyMs / 1000) * 3, onZoom() {} };
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
