// Text for people in English, of the parts that have theirs here. A file for another language exports the same names.

// Alerts of a range of time. What is put in is text.
export const past = {
  heads: ["Alert", "Device", "Condition", "Began", "Ended"],
  region: "Alerts of this range",
  listed: (count, time) => `Alerts of this range by today’s rules, as of ${time}: ${count}`,
  cut: "There are more before these, which are not marked.",
  none: "none",
  reading: "Alerts of this range are not marked yet.",
  tooLong: "Alerts of this range are not marked: it is too long, or has too many readings, to evaluate it by today’s rules.",
  busy: "Alerts of this range are not marked: the server is busy.",
  failed: (reason) => `Alerts of this range are not marked: ${reason}`,
  devices: (count) => `Alerts are marked of the ${count} devices that were assigned last.`,
  again: "Try again",
  reread: "Read again",
  goesOn: (time) => `active at ${time}`,
  ofDevice: (alert, device) => `${alert} (${device})`,
};

// What is printed.
export const print = {
  button: "Print",
  preparing: "Reading…",
  printed: (time) => `Printed ${time}`,
  span: (from, to, zone) => `${from} to ${to} (${zone})`,
  offset: (minutes) => (minutes === 0 ? "UTC" : `UTC ${minutes < 0 ? "−" : "+"}${Math.abs(minutes)} min`),
  heads: ["Time", "Value", "Flags"],
  whose: { device: "Device", subject: "Subject" },
  nobody: "nobody",
  first: (count) => `The first ${count}.`,
  unread: (signs) => `The charts show means. Single measurements of ${signs} are only on sheets that the button “Print” has prepared.`,
  failed: (status) => `The server answered ${status}.`,
  tooMuch: "The range has too many readings to print each measurement. Choose a shorter one.",
  incomplete: "The answer is incomplete.",
  changed: "The view has changed. Print it again.",
  patient: (id, span) => `Patient ${id}, ${span}`,
  device: (name, label, span) => `Device ${name}${label ? ` (${label})` : ""}, ${span}`,
  fleet: (selection, where) => `Fleet${selection ? `: ${selection}` : ""}${where ? `, devices ${where}` : ""}`,
};
