"""Writes with influxdb-client, of InfluxDB 2: v2.py URL GZIP < points.json.

Each line of standard input is the list of points of one write, with a precision.
"""
import json, os, sys, warnings
from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.exceptions import InfluxDBError
from influxdb_client.client.write_api import SYNCHRONOUS

warnings.simplefilter("ignore")  # health() is deprecated
client = InfluxDBClient(sys.argv[1], token=os.environ["PULSEGATE_TOKEN"], org="any", enable_gzip=sys.argv[2] == "gzip")
health = client.health()
print("version", client.version(), client.build(), client.ping(), health.status, health.name)
for line in sys.stdin:
    write = json.loads(line)
    points = [Point.from_dict(p, write["precision"]) for p in write["points"]]
    try:
        client.write_api(write_options=SYNCHRONOUS).write("any", record=points, write_precision=write["precision"])
        print("written True")
    except InfluxDBError as e:
        print("error", e.response.status, e.message)
