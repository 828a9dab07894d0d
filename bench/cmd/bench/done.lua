-- The end of each script: one line for the program that starts wrk.

local first -- thread

function setup(thread)
  first = first or thread
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('result {"requests":%d,"duration":%d,"p50":%d,"p99":%d,"failed":%d,"sockets":%d,"before":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout,
    tonumber(first:get("before") or 0)))
end
