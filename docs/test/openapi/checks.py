"""Checks of schemathesis that know the rules that a schema cannot state.

A request that follows the description may break one of them; unsaid.json has the beginnings of
the answers to such requests: a status, the field of the problem unless the rule holds for several,
and its reason.
"""
import json
from pathlib import Path

import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

UNSAID = tuple(json.loads(Path(__file__).with_name("unsaid.json").read_text()))


def is_unsaid(response):
    if response.status_code == 207:  # a batch of which some readings were rejected
        return "207" in UNSAID
    try:
        problem = response.json()
    except ValueError:
        return False
    reason = next((problem[name] for name in ("reason", "detail", "message", "error") if problem.get(name)), None)
    return any(" ".join(map(str, words)).startswith(UNSAID) for words in (
        (response.status_code, reason), (response.status_code, problem.get("field"), reason)))


def unless_unsaid(check):
    def checked(ctx, response, case):
        try:
            return check(ctx, response, case)
        except Failure:
            if is_unsaid(response):
                return None
            raise

    checked.__name__ = "described_" + check.__name__
    return schemathesis.check(checked)


for each in (positive_data_acceptance, negative_data_rejection):
    unless_unsaid(each)
