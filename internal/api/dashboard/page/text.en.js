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
