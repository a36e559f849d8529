"""The effect of a new configuration on pods in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.ports import Time
from scheduler.engine.queue import Place, SchedulingQueue
from scheduler.engine.state.nominator import Nominator
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.framework.status import SUCCESS, Status
from tests.support.builders import pod
from tests.support.manual_clock import ManualClock
from tests.unit.engine.queue.cluster import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.framework import EventWithHint
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey


class Profiles:
    """The profiles of a queue, as the tests define them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.refuses = False
        self.highest_first = True
        self.queue = SchedulingQueue(
            plugins=self,
            nominator=Nominator(),
            groups=PodGroups(),
            time=Time(self.clock),
            observer=Counts(),
            initial_backoff_seconds=100,
            max_backoff_seconds=1000,
        )

    def root_of(self, pod: PodInfo) -> GroupKey | None:
        return pod.group

    def entity_of(self, pod: PodInfo) -> GroupKey | None:
        return None

    def groups_with(self, pod: PodInfo) -> Sequence[GroupKey]:
        return () if pod.group is None else (pod.group,)

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        return (-queued.pod.priority if self.highest_first else queued.pod.priority,)

    def events(self, _: str) -> Mapping[str, Sequence[EventWithHint]]:
        return {}

    def run_pre_enqueue(self, each: PodInfo) -> Status:
        return Status.unschedulable("no").by("Curfew") if self.refuses else SUCCESS

    def reload(self, **fields: Any) -> None:
        backoffs = {"initial_backoff_seconds": 100, "max_backoff_seconds": 1000, **fields}
        self.queue.reload(**backoffs)
        self.queue.check()

    def fail(self, name: str, *, by: str = "") -> None:
        """Take a pod through a failed attempt."""
        self.queue.add(pod(name))
        queued = self.queue.pop()
        assert queued is not None
        self.queue.add_unschedulable(queued, unschedulable_plugins={by} - {""}, is_error=not by)


@pytest.fixture
def profiles() -> Profiles:
    return Profiles()


def place(profiles: Profiles, name: str) -> Place:
    return profiles.queue.place_of(f"uid-of-default-{name}")


def test_an_active_pod_is_gated_if_new_plugins_reject_it(profiles: Profiles) -> None:
    profiles.queue.add(pod("web"))
    profiles.refuses = True

    profiles.reload()

    assert place(profiles, "web") is Place.GATED
    profiles.refuses = False
    profiles.reload()
    assert place(profiles, "web") is Place.ACTIVE


def test_a_pod_in_backoff_is_gated_if_new_plugins_reject_it(profiles: Profiles) -> None:
    profiles.fail("web")
    assert place(profiles, "web") is Place.BACKOFF
    profiles.refuses = True

    profiles.reload()

    assert place(profiles, "web") is Place.GATED


def test_a_pod_stays_in_backoff_for_the_time_of_the_new_settings(profiles: Profiles) -> None:
    profiles.fail("web")
    profiles.clock.now += 10

    profiles.reload()
    assert place(profiles, "web") is Place.BACKOFF

    profiles.reload(initial_backoff_seconds=5)
    assert place(profiles, "web") is Place.ACTIVE


def test_an_unschedulable_pod_is_retried_after_its_backoff(profiles: Profiles) -> None:
    profiles.fail("web", by="Fit")
    assert place(profiles, "web") is Place.UNSCHEDULABLE

    profiles.reload()

    assert place(profiles, "web") is Place.BACKOFF
    assert profiles.queue.history("uid-of-default-web")[-1].why == "ConfigurationReloaded"


def test_pods_take_the_order_of_the_new_queue_sort(profiles: Profiles) -> None:
    for name, priority in (("low", 1), ("high", 9), ("also-low", 1)):
        profiles.queue.add(pod(name, priority=priority))
    profiles.highest_first = False

    profiles.reload()

    popped = [profiles.queue.pop() for _ in range(3)]
    assert [queued.pod.name for queued in popped if queued] == ["low", "also-low", "high"]


def test_a_pod_in_flight_that_is_rejected_is_retried(profiles: Profiles) -> None:
    profiles.queue.add(pod("web"))
    queued = profiles.queue.pop()
    assert queued is not None

    profiles.reload()
    profiles.queue.add_unschedulable(queued, unschedulable_plugins={"Fit"})

    assert place(profiles, "web") is Place.BACKOFF
    profiles.queue.check()
