"""The measurements of a profile's plugins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.runtime.calls import PluginError
from scheduler.engine.runtime.equivalence_classes import AttemptState
from scheduler.framework import Code, Diagnosis, QueuedPodInfo, Status, Wait
from scheduler.framework.interface import ExtensionCall, ExtensionPoint
from tests.support import scripted_plugins as puppets
from tests.support.builders import pod
from tests.support.scripted_plugins import framework_of
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.engine.runtime.framework import Framework

SNAPSHOT = snapshot_of("n0", "n1")
POD = pod("web")


class Measurements:
    """Records everything except the seconds, which must not be negative."""

    def __init__(self) -> None:
        self.points: list[tuple[str, str, str]] = []
        self.plugins: list[tuple[str, str, str]] = []
        self.asked: list[tuple[str, str]] = []
        self.loops: list[tuple[str, str, int]] = []

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code) -> Callable[[float], None]:
        def observe(seconds: float) -> None:
            assert seconds >= 0
            self.points.append((profile, point.metric_name, code.value))

        return observe

    def plugin(self, plugin: str, point: ExtensionPoint | ExtensionCall, code: Code, seconds: float) -> None:
        assert seconds >= 0
        self.plugins.append((plugin, point.metric_name, code.value))

    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None:
        self.asked.append((plugin, point.metric_name))

    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None:
        assert seconds >= 0
        self.loops.append((plugin, point.metric_name, nodes))

    def permit_wait(self, code: Code, seconds: float) -> None: ...


def run_all(framework: Framework) -> None:
    """Run every point once."""
    state, diagnosis, rows = AttemptState(), Diagnosis.blank(2), SNAPSHOT.all_rows
    framework.run_pre_enqueue(POD)
    framework.sort_key(QueuedPodInfo(POD, 0.0))
    framework.filtering.run_pre_filter(state, POD, SNAPSHOT, diagnosis)
    framework.filtering.find_feasible(state, POD, SNAPSHOT, diagnosis, rows=rows, nominated={})
    run_now(framework.filtering.run_post_filter(state, POD, SNAPSHOT, diagnosis))
    framework.scoring.run(state, POD, SNAPSHOT, rows)
    framework.run_reserve(state, POD, "n0")
    framework.run_permit(state, POD, "n0")
    asyncio.run(framework.run_pre_bind(state, POD, "n0", {"PreBind"}))
    asyncio.run(framework.run_bind(state, POD, "n0"))
    asyncio.run(framework.run_post_bind(state, POD, "n0"))


def everyone(**answers: Any) -> list[Any]:
    usual = {"Sort": (1,), "Score": np.zeros(2, dtype=np.int64), "NodeScore": 1}
    names = ("Gate", "Sort", "PreFilter", "NodeFilter", "PostFilter", "PreScore", "Score", "NodeScore", "Reserve", "Permit", "PreBind", "Bind", "PostBind")  # fmt: skip
    return [getattr(puppets, name)(name, {**usual, **answers}.get(name)) for name in names]


def test_every_point_is_timed_with_the_code_it_ended_with():
    measurements = Measurements()
    run_all(
        framework_of(
            *everyone(
                Gate=Status.unschedulable("no"),
                PreFilter=Status.unschedulable("no"),
                PostFilter=KeyError("x"),
                Reserve=Status.failed("x"),
                Permit=Wait(1),
                Bind=Status.unschedulable("no"),
            ),
            instruments=measurements,
            profile="mine",
        )
    )

    assert measurements.points == [
        ("mine", "PreEnqueue", "Unschedulable"),
        ("mine", "PreFilter", "Unschedulable"),
        ("mine", "Filter", "Success"),
        ("mine", "PostFilter", "Error"),
        ("mine", "PreScore", "Success"),
        ("mine", "Score", "Success"),
        ("mine", "Reserve", "Error"),
        ("mine", "Permit", "Wait"),
        ("mine", "PreBind", "Success"),
        ("mine", "Bind", "Unschedulable"),
        ("mine", "PostBind", "Success"),
    ]


def test_a_filter_that_fails_ends_its_point_with_an_error():
    measurements = Measurements()
    framework = framework_of(puppets.NodeFilter(answer=KeyError("x")), instruments=measurements)
    with pytest.raises(PluginError):
        framework.filtering.find_feasible(
            AttemptState(), POD, SNAPSHOT, Diagnosis.blank(2), rows=SNAPSHOT.all_rows, nominated={}
        )

    assert measurements.points == [("custom-scheduler", "Filter", "Error")]


def test_single_plugins_are_timed_only_when_sampled():
    measurements = Measurements()
    framework = framework_of(*everyone(), instruments=measurements)
    run_all(framework)
    assert measurements.plugins == []

    framework.measure_plugins(on=True)
    run_all(framework)

    # PostFilter returned None, which is invalid.
    assert {(point, code) for _, point, code in measurements.plugins} == {
        (point.metric_name, "Error" if point is ExtensionPoint.POST_FILTER else "Success")
        for point in ExtensionPoint
        if point
        not in {  # points of groups
            ExtensionPoint.POD_GROUP_POST_FILTER,
            ExtensionPoint.PLACEMENT_GENERATE,
            ExtensionPoint.PLACEMENT_SCORE,
        }
    }
    assert ("NodeScore", "Score", "Success") in measurements.plugins


def test_a_loop_over_nodes_is_measured_with_their_number():
    measurements = Measurements()
    run_all(framework_of(*everyone(), instruments=measurements))

    assert measurements.loops == [("NodeFilter", "Filter", 2), ("NodeScore", "Score", 2)]


def test_cached_results_are_not_counted_as_evaluated():
    class Kept(puppets.NodeFilter):
        def signature(self, pod: Any) -> str:
            return "all"

    measurements = Measurements()
    framework = framework_of(Kept(), puppets.NodeFilter("Always"), instruments=measurements)
    for _ in range(4):
        framework.filtering.run_filters(AttemptState(), POD, SNAPSHOT, SNAPSHOT.all_rows, Diagnosis.blank(2))

    assert measurements.asked.count(("Kept", "Filter")) == 2
    assert measurements.asked.count(("Always", "Filter")) == 4
