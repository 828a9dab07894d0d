-- Script for wrk: every request posts one reading as pulsegate sim writes them,
-- and no two are equal.
--
-- The same: the fields and their order, the length of names, ISO 8601 times with
-- milliseconds, one decimal, 1,000 devices in rotation with one reading per minute
-- each, blood pressure every 15 minutes, the resting heart rate every 60, a heart
-- rate always, SpO2 in 85 of 100 readings.
--
-- Cheaper: signs are evenly distributed and simulate no wearer, a time is
-- formatted once for all devices except for its milliseconds, and answers are not
-- validated. These differences favour wrk.

local devices = 1000
local random, format = math.random, string.format
local n = 0
local at = os.time() - 86400 * 180
local stamp = ""
local head = ""

function init()
  math.randomseed(1)
  head = "POST " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port ..
    "\r\nContent-Type: application/json\r\nContent-Length: "
end

function request()
  local device = n % devices
  if device == 0 then
    at = at + 60
    stamp = os.date("!%Y-%m-%dT%H:%M:%S", at)
  end
  local minute = (n - device) / devices + device -- devices measure at different times
  n = n + 1
  local pressure, spo2, resting = "", "", ""
  if minute % 15 == 0 then
    pressure = format(',"systolic_mmhg":%.1f,"diastolic_mmhg":%.1f', random(1000, 1450) / 10, random(550, 900) / 10)
  end
  if random(100) <= 85 then
    spo2 = format(',"spo2_pct":%.1f', random(930, 999) / 10)
  end
  if minute % 60 == 0 then
    resting = format(',"resting_heart_rate_bpm":%.1f', random(500, 800) / 10)
  end
  local body = format('{"device":"sim-00000000-%06d","time":"%s.%03dZ"%s%s,"heart_rate_bpm":%.1f%s,"gateway":"gw-%06d"}',
    device, stamp, device, pressure, spo2, random(500, 1100) / 10, resting, device)
  return head .. #body .. "\r\n\r\n" .. body
end
