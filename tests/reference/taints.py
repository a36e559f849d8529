"""Which taint a toleration covers, as a table of the cases in the API's documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.objects.v1 import Taint, Toleration


def covers(toleration: Toleration, taint: Taint) -> bool:
    """Say whether all three parts of a taint are covered."""
    effects = {taint.effect} if not toleration.effect else {toleration.effect}
    keys = {taint.key} if not toleration.key else {toleration.key}
    values = {
        "Exists": {taint.value},
        "Equal": {toleration.value},
        "": {toleration.value},
    }.get(toleration.operator, set())
    return taint.effect in effects and taint.key in keys and taint.value in values
