-- Script for wrk: every request asks for the latest values of a random device.
-- The program that starts wrk writes "local devices = N" before it.

local requests = {}

function init(args)
  for i = 1, devices do
    requests[i] = string.format("GET /v1/devices/wearable-%06d HTTP/1.1\r\nHost: %s:%s\r\n\r\n", i - 1, wrk.host, wrk.port)
  end
end

function request()
  return requests[math.random(devices)]
end
