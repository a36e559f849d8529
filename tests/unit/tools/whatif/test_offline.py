"""The daemon's objects, filled from a file."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.errors import ConfigurationError, ObjectError
from scheduler.framework import (
    FilterPlugin,
    HttpGet,
    Needs,
    PodActivator,
    PodBinder,
    PodEvents,
    Sleep,
    Status,
    WaitForEvent,
    WaitingPods,
)
from scheduler.testing.samples import claim
from tests.support.builders import node_object, pod_object
from tests.unit.tools.whatif.clusters import profile_with, scheduler_of


def test_running_pods_on_nodes_are_counted_and_finished_ones_are_not() -> None:
    going = pod_object("going", node="n1", cpu="500m")
    going["metadata"]["deletionTimestamp"] = "2026-03-01T09:00:00Z"
    scheduler = scheduler_of(
        node_object("n1"),
        pod_object("runs", node="n1", cpu="1"),
        pod_object("ended", node="n1", cpu="1", status={"phase": "Succeeded"}),
        pod_object("failed", node="n1", cpu="1", status={"phase": "Failed"}),
        going,
        pod_object("waits", cpu="1"),
    )

    snapshot = scheduler.cache.snapshot()
    assert snapshot.requested["cpu"].tolist() == [1500]
    scheduler.cache.check()


def test_pods_on_missing_nodes_are_ignored() -> None:
    scheduler = scheduler_of(node_object("n1"), pod_object("astray", node="gone", cpu="1"))

    assert scheduler.cache.snapshot().pod_count.tolist() == [0]
    scheduler.cache.check()


def test_only_pods_of_its_profiles_wait_in_the_queue() -> None:
    scheduler = scheduler_of(
        pod_object("ours"),
        pod_object("theirs", scheduler_name="default-scheduler"),
        pod_object("on", node="n1"),
    )

    assert [queued.pod.name for queued in scheduler.queue.pods()] == ["ours"]


class Curious(FilterPlugin):
    """Reads services, and the annotations of pods on nodes."""

    name = "Curious"
    api_version = 1
    needs = Needs(kinds=frozenset({"v1/services", "example.com/v1/widgets"}), bound_pod_annotations=True)


def test_objects_that_plugins_need_are_available() -> None:
    scheduler = scheduler_of(
        node_object("n1"),
        pod_object("runs", node="n1", annotations={"a": "b"}),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}},
        config=profile_with("Curious"),
        plugins=(Curious,),
    )

    snapshot = scheduler.cache.snapshot()
    assert list(snapshot.objects("v1/services")) == ["shop/web"]
    assert snapshot.objects("example.com/v1/widgets") == {}
    with pytest.raises(LookupError):
        snapshot.objects("v1/secrets")
    assert [pod.annotations for pod in snapshot.pods_on(0)] == [{"a": "b"}]


def test_fields_of_pods_that_no_plugin_needs_are_dropped() -> None:
    scheduler = scheduler_of(node_object("n1"), pod_object("runs", node="n1", annotations={"a": "b"}))

    (placed,) = scheduler.cache.snapshot().pods_on(0)
    assert placed.annotations == {}
    with pytest.raises(LookupError):
        _ = placed.object


class Fetching(FilterPlugin):
    """Decides by data fetched in the background; uses every capability."""

    name = "Fetching"
    api_version = 1
    refresh_seconds = 30.0

    def __init__(
        self,
        *,
        binder: PodBinder,
        activator: PodActivator,
        events: PodEvents,
        bus: WaitForEvent,
        waiting: WaitingPods,
        sleep: Sleep,
        web: HttpGet,
    ) -> None:
        self.prices: dict[str, int] = {}

    async def refresh(self) -> None:
        self.prices["n1"] = 3

    def filter_node(self, state: Any, pod: Any, node: Any) -> Status | None:
        return None if node.name in self.prices else Status.unschedulable("no price")


class Failing(FilterPlugin):
    name = "Failing"
    api_version = 1
    refresh_seconds = 30.0

    async def refresh(self) -> None:
        raise OSError("no route")


def test_background_data_are_fetched_before_the_evaluation(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = scheduler_of(config=profile_with("Failing", "Fetching"), plugins=(Failing, Fetching))

    plugins = {plugin.name: plugin for plugin in scheduler.frameworks["custom-scheduler"].plugins.all()}
    fetching = plugins["Fetching"]
    assert isinstance(fetching, Fetching)
    assert fetching.prices == {"n1": 3}
    assert "Plugin could not refresh its data" in caplog.messages


@pytest.mark.parametrize("name", ["CapacityScheduling", "FairQueues"])
def test_plugins_can_refresh_without_objects(name: str, caplog: pytest.LogCaptureFixture) -> None:
    scheduler_of(config=profile_with(name))

    assert not caplog.records


def test_a_profile_with_an_unknown_plugin_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="NoSuchPlugin"):
        scheduler_of(config=profile_with("NoSuchPlugin"))


def test_a_claim_without_namespace_in_a_file_is_in_the_default_one() -> None:
    written = claim("data", namespace="")
    del written["metadata"]["namespace"]

    claims = scheduler_of(node_object("n1"), written).cache.snapshot().objects("v1/persistentvolumeclaims")

    assert claims["default/data"]["metadata"]["namespace"] == "default"


def test_an_undecodable_claim_is_reported_with_its_field() -> None:
    with pytest.raises(
        ObjectError, match=r"PersistentVolumeClaim default/data: spec\.volumeName: expected `str`, got `int`"
    ):
        scheduler_of(node_object("n1"), claim("data", volumeName=7))
