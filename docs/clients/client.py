#!/usr/bin/env python3
"""Sends readings to Pulsegate, and reads them.

    client.py URL send < readings.json     one reading, an array of readings, or NDJSON
    client.py URL readings DEVICE
    client.py URL live PREFIX

PULSEGATE_TOKEN has the token, if the server needs one.
"""
import json, os, random, sys, time
import requests

url, command = sys.argv[1:3]
session = requests.Session()
if "PULSEGATE_TOKEN" in os.environ:
    session.headers["Authorization"] = "Bearer " + os.environ["PULSEGATE_TOKEN"]

def call(method, path, **options):
    """Repeats a request until the answer is final. Sending readings again is safe."""
    backoff = 1
    while True:
        pause = backoff * random.uniform(0.5, 1)  # after 408, 500, or no answer
        try:
            answer = session.request(method, url + path, timeout=60, **options)
            if answer.status_code in (429, 503):
                pause = int(answer.headers.get("Retry-After", 1))
            elif answer.status_code not in (408, 500):
                return answer
        except (requests.ConnectionError, requests.Timeout) as error:
            print(error, file=sys.stderr)
        time.sleep(pause)
        backoff = min(2 * backoff, 60)

def show(value):
    print(json.dumps(value, separators=(",", ":"), ensure_ascii=False), flush=True)

def must(answer):
    if not answer.ok:
        sys.exit(f"{answer.status_code}: {answer.text}")
    return answer

if command == "send":
    answer = call("POST", "/v1/readings", data=sys.stdin.buffer.read())
    result = answer.json()
    if answer.status_code == 409:  # another value is stored: sending this one again is useless
        print("conflict:", result["field"], result["reason"])
        sys.exit(1)
    must(answer)
    print(result["status"] if "status" in result else f"stored {result['stored']}, duplicate {result['duplicate']}")
    for r in result.get("rejected", []):  # 207: the others are stored
        print(f"rejected {r['index']}: {r['field']} {r['reason']}")
elif command == "readings":
    query = {"limit": 100}
    while True:
        page = must(call("GET", f"/v1/devices/{sys.argv[3]}/readings", params=query)).json()
        for reading in page["readings"]:
            show(reading)
        if "next_cursor" not in page:
            break
        query["cursor"] = page["next_cursor"]
elif command == "live":
    last = {}  # the id of the last event, with which a stream that ended is resumed
    while True:
        stream = must(call("GET", "/v1/live", params={"prefix": sys.argv[3]}, headers=last, stream=True))
        event = ""
        try:
            for line in stream.iter_lines(chunk_size=1, decode_unicode=True):
                field, _, value = line.partition(": ")
                if field == "event":
                    event = value
                elif field == "id":
                    last = {"Last-Event-ID": value}
                elif field == "data" and event != "time":
                    show(json.loads(value))
        except requests.RequestException as error:
            print(error, file=sys.stderr)
        time.sleep(random.uniform(1, 5))
