"""Changes between the choice of a node and the Binding."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.attempt import AssumedPod, Attempt
from scheduler.engine.cycle.binding import final_check
from scheduler.engine.state.cache import Cache
from scheduler.framework import Code, CycleState, FilterPlugin, PreFilterPlugin, QueuedPodInfo, Status
from scheduler.framework.reasons import Cause
from scheduler.objects.decode import decode_pod
from tests.support.builders import node, pod, pod_object
from tests.support.offline_capabilities import frameworks
from tests.support.scripted_plugins import framework_of

if TYPE_CHECKING:
    from collections.abc import Callable


FRAMEWORK = frameworks()["custom-scheduler"]


class Chosen:
    """A pod with 3 CPUs, assumed on a node with 4."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.cache.add_node(node("n1", cpu="4"))
        self.cache.add_node(node("n2", cpu="4"))
        pending = pod("web", cpu="3")
        node_generation = self.cache.node_generation("n1")
        placed = self.cache.assume(pending, "n1")
        attempt = Attempt(FRAMEWORK, QueuedPodInfo(pending, 0.0), 0.0)
        self.choice = AssumedPod(attempt, CycleState(), placed, "n1", node_generation)

    def verdict(self) -> str:
        """Return the error of a final check; "" if it finds none, or if an unchanged node needs none."""
        return final_check(self.cache, self.choice).message if self.is_changed else ""

    @property
    def is_changed(self) -> bool:
        return self.cache.node_generation("n1") != self.choice.node_generation


def nothing(_: Chosen) -> None:
    return


def our_own_next_choice(it: Chosen) -> None:
    it.cache.assume(pod("other", cpu="1"), "n1")


def its_own_confirmation(it: Chosen) -> None:
    it.cache.add_pod(it.choice.pod)


def a_heartbeat(it: Chosen) -> None:
    it.cache.add_node(node("n1", cpu="4", labels={"seen": "now"}))


def a_change_elsewhere(it: Chosen) -> None:
    it.cache.add_node(node("n2", cpu="1", unschedulable=True))


def a_small_foreign_pod(it: Chosen) -> None:
    it.cache.add_pod(pod("foreign", cpu="1", node="n1"))


@pytest.mark.parametrize(
    "happened",
    [
        nothing,
        our_own_next_choice,
        its_own_confirmation,
        a_heartbeat,
        a_change_elsewhere,
        a_small_foreign_pod,
    ],
)
def test_a_choice_stays_valid_after(happened: Callable[[Chosen], None]) -> None:
    it = Chosen()

    happened(it)

    assert it.verdict() == ""


def cordon(it: Chosen) -> None:
    it.cache.add_node(node("n1", cpu="4", unschedulable=True))


def shrink(it: Chosen) -> None:
    it.cache.add_node(node("n1", cpu="2"))


def taint(it: Chosen) -> None:
    it.cache.add_node(node("n1", cpu="4", taints=("a=b:NoSchedule",)))


def a_foreign_pod(it: Chosen) -> None:
    it.cache.add_pod(pod("foreign", cpu="2", node="n1"))


def removal(it: Chosen) -> None:
    it.cache.remove_node("n1")


def removal_and_return(it: Chosen) -> None:
    it.cache.remove_node("n1")
    it.cache.add_node(node("n1", cpu="2"))


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        (cordon, "node n1 changed before the pod was bound: node(s) were unschedulable"),
        (shrink, "node n1 changed before the pod was bound: Insufficient cpu"),
        (taint, "node n1 changed before the pod was bound: node(s) had untolerated taint(s)"),
        (a_foreign_pod, "node n1 changed before the pod was bound: Insufficient cpu"),
        (removal, "node n1 was deleted"),
        (removal_and_return, "node n1 changed before the pod was bound: Insufficient cpu"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_choice_becomes_invalid_after(happened: Callable[[Chosen], None], expected: str) -> None:
    it = Chosen()

    happened(it)

    assert it.verdict() == expected
    assert final_check(it.cache, it.choice).causes == (Cause("NodeChanged", ""),)


def test_the_pod_stays_ours_until_it_is_deleted_recreated_bound_or_terminating() -> None:
    choice = Chosen().choice
    assert choice.is_current(pod("web", cpu="3"))

    going = pod_object("web")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for other in (pod("web", uid="another"), pod("web", node="n2"), decode_pod(json.dumps(going).encode())):
        assert not choice.is_current(other)

    assert not choice.is_current(None)


class Raises(FilterPlugin):
    name = "Raises"

    def filter_node(self, state: Any, pod: Any, node: Any) -> None:
        raise ValueError("out of order")


def test_a_plugin_that_fails_in_the_final_check_is_an_error_of_the_attempt() -> None:
    it = Chosen()
    framework = framework_of(Raises())
    it.choice = replace(it.choice, attempt=replace(it.choice.attempt, framework=framework))
    it.cache.add_node(node("n1", cpu="4", labels={"new": "label"}))

    status = final_check(it.cache, it.choice)

    assert status.code is Code.ERROR
    assert 'running "Raises" filter plugin' in status.message
    assert "out of order" in status.message


class Full(PreFilterPlugin):
    name = "Full"

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Status:
        return Status.unschedulable("the queue is full")


class FullQuota(Full):
    def quota_usages(self, plugins: Any, pending: Any) -> Any:
        yield from ()


@pytest.mark.parametrize(("plugin", "is_valid"), [(Full(), False), (FullQuota(), True)])
def test_the_final_check_is_about_the_node_and_not_about_quotas(
    plugin: PreFilterPlugin, *, is_valid: bool
) -> None:
    it = Chosen()
    it.choice = replace(it.choice, attempt=replace(it.choice.attempt, framework=framework_of(plugin)))

    assert final_check(it.cache, it.choice).is_success == is_valid


@pytest.mark.parametrize("happened", [nothing, our_own_next_choice, its_own_confirmation, a_change_elsewhere])
def test_a_node_counts_as_unchanged_after(happened: Callable[[Chosen], None]) -> None:
    it = Chosen()

    happened(it)

    assert not it.is_changed
