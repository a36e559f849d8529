"""DeviceTaintRules as a kube-apiserver 1.37 serves them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from scheduler.configuration.feature_gates import features_of
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.tools.simulator.registry.registry import Registry
from scheduler.tools.simulator.registry.store import Store
from tests.support.manual_clock import ManualClock

RULES = "devicetaintrules.resource.k8s.io"


def a_store() -> tuple[Store, ManualClock]:
    clock = ManualClock()
    store = Store(Registry(clock=clock, kinds=builtin_kinds(features_of({}, "1.37")), seed=0, history=100))
    store.bootstrap()
    return store, clock


def rule(selector: Any = None, **taint: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"taint": {"key": "broken", "effect": "NoSchedule", **taint}}
    if selector is not None:
        spec["deviceSelector"] = selector
    return {"metadata": {"name": "r"}, "spec": spec}


def test_rules_are_served_since_1_37():
    served = [{kind.kind for kind in builtin_kinds(features_of({}, version))} for version in ("1.36", "1.37")]

    assert ["DeviceTaintRule" in kinds for kinds in served] == [False, True]


def test_a_new_rule_has_a_time_and_a_generation():
    store, _ = a_store()

    found = store.create(RULES, rule({"driver": "gpu.example.com", "pool": "a/b", "device": "gpu-0"}))

    assert found["metadata"]["generation"] == 1
    assert found["spec"]["taint"]["timeAdded"]


@pytest.mark.parametrize(
    ("taint", "is_later"),
    [
        pytest.param({"effect": "NoExecute"}, True, id="a changed effect"),
        pytest.param({"value": "x"}, False, id="the same effect"),
        pytest.param(
            {"effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}, False, id="a time of the client's"
        ),
    ],
)
def test_a_changed_effect_has_a_new_time(taint: dict[str, str], is_later: bool):
    store, clock = a_store()
    found = store.create(RULES, rule())
    before = found["spec"]["taint"]["timeAdded"]
    clock.advance(60)

    changed = copy.deepcopy(found)
    changed["spec"]["taint"] |= taint
    after = store.update(RULES, changed)

    wanted = taint.get("timeAdded", before)
    assert (after["spec"]["taint"]["timeAdded"] != wanted) == is_later
    assert after["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param(rule({"driver": "-"}), "spec.deviceSelector.driver", id="driver"),
        pytest.param(rule({"pool": "a//b"}), "spec.deviceSelector.pool", id="pool"),
        pytest.param(rule({"device": "A"}), "spec.deviceSelector.device", id="device"),
        pytest.param(rule(key=""), "spec.taint.key", id="key"),
        pytest.param(rule(effect="Never"), "spec.taint.effect", id="effect"),
    ],
)
def test_invalid_rules_are_refused(given: dict[str, Any], field: str):
    store, _ = a_store()

    with pytest.raises(StatusError, match=field):
        store.create(RULES, given)
