from __future__ import annotations

from typing import Any

import pytest

from scheduler.tools.simulator.apimachinery.objects import with_condition

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "then"}
OTHER = {"type": "Other", "status": "True"}


@pytest.mark.parametrize(
    ("status", "time"),
    [pytest.param("False", "now", id="moves"), pytest.param("True", "then", id="stays")],
)
def test_a_condition_replaces_its_type_and_its_time_changes_with_its_status(status: str, time: str):
    new: dict[str, Any] = {"type": "Ready", "status": status, "reason": "x"}

    assert with_condition([READY, OTHER], new, "now") == [new | {"lastTransitionTime": time}, OTHER]


def test_a_new_condition_is_added_at_the_end():
    new = {"type": "New", "status": "False"}

    assert with_condition([OTHER], new, "now") == [OTHER, new | {"lastTransitionTime": "now"}]
    assert with_condition(None, new, "now") == [new | {"lastTransitionTime": "now"}]
