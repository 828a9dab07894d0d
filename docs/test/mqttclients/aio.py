# Publishes the lines of standard input with aiomqtt: aio.py URL QOS VERSION.
import asyncio, json, os, ssl, sys, urllib.parse
import aiomqtt

async def main():
    url, qos, version = urllib.parse.urlsplit(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    protocol = aiomqtt.ProtocolVersion.V311 if version == "311" else aiomqtt.ProtocolVersion.V5
    context = ssl.create_default_context() if url.scheme == "mqtts" else None
    async with aiomqtt.Client(url.hostname, url.port, username="bed-7", password=os.environ["PULSEGATE_TOKEN"], protocol=protocol, tls_context=context) as client:
        for line in sys.stdin:
            await client.publish("pulsegate/" + json.loads(line)["device"], line.strip(), qos)

asyncio.run(main())
