// Sends readings to Pulsegate, and reads them.
//
//	node client.mjs URL send < readings.json     one reading, an array of readings, or NDJSON
//	node client.mjs URL readings DEVICE
//	node client.mjs URL live PREFIX
//
// PULSEGATE_TOKEN has the token, if the server needs one.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const [url, command, what] = process.argv.slice(2);
const token = process.env.PULSEGATE_TOKEN;
const authorization = token ? { Authorization: `Bearer ${token}` } : {};
const show = (value) => console.log(JSON.stringify(value));

// call repeats a request until the answer is final. Sending readings again is safe.
async function call(path, options = {}) {
  for (let backoff = 1; ; backoff = Math.min(2 * backoff, 60)) {
    let pause = backoff * (0.5 + Math.random() / 2); // after 408, 500, or no answer
    try {
      const answer = await fetch(url + path, { ...options, headers: { ...authorization, ...options.headers } });
      if (answer.status === 429 || answer.status === 503) pause = Number(answer.headers.get("Retry-After") ?? 1);
      else if (answer.status !== 408 && answer.status !== 500) return answer;
    } catch (error) {
      console.error(String(error));
    }
    await sleep(1000 * pause);
  }
}

async function must(answer) {
  if (answer.ok) return answer;
  console.error(`${answer.status}: ${await answer.text()}`);
  process.exit(1);
}

if (command === "send") {
  const answer = await call("/v1/readings", { method: "POST", body: readFileSync(0) });
  if (answer.status === 409) { // another value is stored: sending this one again is useless
    const { field, reason } = await answer.json();
    console.log("conflict:", field, reason);
    process.exit(1);
  }
  const result = await (await must(answer)).json();
  console.log(result.status ?? `stored ${result.stored}, duplicate ${result.duplicate}`);
  for (const r of result.rejected ?? []) console.log(`rejected ${r.index}: ${r.field} ${r.reason}`); // 207: the others are stored
} else if (command === "readings") {
  const query = new URLSearchParams({ limit: 100 });
  for (;;) {
    const page = await (await must(await call(`/v1/devices/${what}/readings?${query}`))).json();
    page.readings.forEach(show);
    if (!page.next_cursor) break;
    query.set("cursor", page.next_cursor);
  }
} else if (command === "live") {
  const headers = {}; // the id of the last event, with which a stream that ended is resumed
  for (;;) {
    const stream = await must(await call(`/v1/live?${new URLSearchParams({ prefix: what })}`, { headers }));
    let rest = "", event = "";
    try {
      for await (const chunk of stream.body.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + chunk).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (line.startsWith("event: ")) event = line.slice(7);
          if (line.startsWith("id: ")) headers["Last-Event-ID"] = line.slice(4);
          if (line.startsWith("data: ") && event !== "time") show(JSON.parse(line.slice(6)));
        }
      }
    } catch (error) {
      console.error(String(error));
    }
    await sleep(1000 + 4000 * Math.random());
  }
}
