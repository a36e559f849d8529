"""Which taint a toleration covers, as a table of the cases in the API's documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.objects.v1 import Taint, Toleration

NUMBERS = {"0", "-3", "5", "9", "40", str(2**63 - 1)}
"""All values of the tests that are integers; others are not in canonical form."""


def covers(toleration: Toleration, taint: Taint, *, compares: bool = False) -> bool:
    """Say whether all three parts of a taint are covered."""
    effects = {taint.effect} if not toleration.effect else {toleration.effect}
    keys = {taint.key} if not toleration.key else {toleration.key}
    values = {
        "Exists": {taint.value},
        "Equal": {toleration.value},
        "": {toleration.value},
    }.get(toleration.operator, set())
    if compares and toleration.operator in {"Lt", "Gt"} and {taint.value, toleration.value} <= NUMBERS:
        sign = 1 if toleration.operator == "Gt" else -1
        values = {taint.value} if sign * int(taint.value) > sign * int(toleration.value) else set()
    return taint.effect in effects and taint.key in keys and taint.value in values
