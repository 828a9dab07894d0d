-- Builds a unique reading for each request of wrk, as pulsegate sim does, with
-- the cheapest spelling of a time.
local n = 0
local start = (os.time() - 86400) * 1000
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
math.randomseed(os.time())

function request()
  n = n + 1
  local device = n % 1000
  local body = string.format(
    '{"device":"wrk-%06d","time":%d,"spo2_pct":%.1f,"heart_rate_bpm":%.1f,"gateway":"gw-%06d"}',
    device, start + n, 95 + math.random(0, 40) / 10, 50 + math.random(0, 600) / 10, device)
  return wrk.format(nil, "/v1/readings", nil, body)
end
