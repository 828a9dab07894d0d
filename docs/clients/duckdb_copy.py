#!/usr/bin/env python3
"""Keeps a copy of a server's readings in a file of DuckDB. It may be killed at any time.

    duckdb_copy.py http://HOST:PORT FILE

PULSEGATE_TOKEN has the token, if the server needs one. The view readings has a row for each value.
"""
import json, os, sys, urllib.error, urllib.request
import duckdb

server, file = sys.argv[1:3]
db = duckdb.connect(file)
db.execute("""
    CREATE TABLE IF NOT EXISTS measurements (device TEXT, time TIMESTAMPTZ, sign TEXT, value DOUBLE, gateway TEXT,
        copy TEXT, PRIMARY KEY (device, time, sign));
    CREATE TABLE IF NOT EXISTS assignments (device TEXT, subject TEXT, since TIMESTAMPTZ, until TIMESTAMPTZ, copy TEXT);
    CREATE TABLE IF NOT EXISTS signs (field TEXT PRIMARY KEY, definition JSON);
    CREATE TABLE IF NOT EXISTS position (next TEXT, copy TEXT);
    CREATE OR REPLACE VIEW readings AS
        SELECT m.device, time, sign, value, gateway, subject FROM measurements m
        LEFT JOIN assignments a ON a.device = m.device AND time >= since AND time < until;
""")


def ask(cursor):
    address = server + "/v1/changes?format=json&limit=10000" + ("&after=" + cursor if cursor else "")
    token = os.environ.get("PULSEGATE_TOKEN")
    request = urllib.request.Request(address, headers={"Authorization": "Bearer " + token} if token else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def add(readings, copy):
    # DISTINCT: a page may have a reading twice.
    db.execute("""
        INSERT OR REPLACE INTO measurements
        SELECT DISTINCT device, time, unnest(map_keys(signs)), unnest(map_values(signs)), gateway, ? FROM (
            SELECT unnest(from_json(?, '[{"device": "TEXT", "time": "TIMESTAMPTZ", "gateway": "TEXT",
                "signs": "MAP(TEXT, DOUBLE)"}]'), recursive := true))""", [copy, json.dumps(readings)])


def cut(device, since, until):
    """Removes a span from the assignments of a device, which may be a part of one, or several."""
    db.execute("INSERT INTO assignments SELECT device, subject, $until, until, copy FROM assignments "
               "WHERE device = $device AND since < $until::TIMESTAMPTZ AND until > $until::TIMESTAMPTZ",
               {"device": device, "until": until})
    db.execute("DELETE FROM assignments WHERE device = $device AND since >= $since::TIMESTAMPTZ AND since < $until::TIMESTAMPTZ",
               {"device": device, "since": since, "until": until})
    db.execute("UPDATE assignments SET until = $since "
               "WHERE device = $device AND since < $since::TIMESTAMPTZ AND until > $since::TIMESTAMPTZ",
               {"device": device, "since": since})


def apply(change, copy):
    kind, device = change["kind"], change.get("device")
    since, until = change.get("from", "-infinity"), change.get("to", "infinity")
    if kind == "erased":
        signs = change.get("signs")
        db.execute("DELETE FROM measurements WHERE device = ? AND time >= ?::TIMESTAMPTZ AND time < ?::TIMESTAMPTZ "
                   "AND (? IS NULL OR list_contains(?, sign))", [device, since, until, signs, signs])
        if not signs:
            cut(device, since, until)
    elif kind == "expired":
        db.execute("DELETE FROM measurements WHERE time < ?::TIMESTAMPTZ", [change["before"]])
    elif kind in ("assigned", "unassigned"):
        cut(device, since, until)
        if kind == "assigned":
            db.execute("INSERT INTO assignments VALUES (?, ?, ?, ?, ?)", [device, change["subject"], since, until, copy])
    elif kind == "sign":
        db.execute("INSERT OR REPLACE INTO signs VALUES (?, ?)", [change["field"], json.dumps(change)])
    elif kind == "complete":
        for table in "measurements", "assignments":
            db.execute("DELETE FROM " + table + " WHERE copy IS DISTINCT FROM ?", [copy])


cursor, copy = db.execute("SELECT next, copy FROM position").fetchone() or (None, None)
while True:
    try:
        page = ask(cursor)
    except urllib.error.HTTPError as error:
        if error.code == 410 and cursor:  # the server does not know what follows it
            cursor = None
            continue
        raise
    db.begin()
    readings = []
    for change in page["changes"] + [{"kind": "end"}]:
        if change["kind"] == "reading":
            readings.append(change)
            continue
        if readings:
            add(readings, copy)
            readings = []
        if change["kind"] == "begin":
            copy = change["copy"]
        apply(change, copy)
    cursor = page["next"]
    db.execute("DELETE FROM position")
    db.execute("INSERT INTO position VALUES (?, ?)", [cursor, copy])
    db.commit()
    if page["caught_up"]:
        break
