import json, random, subprocess, sys, time, urllib.request, os, shutil, signal
pg, out = sys.argv[1], sys.argv[2]
rng = random.Random(17)
base = 1790000000000
def reading(dev, t, signs, gw):
    r = {"device": dev, "time": t}
    if "p" in signs: r.update(systolic_mmhg=100+rng.randrange(60)+rng.randrange(100)/100, diastolic_mmhg=50+rng.randrange(40))
    if "o" in signs: r["spo2_pct"] = 90+rng.randrange(1000)/100
    if "h" in signs: r["heart_rate_bpm"] = 50+rng.randrange(9000)/100
    if "r" in signs: r["resting_heart_rate_bpm"] = 45+rng.randrange(30)
    if gw: r["gateway"] = gw
    return r
devices = ["ppg-0", "ppg-00", "ppg-1", "A.b_c:d-e", "z"*64]
gateways = ["bed-1", "bed-2", "corridor:3", "g"*64, None]
def phase(n, seed_t):
    rows = []
    for d in devices:
        t = seed_t + rng.randrange(1000)
        for i in range(n):
            t += 1000 + rng.randrange(-40, 40)
            rows.append(reading(d, t, rng.choice(["o", "oh", "oh", "oh", "pohr", "h", "p"]), rng.choice(gateways[:2]) if d != "ppg-1" else gateways[i % 5]))
    return rows
def post(rows):
    req = urllib.request.Request("http://127.0.0.1:18517/v1/readings", data=json.dumps(rows).encode())
    with urllib.request.urlopen(req) as a:
        return a.status, a.read()
def start(data):
    p = subprocess.Popen([pg, "serve", "--data", data, "--addr", "127.0.0.1:18517", "--admin-addr", "127.0.0.1:18518", "--audit", "", "--max-ahead", "87600h", "--insecure"], stderr=open("serve.log","ab"), stdout=subprocess.DEVNULL)
    for _ in range(200):
        try:
            urllib.request.urlopen("http://127.0.0.1:18518/readyz"); return p
        except Exception: time.sleep(0.05)
    sys.exit("no server")
def stop(p):
    p.send_signal(signal.SIGTERM); p.wait()
data = "data"
p = start(data)
rows = phase(40, base)
rows.append(reading("once", base+5, "pohr", "bed-1"))           # a device with one reading
rows.append(reading("awkward", 978307200000, "o", "bed-2"))     # the first accepted millisecond
rows.append(reading("awkward", base+999, "h", None))
rows.append(reading("awkward", base+1000, "h", "corridor:3"))
rows.append(reading("awkward", 2000000000000, "o", None))       # years ahead of all others
for i in range(0, len(rows), 30): post(rows[i:i+30])
stop(p); p = start(data)
rows2 = phase(35, base+3600_000)
for i in range(0, len(rows2), 30): post(rows2[i:i+30])
late = []
for d in devices: late += [reading(d, base+500+7*i, "oh", "corridor:3") for i in range(6)] # between stored ones
post(late)
# Other gateways complete readings with other signs: version byte 2.
done = []
for r in (rows+rows2)[::9]:
    if "spo2_pct" not in r: done.append(dict(reading(r["device"], r["time"], "o", "other-gateway")))
    elif "resting_heart_rate_bpm" not in r: done.append(reading(r["device"], r["time"], "r", "other-gateway"))
post(done)
# The same gateway completes readings.
own = []
for r in rows2[4::13]:
    if "resting_heart_rate_bpm" not in r and r not in done: own.append(reading(r["device"], r["time"], "r", r.get("gateway")))
print(post(own))
stop(p)
shutil.copytree(data, "closed")
p = start(data)
rows3 = phase(30, base+7200_000)
rows3 += [reading("once-more", base+8000_000, "oh", "bed-9")]
for i in range(0, len(rows3), 25): post(rows3[i:i+25])
post([reading(d, base+501+7*i, "h", "bed-1") for d in devices for i in range(3)])
p.send_signal(signal.SIGKILL); p.wait()
shutil.copytree(data, "killed")
os.makedirs(out, exist_ok=True)
for name in ["closed", "killed"]:
    if os.path.exists(name+"/LOCK"): os.remove(name+"/LOCK")
    shutil.copytree(name, name+".copy") if not os.path.exists(name+".copy") else None
    text = b""
    for d in sorted(devices+["once","awkward"]+(["once-more"] if name=="killed" else []), key=lambda s: s.encode()):
        text += subprocess.run([pg, "export", "--data", name+".copy", "--device", d, "--audit", ""], check=True, capture_output=True).stdout
    open(f"{out}/{name}.ndjson","wb").write(text)
    subprocess.run(["tar","--sort=name","--owner=0","--group=0","--mtime=2026-11-22","-czf",f"{out}/{name}.tar.gz",name],check=True)
    print(name, len(text.splitlines()), os.listdir(name))
    print(subprocess.run([pg,"check","--data",name+".copy"],capture_output=True))
