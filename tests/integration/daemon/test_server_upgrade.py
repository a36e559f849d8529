"""A daemon follows the version of its API server: what it decides, and the versions in which it reads kinds."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import default, parse
from scheduler.configuration.overrides import GivenFeatures, with_leader_election
from scheduler.daemon.app.following import following_server
from scheduler.daemon.app.live_explain import live_explanation
from scheduler.daemon.app.reloader import Offer, Reloader, outcome
from scheduler.daemon.app.server_version import ServerVersions
from scheduler.kube.client.connection import ApiConnection
from tests.integration.configuration.test_reload import metric
from tests.integration.groups.gangs import POD_GROUPS, members, placed, pod_group
from tests.integration.groups.test_groups_as_in_1_35 import WORKLOADS, member, workload
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import Cluster, cluster
from tests.support.reloads import ABOUT
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.daemon import Daemon

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@asynccontextmanager
async def following(
    it: Cluster, daemon: Daemon, read: Configuration, given: GivenFeatures | None = None
) -> AsyncIterator[ServerVersions]:
    """Follow the server's version as `run` does."""
    versions = ServerVersions(given or GivenFeatures())
    async with ApiConnection(it.endpoint, authorization=it.account()) as connection:

        async def settle(configuration: Configuration) -> Configuration:
            settled = await versions.settled(configuration, connection)
            return with_leader_election(settled, leader_elect=False)

        reloader = Reloader(daemon, settle=settle, clock=LoopClock())
        offer = Offer("a test", ABOUT, b"", outcome(read))
        reloader.started_with(offer)
        await reloader.take(offer)
        versions.show(daemon.metrics, lambda: daemon.configuration)
        async with following_server(daemon, reloader, versions, connection):
            yield versions


async def upgrade(it: Cluster, version: str = "1.37", arriving: Callable[[], None] = lambda: None) -> None:
    """Restart the server as another version; `arriving` is called while it is stopped."""
    it.server.faults.drop_watches()
    await it.server.stop()
    it.server.upgrade(version)
    arriving()
    it.server.faults.compact()
    await asyncio.sleep(3.0)
    await it.server.start()


def group_of(version: str, name: str, min_count: int, **spec: Any) -> dict[str, Any]:
    """Return a PodGroup as a server of this version accepts it."""
    group = pod_group(name, min_count, **spec)
    return group if version == "1.36" else group | {"apiVersion": "scheduling.k8s.io/v1beta1"}


def delete_group(it: Cluster, name: str) -> None:
    """Delete a PodGroup that has pods."""
    it.server.store.delete(POD_GROUPS, name, "default")
    it.server.store.patch(POD_GROUPS, name, {"metadata": {"finalizers": None}}, "default")


def bindings(it: Cluster) -> Counter[str]:
    """Return path -> number of successful bindings."""
    sent = it.server.requests.matching(method="POST", path="/binding")
    return Counter(each.path for each in sent if each.status == 201)


def condition_types(it: Cluster, group: str) -> list[str]:
    found = it.server.store.get(POD_GROUPS, group, "default").get("status", {}).get("conditions", ())
    return [each["type"] for each in found]


def build(daemon: Daemon) -> str:
    """Return the version of kubernetes_build_info, as the usual alert compares it."""
    (family,) = (each for each in daemon.metrics.registry.collect() if each.name == "kubernetes_build_info")
    return ".".join(family.samples[0].labels["git_version"].split(".")[:2])


async def test_an_upgrade_of_the_server_loses_no_pod_and_binds_none_twice(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon, following(it, daemon, default()):
        it.add_nodes(node_object("n", cpu="2"))
        it.server.store.create(POD_GROUPS, pod_group("early", 2))
        it.add_pods(*members("early", 2))
        await it.until(lambda: condition_types(it, "early") == ["PodGroupScheduled"])
        it.add_pods(*members("late", 3), *(pod_object(f"web-{number}", cpu="1") for number in range(5)))
        await it.until(lambda: it.condition("web-4"))
        assert placed(it) == {"early-0", "early-1"}
        assert daemon.configuration.features.version == "1.36"
        delete_group(it, "early")

        await upgrade(it)
        await it.until(lambda: daemon.configuration.features.version == "1.37")
        it.server.store.create(POD_GROUPS, group_of("1.37", "late", 3, disruptionMode={"all": {}}))
        it.add_nodes(node_object("more", cpu="8"))

        late = {f"late-{number}" for number in range(3)}
        await it.until(lambda: placed(it) >= {*late, *(f"web-{number}" for number in range(5))})
        await it.until(lambda: condition_types(it, "late") == ["PodGroupInitiallyScheduled"])
        assert len(bindings(it)) == 10
        assert set(bindings(it).values()) == {1}
        labels = {"emulated": "1.37", "server": "v1.37.0"}
        assert metric(daemon, "custom_scheduler_kubernetes_version_info", **labels) == 1


async def test_metrics_and_explanations_have_the_names_of_the_version_after_an_upgrade(
    tmp_path: Path,
) -> None:
    def history() -> list[str]:
        found = live_explanation(daemon, "default/big", LoopClock())
        return [] if found is None else [move["why"] for move in found["history"]]

    async with cluster(tmp_path) as it, it.daemon() as daemon, following(it, daemon, default()):
        it.add_nodes(node_object("n", cpu="1"))
        it.add_pods(pod_object("big", cpu="9"))
        await it.until(lambda: it.condition("big"))
        came = {"queue": "active", "event": "UnschedulablePodAdd"}
        assert metric(daemon, "scheduler_queue_incoming_pods_total", **came) == 1
        assert history()[0] == "UnschedulablePodAdd"
        unscheduled = {"queue": "unschedulable", "type": "pod"}
        assert metric(daemon, "scheduler_queued_entities", **unscheduled) is None
        assert build(daemon) == "v1.36"

        await upgrade(it)
        await it.until(lambda: daemon.configuration.features.version == "1.37")

        it.add_pods(pod_object("late", cpu="9"))
        await it.until(lambda: it.condition("late"))
        came["event"] = "UnscheduledPodAdd"
        assert metric(daemon, "scheduler_queue_incoming_pods_total", **came) == 1
        assert history()[0] == "UnscheduledPodAdd"
        assert metric(daemon, "scheduler_queued_entities", **unscheduled) == 2
        assert build(daemon) == "v1.37"


@pytest.mark.parametrize(("before", "after"), [("1.36", "1.37"), ("1.37", "1.36")])
async def test_pods_and_gangs_that_arrive_during_an_upgrade_are_bound_once_each(
    tmp_path: Path, before: str, after: str
) -> None:
    gangs = [f"gang-{number}" for number in range(10)]
    web = {"pool": "web"}
    single = [pod_object(f"web-{number}", cpu="1", node_selector=web) for number in range(500)]
    in_gangs = [members(gang, 4, node_selector={"pool": "gangs"}) for gang in gangs]
    async with (
        cluster(tmp_path, version=before, logged_requests=50_000) as it,
        it.daemon() as daemon,
        following(it, daemon, default()),
    ):
        it.add_nodes(*(node_object(f"n{number}", cpu="30", labels=web) for number in range(10)))
        it.add_nodes(node_object("g0", cpu="18", labels={"pool": "gangs"}))
        for gang, pods in zip(gangs[:8], in_gangs, strict=False):
            it.server.store.create(POD_GROUPS, group_of(before, gang, 4))
            it.add_pods(*pods)
        await it.until(lambda: len(placed(it)) == 16 and all(condition_types(it, each) for each in gangs[:8]))
        started = placed(it)
        for gang in gangs[:8]:
            delete_group(it, gang)
        it.add_pods(*single[:200])
        await it.until(lambda: len(placed(it)) > 100)

        await upgrade(it, after, arriving=lambda: it.add_pods(*single[200:400], *in_gangs[8]))
        it.add_pods(*single[400:], *in_gangs[9])
        for gang in gangs:
            it.server.store.create(POD_GROUPS, group_of(after, gang, 4))
        await it.until(lambda: daemon.configuration.features.version == after)
        it.add_nodes(*(node_object(f"m{number}", cpu="30", labels=web) for number in range(8)))
        it.add_nodes(node_object("g1", cpu="24", labels={"pool": "gangs"}))

        await it.until(lambda: len(placed(it)) == 540)
        assert started < placed(it)
        assert len(bindings(it)) == len(it.server.requests.matching(method="POST", path="/binding")) == 540
        on_node = Counter(pod["spec"]["nodeName"] for pod in it.pods())
        assert max(on_node.values()) <= 30
        kind = "PodGroupInitiallyScheduled" if after == "1.37" else "PodGroupScheduled"
        late = [gang for gang in gangs if f"{gang}-0" not in started]
        await it.until(lambda: all(condition_types(it, gang) == [kind] for gang in late))


async def test_gangs_of_workloads_become_gangs_of_pod_groups_when_1_35_is_upgraded(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, version="1.35") as it,
        it.daemon() as daemon,
        following(it, daemon, default()),
    ):
        assert daemon.configuration.features.version == "1.35"
        it.add_nodes(node_object("n", cpu="5"))
        it.server.store.create(WORKLOADS, workload("w", early=2, late=2))
        it.add_pods(member("a", "early"), member("b", "early"), member("c", "late"))
        await it.until(lambda: placed(it) == {"a", "b"})
        it.server.store.delete(WORKLOADS, "w", "default")
        it.server.store.delete("pods", "c")

        await upgrade(it, "1.36")
        await it.until(lambda: daemon.configuration.features.version == "1.36")
        it.server.store.create(POD_GROUPS, pod_group("late", 2))
        it.add_pods(*members("late", 1))
        await asyncio.sleep(10)
        assert placed(it) == {"a", "b"}
        it.add_pods(*members("late", 2)[1:])

        await it.until(lambda: placed(it) == {"a", "b", "late-0", "late-1"})
        await it.until(lambda: condition_types(it, "late") == ["PodGroupScheduled"])
        assert set(bindings(it).values()) == {1}


async def test_another_server_behind_the_same_address_is_noticed_without_an_outage(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, version="1.37") as it,
        it.daemon() as daemon,
        following(it, daemon, default()),
    ):
        assert daemon.configuration.features.version == "1.37"
        it.server._api._version = "1.36"
        await it.until(lambda: daemon.configuration.features.version == "1.36", seconds=301.0)


async def test_a_named_version_stays_when_the_server_is_upgraded(tmp_path: Path) -> None:
    named = parse(f"{HEAD}emulatedVersion: '1.36'")
    async with cluster(tmp_path) as it, it.daemon() as daemon, following(it, daemon, named) as versions:
        before = daemon.configuration
        await upgrade(it)
        await it.until(lambda: versions.closest == "1.37")
        await asyncio.sleep(600.0)

        assert daemon.configuration is before


async def test_a_gate_that_the_new_version_has_no_more_does_not_stop_the_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read = parse(f"{HEAD}featureGates: {{GangScheduling: false}}", version=None)
    async with cluster(tmp_path) as it, it.daemon() as daemon, following(it, daemon, read):
        assert not daemon.configuration.features.enabled("GangScheduling")
        await upgrade(it)
        await it.until(lambda: daemon.configuration.features.version == "1.37")

        assert daemon.configuration.features.enabled("GangScheduling")
        left_out = [each for each in caplog.records if getattr(each, "field", "").startswith("featureGates")]
        assert "WARNING" in {each.levelname for each in left_out}


async def test_a_version_that_may_not_be_read_is_the_default_one(tmp_path: Path) -> None:
    async with cluster(tmp_path, version="1.37") as it, it.daemon() as daemon:
        it.server.faults.refuse(403, lambda info: info.path == "/version")
        async with following(it, daemon, default()) as versions:
            assert (versions.server, daemon.configuration.features.version) == ("unknown", "1.36")
