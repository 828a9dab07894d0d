"""Stores heart rates of a device with a client of FHIR, one of them twice, and prints the ids."""
import os
import sys

kind, address, device = sys.argv[1:]
authorization = "Bearer " + os.environ["PULSEGATE_TOKEN"]


def observation(minute, value):
    return {
        "resourceType": "Observation", "status": "final", "code": {"coding": [{"system": "http://loinc.org", "code": "8867-4"}]},
        "device": {"reference": "Device/" + device}, "effectiveDateTime": "2026-11-21T10:%02d:00+01:00" % minute,
        "valueQuantity": {"value": value, "system": "http://unitsofmeasure.org", "code": "/min"},
    }


def with_fhirpy():
    from fhirpy import SyncFHIRClient

    client = SyncFHIRClient(address, authorization=authorization)
    for minute in range(2):
        sent = observation(minute, 72)
        r = client.resource(sent.pop("resourceType"), **sent)
        r.save()  # POST
        first = dict(r)
        r.save()  # PUT
        assert dict(r) == first, (first, dict(r))
        assert r["valueQuantity"]["value"] == 72, dict(r)
        print(r.id)


def with_fhirclient():
    from fhirclient import server
    from fhirclient.models.observation import Observation

    s = server.FHIRServer(None, address)
    s.session.headers["Authorization"] = authorization
    for minute in range(2):
        created = Observation(observation(minute, 72)).create(s)
        stored = Observation(created)
        assert stored.valueQuantity.value == 72, created
        assert stored.update(s) == created, created
        again = Observation(observation(minute, 72)).create(s)
        assert again == created, (created, again)
        print(stored.id)


{"fhirpy": with_fhirpy, "fhirclient": with_fhirclient}[kind]()
