-- Script for wrk: every request posts one reading, and no two are equal.
--
--   wrk -s readings.lua URL -- BASE_MS [TOKEN [START]]
--
-- The requests before the Unix time START are counted, so that they can be left out.
--
-- Readings come from 10,000 devices in rotation. Each device's times increase by
-- 1 ms, starting at BASE_MS (Unix ms), so that (device, time) never repeats within
-- a run. All bodies have the same length, and the header is built once.

local devices = 10000
local n, now_ms = 0, 0
local stamp = ""
local head = ""
local start -- nil: it has come, or there is none
before = 0 -- requests until start; read by done

local function body()
  local device = n % devices
  if device == 0 then
    stamp = os.date("!%Y-%m-%dT%H:%M:%S", math.floor(now_ms / 1000)) .. string.format(".%03dZ", now_ms % 1000)
    now_ms = now_ms + 1
  end
  n = n + 1
  return string.format(
    '{"device":"wearable-%06d","time":"%s","systolic_mmhg":%d,"diastolic_mmhg":%d,"spo2_pct":%d.5,"heart_rate_bpm":%d.5,"resting_heart_rate_bpm":%d.5}',
    device, stamp, 110 + n % 40, 60 + n % 30, 90 + n % 10, 60 + n % 37, 50 + n % 20)
end

function init(args)
  now_ms = tonumber(args[1])
  local length = #body()
  n, now_ms = 0, tonumber(args[1])
  start = tonumber(args[3])
  head = "POST " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port ..
    (args[2] and args[2] ~= "" and "\r\nAuthorization: Bearer " .. args[2] or "") .. "\r\nContent-Type: application/json\r\nContent-Length: " .. length .. "\r\n\r\n"
end

function request()
  if start and os.time() >= start then
    before, start = n, nil
  end
  return head .. body()
end
