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
NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"
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
                if not re.fullmatch(NUMBER, case["text"], re.ASCII):
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
    if not re.fullmatch(NUMBER, text, re.ASCII):
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


KEY = r"((?:\\[,= ]|[^,= ])+)"
FIELD = re.compile(KEY + r'=("(?:\\.|[^"\\])*"|[^, "]*)(,|(?= |$))')


def plain(text):
    return re.sub(r"\\([,= ])", r"\1", text)


def spelled(value):
    """Returns what kind of value a field has, and its text as JSON spells it."""
    if value.startswith('"'):
        return "text", re.sub(r'\\(["\\])', r"\1", value[1:-1])
    if value in ("t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE"):
        return "literal", "true" if value[0] in "tT" else "false"
    m = re.fullmatch(r"(-?)(\d+)i|()(\d+)u", value, re.ASCII)
    if m:
        return "number", (m[1] or "") + str(int(m[2] or m[4]))
    m = re.fullmatch(r"(-?)(\d*)(?:\.(\d*))?([eE][+-]?\d+)?", value, re.ASCII)
    if m and (m[2] or m[3]):
        return "number", m[1] + str(int(m[2] or 0)) + ("." + m[3] if m[3] else "") + (m[4] or "")
    return "text", value


def line(case):
    """Returns the device, the time and the values of a line, without those that are no values, or None."""
    head = re.match(r"((?:\\[, ]|[^, ])+)((?:," + KEY + "=" + KEY + ")*) +", case["text"])
    if not head:
        return None
    cells = {"measurement": ("text", re.sub(r"\\([, ])", r"\1", head[1]))}
    twice, rest = set(), case["text"][head.end():]
    places = [("tag:" + plain(k), ("text", plain(v))) for k, v in re.findall("," + KEY + "=" + KEY, head[2])]
    more = True
    while more:
        m = FIELD.match(rest)
        if not m:
            return None
        places.append(("field:" + plain(m[1]), spelled(m[2])))
        more, rest = m[3] == ",", rest[m.end():]
    for place, cell in places:
        twice |= {place} if place in cells else set()
        cells.setdefault(place, cell)
    if not re.fullmatch(r" *(-?\d+)? *", rest) or any(cells.get(at, (0, None))[1] != text for at, text in (case["where"] or {}).items()):
        return None
    read = list(case["where"] or []) + case["device"] + [sign["at"] for sign in case["signs"].values()]
    if not rest.strip() or twice & set(read) or not any(sign["at"] in cells for sign in case["signs"].values()):
        return None
    parts = [cells.get(at, ("", "")) for at in case["device"]]
    device = None if any(kind == "literal" for kind, _ in parts) else name({"parts": [text for _, text in parts]})
    if device is None:
        return None
    values = {}
    for field, sign in case["signs"].items():
        kind, text = cells.get(sign["at"], ("", ""))
        if not kind or kind != "literal" and (text.strip() in (case["missing"] or []) or re.fullmatch(NUMBER, text.strip(), re.ASCII)
                                              and fractions.Fraction(text) in (sign["missing"] or [])):
            continue
        values[field] = number(sign | {"text": text}) if kind != "literal" else None
        if values[field] is None or abs(values[field]) > 1000000:
            return None
    if not values:
        return "left out"
    per = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1000000)}[case["precision"]]
    return [device, int(rest) * per[0] // per[1], values]


for text in sys.stdin:
    case = json.loads(text)
    print(json.dumps({"time": time, "number": number, "name": name, "line": line}[case["kind"]](case), sort_keys=True))
