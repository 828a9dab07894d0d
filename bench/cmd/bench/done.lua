-- The end of each script: one line for the program that starts wrk.

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("result requests=%d duration_us=%d p50_us=%d p99_us=%d failed=%d sockets=%d\n",
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write + e.timeout))
end
