"""Prints the id, time and value of each heart rate of a patient, read page by page with fhirpy."""
import os
import sys

from fhirpy import SyncFHIRClient

pages = 0


class Counting(SyncFHIRClient):
    def _do_request(self, *args, **kwargs):
        global pages
        pages += 1
        return super()._do_request(*args, **kwargs)


address, patient = sys.argv[1:]
client = Counting(address, authorization="Bearer " + os.environ["PULSEGATE_TOKEN"])
for r in client.resources("Observation").search(patient=patient, code="8867-4").limit(40):
    print(r["id"], r["effectiveDateTime"], "%g" % r["valueQuantity"]["value"])
print("pages", pages)
