#!/usr/bin/env python3
"""Sends readings to Pulsegate with influxdb-client, in InfluxDB's line protocol.

    influx.py http://HOST:PORT < readings.ndjson    each line a reading of POST /v1/readings

PULSEGATE_TOKEN has the token, if the server needs one; SSL_CERT_FILE the CA of an https server, if it is not a
public one. Exits with 1 if lines were rejected, which are printed.
"""
import decimal, json, os, sys
from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.exceptions import InfluxDBError
from influxdb_client.client.write.retry import WritesRetry
from influxdb_client.client.write_api import SYNCHRONOUS

BATCH = 1000

client = InfluxDBClient(
    sys.argv[1], token=os.environ.get("PULSEGATE_TOKEN", "none"), org="any", enable_gzip=True,
    ssl_ca_cert=os.environ.get("SSL_CERT_FILE"),
    # It is safe to send a batch again, also after an answer that was lost. Retry-After is respected.
    retries=WritesRetry(total=50, retry_interval=1, max_retry_time=600, allowed_methods=["POST"], status_forcelist=[429, 500, 503]))
write = client.write_api(write_options=SYNCHRONOUS).write
failed = False


def send(first, points):
    global failed
    try:
        write(bucket="any", record=points)
    except InfluxDBError as e:
        if e.response is None or e.response.status != 400:
            raise
        failed = True
        print(f"lines {first} to {first + len(points) - 1}: {e.message}")


points = []
for number, line in enumerate(sys.stdin, 1):
    reading = json.loads(line, parse_float=decimal.Decimal)  # exact
    time = reading.pop("time")  # written in ns: with WritePrecision.MS, influxdb-client rounds down what it has divided in floating point
    point = Point("vitals").tag("device", reading.pop("device")).time(time * 1_000_000 if isinstance(time, int) else time)
    if "gateway" in reading:
        point.tag("gateway", reading.pop("gateway"))
    for field, value in reading.items():
        point.field(field, value)
    points.append(point)
    if len(points) == BATCH:
        send(number + 1 - BATCH, points)
        points = []
if points:
    send(number + 1 - len(points), points)
client.close()
sys.exit(failed)
