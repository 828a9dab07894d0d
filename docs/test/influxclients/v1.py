"""Writes with influxdb, a client of InfluxDB 1: v1.py URL USER GZIP < points.json.

Each line of standard input is the list of points of one write, with a precision. The token is the password.
"""
import json, os, sys, urllib.parse
from influxdb import InfluxDBClient
from influxdb.exceptions import InfluxDBClientError, InfluxDBServerError

url = urllib.parse.urlsplit(sys.argv[1])
client = InfluxDBClient(url.hostname, url.port, sys.argv[2], os.environ["PULSEGATE_TOKEN"], "any", gzip=sys.argv[3] == "gzip", retries=1)
print("version", client.ping())
for line in sys.stdin:
    write = json.loads(line)
    try:
        print("written", client.write_points(write["points"], time_precision=write["precision"]))
    except (InfluxDBClientError, InfluxDBServerError) as e:
        print("error", getattr(e, "code", "5xx"), e.content if isinstance(e.content, str) else str(e))
