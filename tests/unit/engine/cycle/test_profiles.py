"""The active profiles change for all users at once."""

from __future__ import annotations

from scheduler.configuration.types import Extender
from scheduler.engine.cycle.profiles import Profiles
from scheduler.extensions.extenders.chain import Extenders
from scheduler.framework import QueuedPodInfo, Status
from tests.support import scripted_plugins as puppets
from tests.support.builders import pod
from tests.support.scripted_plugins import framework_of
from tests.unit.engine.cycle.cluster import Cluster

WEB = pod("web", scheduler_name="a")


def profiles() -> Profiles:
    it = Profiles()
    it.swap(
        {"a": framework_of(puppets.Sort("Sort", (1.0,)), puppets.Gate("Gate", Status.unschedulable("no")))}
    )
    return it


def test_before_the_first_swap_there_are_no_profiles() -> None:
    it = Profiles()

    assert list(it) == []
    assert it.extenders is None
    assert it.events("a") == {}


def test_the_queue_uses_the_profile_of_the_pod() -> None:
    it = profiles()

    assert it.sort_key(QueuedPodInfo(WEB, 0.0)) == (1.0,)
    assert it.run_pre_enqueue(WEB).plugin == "Gate"
    assert set(it.events("a")) == {"Gate"}
    assert it.events("b") == {}


def test_a_swap_replaces_all_profiles() -> None:
    it = profiles()
    it.swap({"b": framework_of(puppets.Sort("Sort", (2.0,)))})

    assert "a" not in it
    assert list(it) == ["b"]


def test_an_empty_list_of_extenders_is_none() -> None:
    heard = Cluster().failures
    it = Profiles()
    it.swap({}, Extenders([], heard))
    assert it.extenders is None

    extenders = Extenders([Extender(url_prefix="http://localhost")], heard)
    it.swap({}, extenders)
    assert it.extenders is extenders
