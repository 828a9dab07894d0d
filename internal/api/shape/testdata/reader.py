"""Reads texts as package shape does, with Python's standard library only.

Each line of standard input is a case as JSON; each line of standard output is the answer, null for an error.
"""
import fractions
import json
import re
import sys
import zoneinfo
from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1)
INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[Tt]|[ \t\u00a0\u202f]+)(\d\d:\d\d)(?::(\d\d)(?:[.,](\d+))?)?"
                     r"(?:[ \t\u00a0\u202f]*([Zz]|UTC|[+-]\d\d(?::?\d\d)?))?", re.ASCII)
SHORT = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%e": "%d", "%k": "%H", "%l": "%I", "%h": "%b"}


def milliseconds(delta):
    return delta // timedelta(milliseconds=1)


def settle(wall, offset, case):
    """Returns the instant of a local time; offset is in minutes, "Z" or None."""
    if offset == "Z":
        return [milliseconds(wall - EPOCH), None]
    if offset is not None:
        return [milliseconds(wall - EPOCH) - offset * 60000, offset]
    if not case["zone"]:
        return None
    zone = zoneinfo.ZoneInfo(case["zone"])
    found = []
    for fold in (0, 1):
        local = wall.replace(tzinfo=zone, fold=fold)
        at = local.astimezone(timezone.utc)
        if at.astimezone(zone).replace(tzinfo=None) == wall:
            found.append((milliseconds(at.replace(tzinfo=None) - EPOCH), local.utcoffset() / timedelta(minutes=1)))
    if len(set(found)) == 2 and not case["ambiguous"] or not found:
        return None
    at, shift = max(found) if case["ambiguous"] == "later" else min(found)
    return [at, int(shift) if shift == int(shift) else None]


def minutes(text):
    if text is None or text in ("Z", "z", "UTC"):
        return text and "Z"
    digits = text[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > 23 or int(digits[2:]) > 59:
        raise ValueError
    n = int(digits[:2]) * 60 + int(digits[2:])
    return "Z" if text[0] == "-" and n == 0 else -n if text[0] == "-" else n


def instant(text, case):
    m = INSTANT.fullmatch(text)
    if not m:
        return None
    wall = datetime.strptime(m[1] + " " + m[2], "%Y-%m-%d %H:%M")
    second = int(m[3] or 0)
    if second > 59:
        return None
    fraction = int(((m[4] or "") + "000")[:3])
    return settle(wall + timedelta(seconds=second, milliseconds=fraction), minutes(m[5]), case)


def pattern(text, form, case):
    for short, long in SHORT.items():
        form = form.replace(short, long)
    for i, name in enumerate(case["months"] or []):
        text = text.replace(name, datetime(2000, i + 1, 1).strftime("%B" if "%B" in form else "%b"))
    if "%f" in form:
        text = re.sub(r"(\.\d{6})\d+$", r"\1", text)
    text = re.sub("[\u00a0\u202f]", " ", text)
    if not text.isascii() or text != text.strip():
        return None
    at = datetime.strptime(text, form)
    if at.second > 59:
        return None
    day = re.search("%([aA])", form)
    if day and at.strftime(day[0]).lower() not in text.lower():
        return None
    offset = None
    if "%z" in form:
        offset = minutes(re.search(r"[zZ]$|[+-]\d\d:?(\d\d)?$", text)[0])
    return settle(at.replace(tzinfo=None, microsecond=at.microsecond // 1000 * 1000), offset, case)


def time(case):
    for form in case["formats"]:
        try:
            if form.startswith("unix"):
                if not re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", case["text"], re.ASCII):
                    continue
                at = fractions.Fraction(case["text"]) * (1000 if form == "unix_s" else 1)
                at = at.numerator // at.denominator
                return [at, None] if -2**63 <= at < 2**63 else None
            got = instant(case["text"], case) if form == "instant" else pattern(case["text"], form, case)
        except ValueError:
            continue
        if got:
            return got
    return None


def number(case):
    text = case["text"]
    if case["suffix"]:
        if not text.endswith(case["suffix"]):
            return None
        text = text[:-len(case["suffix"])].rstrip(" \u00a0\u202f")
    if not re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", text, re.ASCII):
        return None
    scaled = (fractions.Fraction(text) - fractions.Fraction(case["minus"])) * fractions.Fraction(case["factor"]) * 10 ** case["decimals"]
    if not case["round"] and scaled.denominator != 1:
        return None
    value = round(scaled)  # half to even
    return value if abs(value) < 2**31 - 1 else None


def escaped(text, also):
    return "".join(chr(c) if re.fullmatch("[A-Za-z0-9._:-]", chr(c)) and chr(c) not in also else ":%02X" % c for c in text.encode())


def name(case):
    parts = case["parts"]
    if len(parts) > 1:
        joined = ".".join(escaped(part, ":.") for part in parts)
        return joined if all(parts) and len(joined) <= 64 else None
    text = parts[0]
    if re.fullmatch("[A-Za-z0-9._-][A-Za-z0-9._:-]{0,63}", text):
        return text
    long = ":" + escaped(text, ":")
    return long if text and len(long) <= 64 else None


for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps({"time": time, "number": number, "name": name}[case["kind"]](case)))
