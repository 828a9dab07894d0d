// What charts draw of a range of time, for the views of a device and of a patient: few readings as they are, many as
// aggregates.

import { SIGNS, flagSign } from "./common.js";

export const hour = 3600000, day = 24 * hour;
export const ranges = { "1h": ["1 h", hour], "6h": ["6 h", 6 * hour], "24h": ["24 h", day], "7d": ["7 d", 7 * day], "30d": ["30 d", 30 * day], all: ["All", 0] };
export const maxRaw = 1000; // readings on a page; more would be an export
const maxBuckets = 420;
const steps = [
  ...["1s", "2s", "5s", "10s", "15s", "30s", "1m", "2m", "5m", "10m", "15m", "30m", "1h", "2h", "3h", "6h", "12h"], ...["1d", "2d", "7d", "14d", "28d", "56d", "112d", "364d"],
];
const unitMs = { s: 1000, m: 60000, h: hour, d: day };
export const stepMs = (s) => parseInt(s, 10) * unitMs[s.at(-1)];
export const stepWords = (s) => `${parseInt(s, 10)} ${{ s: "s", m: "min", h: "h", d: "d" }[s.at(-1)]}`;
export const iso = (ms) => new Date(Math.round(ms)).toISOString();

// readRange returns { raw: readings } or { buckets, step, flagged, limits }, with the total of values, from a to b in Unix ms. ask asks for
// "readings" or "aggregates" with parameters, and limits for those of the server. note, if there is one, is called with the newest reading, first if
// the zone of buckets, which tz returns, depends on it.
export async function readRange({ ask, limits, note, first, tz }, a, b) {
  const span = { from: iso(a), to: iso(b) };
  const readings = () => ask("readings", { ...span, limit: maxRaw });
  if (b - a <= 6 * hour) {
    const page = await readings();
    if (page.next_cursor === undefined) return { raw: page.readings, total: page.readings.length };
  }
  const step = steps.find((s) => (b - a) / stepMs(s) <= maxBuckets) ?? steps.at(-1);
  const newest = note && ask("readings", { to: iso(b), order: "desc", limit: 1 });
  const known = async () => note?.((await newest).readings[0]);
  if (first) await known();
  const [page, flagged, of] = await Promise.all([
    ask("aggregates", { ...span, step, tz: tz(), limit: 10000 }),
    ask("readings", { ...span, flag: "any", order: "desc", limit: maxRaw }),
    limits(),
    known(),
  ]);
  const counts = {};
  for (const k of page.buckets) for (const [s, v] of Object.entries(k.signs)) counts[s] = (counts[s] ?? 0) + v.count;
  const total = Math.max(0, ...Object.values(counts));
  if (total > 0 && total <= maxRaw / 2) {
    const few = await readings();
    if (few.next_cursor === undefined) return { raw: few.readings, total: few.readings.length };
  }
  return { buckets: page.buckets, step, flagged: flagged.readings.reverse(), moreFlagged: flagged.next_cursor !== undefined, limits: of, total };
}

const flagsOf = (r, c) => (r.flags ?? []).map(flagSign).filter(([s]) => c.signs.includes(s)).map(([, t]) => t);

// rawOf returns the readings of a group of signs. together reports whether flags of a device at two times, in Unix s, may be
// one range.
export function rawOf(data, c, together) {
  const readings = data.raw.filter((r) => c.signs.some((s) => s in r));
  const xs = readings.map((r) => Date.parse(r.time) / 1000), flags = [];
  const counts = new Map(), open = new Map(); // by device; the last range of flags by device and text
  readings.forEach((r, i) => {
    const n = (counts.get(r.device) ?? 0) + 1;
    counts.set(r.device, n);
    for (const text of flagsOf(r, c)) {
      const key = r.device + "\n" + text, last = open.get(key);
      if (last?.n === n - 1 && together(last.to, xs[i], r.device)) {
        Object.assign(last, { to: xs[i], n });
        last.points.add(i);
        continue;
      }
      open.set(key, { from: xs[i], to: xs[i], text, n, points: new Set([i]) });
      flags.push(open.get(key));
    }
  });
  const lines = c.signs.map((s) => ({ label: SIGNS[s].label, values: readings.map((r) => r[s] ?? null) }));
  return { xs, lines, flags, leastGapS: 0, sources: readings.map((r) => r.device) };
}

// meansOf returns the means, the lowest and the highest values of buckets. usualOf returns the usual range of a sign for a subject.
export function meansOf(data, c, together, usualOf) {
  const buckets = data.buckets.filter((b) => c.signs.some((s) => s in b.signs));
  // First and last are all values if no bucket has more: few readings are shown as they are.
  if (buckets.every((b) => c.signs.every((s) => (b.signs[s]?.count ?? 0) <= 2))) return pointsOf(data, c, buckets);
  const bounds = buckets.map((b) => [Date.parse(b.from) / 1000, Date.parse(b.to) / 1000]);
  const xs = bounds.map(([a, b]) => (a + b) / 2), flags = [];
  const mark = (k, text) => {
    const open = flags.findLast((f) => f.text === text);
    if (open && open.to >= bounds[k][0] && together(open.from, bounds[k][0])) open.to = Math.max(open.to, bounds[k][1]);
    else flags.push({ from: bounds[k][0], to: bounds[k][1], text });
  };
  const difference = SIGNS[c.key].pair?.difference_label.toLowerCase() ?? "\n";
  let k = 0;
  for (const r of data.flagged) {
    const t = Date.parse(r.time) / 1000;
    while (k < bounds.length - 1 && bounds[k][1] <= t) k++;
    for (const text of flagsOf(r, c)) {
      if (!data.moreFlagged || text.startsWith(difference)) mark(k, text);
    }
  }
  if (data.moreFlagged) { // too many to list; the ends of the buckets tell as much, except for the difference of a pair
    buckets.forEach((b, i) => {
      for (const s of c.signs) {
        const v = b.signs[s], l = data.limits.signs[s], usual = usualOf(s, b.subject);
        if (v === undefined) continue;
        if (v.min < (l.validated_min ?? -Infinity)) mark(i, "outside validated range");
        if (v.min < (usual.min ?? -Infinity)) mark(i, "low");
        if (v.max > (usual.max ?? Infinity)) mark(i, "high");
      }
    });
  }
  const pick = (s, member) => buckets.map((b) => b.signs[s]?.[member] ?? null);
  const lines = c.signs.map((s) => ({ label: SIGNS[s].label, values: pick(s, "mean"), min: pick(s, "min"), max: pick(s, "max"), counts: pick(s, "count") }));
  return { xs, lines, flags, leastGapS: (stepMs(data.step) / 1000) * 1.5, bucket: stepWords(data.step) };
}

// pointsOf returns what rawOf does, from buckets of at most two values for each sign.
function pointsOf(data, c, buckets) {
  const points = []; // [time, values by sign]; two devices may have one time
  for (const b of buckets) {
    for (const s of c.signs) {
      for (const v of b.signs[s] ? [b.signs[s].first, b.signs[s].last].slice(-b.signs[s].count) : []) {
        const t = Date.parse(v.time), same = points.find(([at, values]) => at === t && !(s in values));
        if (same) same[1][s] = v.value;
        else points.push([t, { [s]: v.value }]);
      }
    }
  }
  points.sort((a, b) => a[0] - b[0]);
  const flags = data.flagged.flatMap((r) => flagsOf(r, c).map((text) => ({ from: Date.parse(r.time) / 1000, to: Date.parse(r.time) / 1000, text })));
  return { xs: points.map(([t]) => t / 1000), lines: c.signs.map((s) => ({ label: SIGNS[s].label, values: points.map(([, v]) => v[s] ?? null) })), flags, leastGapS: 0 };
}
