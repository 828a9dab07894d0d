#!/usr/bin/env python3
"""Publishes readings to Pulsegate with MQTT.

    mqtt.py mqtt://HOST:PORT [QOS [VERSION]] < readings.ndjson    each line a reading with its device

mqtts:// uses TLS; SSL_CERT_FILE has the CA, if it is not a public one. PULSEGATE_TOKEN has the token, if
the server needs one. VERSION is 5, or 311 for MQTT 3.1.1, in which nothing tells that a reading was rejected.
"""
import json, os, queue, ssl, sys, urllib.parse
import paho.mqtt.client as mqtt

url = urllib.parse.urlsplit(sys.argv[1])
qos = int(sys.argv[2]) if len(sys.argv) > 2 else 1
version = mqtt.MQTTv311 if sys.argv[3:] == ["311"] else mqtt.MQTTv5
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=version)
if "PULSEGATE_TOKEN" in os.environ:
    client.username_pw_set("", os.environ["PULSEGATE_TOKEN"])
if url.scheme == "mqtts":
    client.tls_set_context(ssl.create_default_context())
answers = queue.SimpleQueue()
lines = {}  # what is not acknowledged, by message id: paho sends it again after a reconnect
rejected = 0

def connected(client, userdata, flags, reason, properties):
    if reason.is_failure:
        print("refused:", reason, file=sys.stderr)

def settle():
    global rejected
    mid, reason, properties = answers.get()
    number = lines.pop(mid)
    if reason.is_failure:  # sending it again is useless
        rejected += 1
        print(f"rejected {number}: {getattr(properties, 'ReasonString', reason)}", flush=True)

client.on_connect = connected
client.on_publish = lambda client, userdata, *answer: answers.put(answer)
client.connect(url.hostname, url.port or 1883)
client.loop_start()
count = 0
for count, line in enumerate(sys.stdin, 1):
    topic = "pulsegate/" + json.loads(line)["device"]
    lines[client.publish(topic, line.strip(), qos).mid] = count
    while len(lines) >= 1000:
        settle()
while lines:
    settle()
client.disconnect()
client.loop_stop()
print("sent" if qos == 0 else "acknowledged", count - rejected)
