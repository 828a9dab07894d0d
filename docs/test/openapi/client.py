"""Sends a reading and reads it back, with the client that openapi-python-client generates."""
import os
import sys
from datetime import datetime

from generated import AuthenticatedClient
from generated.api.default import list_readings, send_readings
from generated.models import NewReading

address, device, time = sys.argv[1:]
with AuthenticatedClient(base_url=address, token=os.environ["PULSEGATE_TOKEN"]) as client:
    outcome = send_readings.sync(client=client, body=NewReading(device=device, time=datetime.fromisoformat(time), heart_rate_bpm=62.5))
    print(outcome.status)
    for r in list_readings.sync(device, client=client, from_=time).readings:
        print(r.device, r.time.isoformat(), r.heart_rate_bpm)
