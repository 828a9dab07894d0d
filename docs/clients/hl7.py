#!/usr/bin/env python3
"""Sends readings to Pulsegate as HL7 v2 messages over MLLP.

    hl7.py mllp://HOST:PORT < readings.ndjson    each line a reading of POST /v1/readings

mllps:// uses TLS; SSL_CERT_FILE has the CA of the server, if it is not a public one, and CLIENT_CERT the certificate of
the client with its key. Exits with 1 if readings were rejected, which are printed.
"""
import json, os, re, socket, ssl, sys, time, urllib.parse

CODES = {  # LOINC codes and units in UCUM
    "systolic_mmhg": ("8480-6", "mm[Hg]"), "diastolic_mmhg": ("8462-4", "mm[Hg]"), "spo2_pct": ("59408-5", "%"),
    "heart_rate_bpm": ("8867-4", "/min"), "resting_heart_rate_bpm": ("40443-4", "/min"), "pulse_rate_bpm": ("8889-8", "/min"),
    "respiratory_rate_bpm": ("9279-1", "/min"), "body_temperature_c": ("8310-5", "Cel"), "body_weight_kg": ("29463-7", "kg"),
    "glucose_mg_dl": ("2339-0", "mg/dL"), "glucose_mmol_l": ("15074-8", "mmol/L"),
    "interstitial_glucose_mg_dl": ("99504-3", "mg/dL"), "interstitial_glucose_mmol_l": ("105272-9", "mmol/L"),
}
START, END = b"\x0b", b"\x1c\r"
TRIES, PATIENCE = int(os.environ.get("TRIES", 50)), 60  # the server holds a message for 10 s under overload

url = urllib.parse.urlsplit(sys.argv[1])
connection = None


def connect():
    plain = socket.create_connection((url.hostname, url.port), PATIENCE)
    if url.scheme != "mllps":
        return plain
    context = ssl.create_default_context()
    if "CLIENT_CERT" in os.environ:
        context.load_cert_chain(os.environ["CLIENT_CERT"])
    return context.wrap_socket(plain, server_hostname=url.hostname)


def exchange(message):
    """Sends a message until it is acknowledged: it is safe to send it again. Returns the segments of the ACK."""
    global connection
    for attempt in range(TRIES):
        try:
            connection = connection or connect()
            connection.sendall(START + message.encode() + END)
            answer = b""
            while not answer.endswith(END):
                part = connection.recv(1 << 16)
                if not part:
                    raise ConnectionError("closed without an acknowledgement")
                answer += part
            return [segment.split("|") for segment in answer[1:-2].decode().split("\r")]
        except OSError as e:
            if attempt == TRIES - 1:
                raise
            print(f"sending it again: {e}", file=sys.stderr)
            connection = connection and connection.close()
            time.sleep(min(0.1 * 2**attempt, 5))


def message(number, reading):
    """Returns the message of a reading. Values are sent as they are written in the line."""
    year, month, day, hour, minute, second, zone = re.fullmatch(
        r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):([\d.]+)(Z|[+-]\d\d:\d\d)", reading["time"]).groups()
    at = year + month + day + hour + minute + second + zone.replace("Z", "+0000").replace(":", "")
    segments = [f"MSH|^~\\&|{reading.get('gateway', '')}||||{at}||ORU^R01^ORU_R01|{number}|P|2.6|||NE|AL", "PID|||", f"OBR|1||||||{at}"]
    for field, value in reading.items():
        if field in CODES:
            code, unit = CODES[field]
            segments.append(f"OBX|{len(segments) - 2}|NM|{code}^^LN|1.1.1.{len(segments) - 2}|{value}|{unit}|||||R|||{at}||||{reading['device']}")
        elif field not in ("device", "time", "gateway"):
            sys.exit(f"line {number}: {field} has no code here")
    return "\r".join(segments) + "\r"


stored = rejected = 0
for number, line in enumerate(sys.stdin, 1):
    segments = exchange(message(number, json.loads(line, parse_float=str, parse_int=str)))
    answer = next(s for s in segments if s[0] == "MSA")
    if answer[2] != str(number):
        sys.exit(f"line {number}: acknowledged was message {answer[2]}")
    if answer[1] == "AA":
        stored += 1
        continue
    rejected += 1
    for s in segments:
        if s[0] == "ERR":
            print(f"rejected {number}: {answer[1]} {s[8]}", flush=True)
print("stored", stored)
sys.exit(rejected > 0)
