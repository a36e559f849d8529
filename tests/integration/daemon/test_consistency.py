"""The consistency check finds no drift in a correct cache, and finds and repairs drift."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from scheduler.daemon.app.consistency.checker import CHECK_SECONDS
from scheduler.engine.queue.pod_places import Place
from scheduler.framework import FilterPlugin, Outcomes, PreFilterPlugin, Status
from scheduler.tools.simulator.faults import requests
from tests.faults.cache_comparison import cache_from, differences
from tests.support.builders import node_object, pod, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.objects.pod import PodInfo
    from tests.support.daemon_harness import Cluster


async def settled(it: Cluster) -> None:
    """Two nodes with a pod each, and one pod that waits."""
    it.add_nodes(*(node_object(name, cpu="2", pods=10, labels={"zone": name}) for name in "ab"))
    it.add_pods(
        pod_object("one", cpu="1500m", labels={"app": "web"}),
        pod_object("two", cpu="1500m"),
        pod_object("large", cpu="8"),
    )
    await it.until(lambda: it.node_of("one") and it.node_of("two") and it.condition("large"))
    await asyncio.sleep(20.0)  # written, and shown by the watch


def uid_of(it: Cluster, name: str) -> str:
    return str(it.pod(name)["metadata"]["uid"])


def known(daemon: Daemon, name: str) -> PodInfo:
    return daemon.parts.pods[f"default/{name}"]


def found_by(report: Any) -> set[str]:
    return {finding.what.value for finding in report.findings}


def drift(daemon: Daemon, what: str) -> float | None:
    return daemon.metrics.registry.get_sample_value("custom_scheduler_cache_drift_total", {"what": what})


async def test_a_correct_cache_has_no_findings_and_every_kind_is_compared(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await settled(it)

        report = await daemon.consistency.check(repair=True)

        assert not report.findings
        assert (report.compared["nodes"], report.compared["pods"]) == (2, 3)
        assert {str(each.resource) for each in daemon.watches} == report.compared.keys()
        assert (
            daemon.metrics.registry.get_sample_value(
                "custom_scheduler_cache_checks_total", {"result": "clean"}
            )
            == 1
        )


async def test_a_kind_that_is_missing_on_the_server_is_compared_too(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.server.faults.refuse(404, lambda info: info.resource == "podgroups")
        async with it.daemon() as daemon:
            await settled(it)

            report = await daemon.consistency.check(repair=True)

            assert (report.result, report.compared["podgroups.scheduling.k8s.io"]) == ("clean", 0)


# What may be wrong with what follows from the watch: how it is broken, and what it is called.


def _forgets_a_pod(it: Cluster, daemon: Daemon) -> None:
    daemon.parts.cache.remove_pod(uid_of(it, "one"))


def _counts_a_pod_that_is_gone(_: Cluster, daemon: Daemon) -> None:
    daemon.parts.cache.add_pod(pod("ghost", cpu="100m", node="a"))


def _counts_a_pod_elsewhere(_: Cluster, daemon: Daemon) -> None:
    one = known(daemon, "one")
    daemon.parts.cache.add_pod(one.placed_on("b" if one.node_name == "a" else "a"))


def _keeps_room_that_nobody_will_take(_: Cluster, daemon: Daemon) -> None:
    large = known(daemon, "large")
    daemon.parts.queue.delete(large)
    daemon.parts.cache.assume(large, "a")


def _loses_a_waiting_pod(_: Cluster, daemon: Daemon) -> None:
    daemon.parts.queue.delete(known(daemon, "large"))


def _loses_a_pod_in_flight(it: Cluster, daemon: Daemon) -> None:
    queue = daemon.parts.queue
    queue.activate([uid_of(it, "large")])
    assert queue.pop() is not None


def _loses_a_pod_between_the_queues_parts(it: Cluster, daemon: Daemon) -> None:
    daemon.parts.queue._contents.unschedulable.remove(uid_of(it, "large"))


def _queues_a_pod_that_is_placed(_: Cluster, daemon: Daemon) -> None:
    daemon.parts.queue.add(known(daemon, "one").placed_on(""))


def _keeps_room_for_a_pod_that_is_placed(_: Cluster, daemon: Daemon) -> None:
    daemon.parts.nominator.add(pod("one", uid=known(daemon, "one").uid), "b")


def _forgets_a_node(_: Cluster, daemon: Daemon) -> None:
    daemon.parts.cache.remove_node("a")


def _keeps_a_node_that_is_gone(_: Cluster, daemon: Daemon) -> None:
    node = daemon.parts.cache.table.nodes[0]
    decoded = msgspec.structs.replace(
        node.node, metadata=msgspec.structs.replace(node.node.metadata, name="gone")
    )
    daemon.parts.cache.add_node(type(node)(decoded, node.raw))


def _lets_a_node_rest_that_is_gone(_: Cluster, daemon: Daemon) -> None:
    daemon.parts.cache.pauses.rejected("gone", "OutOfcpu", at=daemon.parts.clock.monotonic())


def _miscounts_a_request(_: Cluster, daemon: Daemon) -> None:
    daemon.parts.cache.table._requested["cpu"].cells[0] = 1


def _misses_a_cordon(_: Cluster, daemon: Daemon) -> None:
    daemon.parts.cache.table._unschedulable.cells[1] = True


def _miscounts_a_label(_: Cluster, daemon: Daemon) -> None:
    table = daemon.parts.cache.table
    table.label("zone")
    table._labels["zone"].set(0, "elsewhere")


def _misplaces_a_term(_: Cluster, daemon: Daemon) -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    daemon.parts.cache.table._affinity.count(0, pod("affine", node="a", affinity=affinity), 1)


def _holds_a_pod_on_no_node(_: Cluster, daemon: Daemon) -> None:
    table, one = daemon.parts.cache.table, known(daemon, "one")
    table.remove_pod(table.row_of(one.node_name), one.uid)  # type: ignore[arg-type]


def _shows_plugins_what_is_gone(_: Cluster, daemon: Daemon) -> None:
    store = daemon.parts.cache.table.watch_kind("v1/services")
    store["default/gone"] = {"metadata": {"namespace": "default", "name": "gone", "resourceVersion": "1"}}


def _shows_plugins_what_no_server_knows(_: Cluster, daemon: Daemon) -> None:
    store = daemon.parts.cache.table.watch_kind("v1/namespaces")
    found = store["default"]
    written = {**found["metadata"], "resourceVersion": "1000000", "labels": {"written": "yes"}}
    store.assume("default", {**found, "metadata": written})


BREAKS: dict[str, tuple[Callable[[Cluster, Daemon], None], str]] = {
    "a pod on a node is not counted": (_forgets_a_pod, "pod"),
    "a pod is counted that is gone": (_counts_a_pod_that_is_gone, "pod"),
    "a pod is counted on another node": (_counts_a_pod_elsewhere, "pod"),
    "a pod is counted and on no node": (_holds_a_pod_on_no_node, "pod"),
    "room is held and nobody takes it": (_keeps_room_that_nobody_will_take, "assumed"),
    "a waiting pod is not in the queue": (_loses_a_waiting_pod, "pending"),
    "nobody is at the attempt of a pod in flight": (_loses_a_pod_in_flight, "pending"),
    "the queue has lost a pod that it counts": (_loses_a_pod_between_the_queues_parts, "pending"),
    "a pod that is placed is in the queue": (_queues_a_pod_that_is_placed, "queued"),
    "a pod that is placed is nominated": (_keeps_room_for_a_pod_that_is_placed, "nominated"),
    "a node is not in the cache": (_forgets_a_node, "node"),
    "a node is in the cache and gone": (_keeps_a_node_that_is_gone, "node"),
    "a node rests that is gone": (_lets_a_node_rest_that_is_gone, "pause"),
    "a request is counted wrong": (_miscounts_a_request, "column"),
    "a node counts as cordoned": (_misses_a_cordon, "column"),
    "a label is another": (_miscounts_a_label, "column"),
    "an affinity term has no pod": (_misplaces_a_term, "column"),
    "plugins see an object that is gone": (_shows_plugins_what_is_gone, "object"),
    "plugins see what a write made that the server has lost": (_shows_plugins_what_no_server_knows, "object"),
}


@pytest.mark.parametrize(("break_", "what"), BREAKS.values(), ids=BREAKS)
async def test_drift_is_found_counted_and_repaired(
    tmp_path: Path, break_: Callable[[Cluster, Daemon], None], what: str
) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await settled(it)
        break_(it, daemon)
        reported = await daemon.consistency.check(repair=False)

        repaired = await daemon.consistency.check(repair=True)

        # Of a wrong column follow wrong verdicts, which are forgotten with it.
        assert what in found_by(reported) <= {what, "verdict"}
        assert drift(daemon, what)
        assert found_by(repaired) == {what}
        assert not (await daemon.consistency.check(repair=True)).findings
        daemon.parts.cache.check()
        daemon.parts.queue.check()
        assert not list(differences(daemon.parts.cache, cache_from(it.server.store)))
        await asyncio.sleep(20.0)
        assert daemon.parts.queue.place_of(uid_of(it, "large")) is Place.UNSCHEDULABLE


async def test_changes_that_the_watch_missed_are_listed_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await settled(it)
        store = daemon.watches.pods._store
        store.delete(store_identity(it, "one"))  # as if the watch had said so
        assert known_names(daemon) == {"two", "large"}

        report = await daemon.consistency.check(repair=True)
        await it.until(lambda: "one" in known_names(daemon))

        assert found_by(report) == {"missed"}
        assert not (await daemon.consistency.check(repair=True)).findings
        assert not list(differences(daemon.parts.cache, cache_from(it.server.store)))


async def test_a_change_that_the_watch_delivers_a_second_later_is_no_drift(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await settled(it)
        late = it.server.faults.stall_watches(requests(verb="watch", resource="pods"))
        it.label_pod("large", changed="yes")
        it.add_pods(*(pod_object(f"more-{number}", cpu="1m") for number in range(3)))
        checking = asyncio.create_task(daemon.consistency.check(repair=True))
        await asyncio.sleep(1.0)
        it.server.faults.remove(late)

        assert not (await checking).findings
        assert known_names(daemon) == {"one", "two", "large", "more-0", "more-1", "more-2"}


class Fickle(FilterPlugin):
    """Refuses all nodes for a reason that changes untold; as it has a signature, what it said is kept."""

    name = "Fickle"
    api_version = 1
    reason = "first"

    def signature(self, pod: Any) -> str:
        return ""

    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Outcomes:
        return Outcomes.reject(np.ones(snapshot.n_nodes, dtype=bool), type(self).reason)


class Moody(FilterPlugin):
    """Refuses all nodes, one time in three for another reason; nothing is kept of what it says."""

    name = "Fickle"
    api_version = 1
    reasons_in_turn = ("odd", "even", "even")
    reasons = cycle(reasons_in_turn)

    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Outcomes:
        return Outcomes.reject(np.ones(snapshot.n_nodes, dtype=bool), next(type(self).reasons))


class Breaking(Fickle, PreFilterPlugin):
    """Is kept as well, and breaks in the end."""

    is_broken = False

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Status | None:
        return Status.failed("it is broken") if type(self).is_broken else None


WITH_FICKLE = (
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
    "- schedulerName: custom-scheduler\n  plugins: {filter: {enabled: [{name: Fickle}]}}\n"
)
WITH_BREAKING = WITH_FICKLE.replace("filter: {", "preFilter: {enabled: [{name: Fickle}]}, filter: {")


async def test_a_plugin_with_varying_answers_is_no_drift(tmp_path: Path) -> None:
    plugin = type("Moody", (Moody,), {})
    async with cluster(tmp_path) as it, it.daemon(WITH_FICKLE, plugins={"Fickle": plugin}) as daemon:
        it.add_nodes(node_object("a"))
        it.add_pods(pod_object("waits"))
        await it.until(lambda: it.condition("waits"))
        plugin.reasons = cycle(Moody.reasons_in_turn)

        assert not (await daemon.consistency.check(repair=True)).findings


async def test_cached_results_of_a_plugin_that_now_fails_are_not_reported(tmp_path: Path) -> None:
    plugin = type("Breaking", (Breaking,), {})
    async with cluster(tmp_path) as it, it.daemon(WITH_BREAKING, plugins={"Fickle": plugin}) as daemon:
        it.add_nodes(node_object("a"))
        it.add_pods(*(pod_object(f"waits-{n}") for n in range(3)))
        await it.until(lambda: it.condition("waits-2"))
        plugin.is_broken = True

        assert not (await daemon.consistency.check(repair=True)).findings


async def test_outdated_cached_results_are_dropped(tmp_path: Path) -> None:
    plugin = type("Fickle", (Fickle,), {})
    async with cluster(tmp_path) as it, it.daemon(WITH_FICKLE, plugins={"Fickle": plugin}) as daemon:
        it.add_nodes(node_object("a"), node_object("b"))
        it.add_pods(*(pod_object(f"waits-{n}") for n in range(3)))
        await it.until(lambda: it.condition("waits-2"))
        await asyncio.sleep(20.0)
        assert not (await daemon.consistency.check(repair=True)).findings
        plugin.reason = "second"

        report = await daemon.consistency.check(repair=True)

        assert found_by(report) == {"verdict"}
        assert not (await daemon.consistency.check(repair=True)).findings


async def test_the_check_runs_periodically(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await settled(it)
        daemon.parts.queue.delete(known(daemon, "large"))

        await asyncio.sleep(2 * CHECK_SECONDS)

        assert drift(daemon, "pending") == 1
        assert daemon.parts.queue.get(uid_of(it, "large")) is not None


async def test_the_check_runs_after_an_outage(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await settled(it)
        daemon.parts.queue.delete(known(daemon, "large"))
        await it.server.stop()
        await asyncio.sleep(2.0)
        await it.server.start()

        await it.until(lambda: drift(daemon, "pending") == 1, seconds=10.0)


async def test_a_server_that_does_not_answer_is_no_drift(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await settled(it)
        it.server.faults.refuse(503, requests(verb="list", resource="pods"))

        report = await daemon.consistency.check(repair=True)

        assert (report.result, set(report.unread)) == ("failed", {"pods"})


async def test_a_signal_dumps_the_cache_and_the_queue_as_in_kube_scheduler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await settled(it)
        daemon.consistency.ask()
        with caplog.at_level("INFO"):
            await asyncio.sleep(10.0)

        (queue,) = (each for each in caplog.records if each.message == "Dump of scheduling queue")
        nodes = [each.nodes for each in caplog.records if each.message == "Dump of cached NodeInfo"]
        assert queue.summary == "activeQ:0; backoffQ:0; unschedulablePods:1"
        assert queue.pods.startswith(
            f"name: large, namespace: default, uid: {uid_of(it, 'large')}, phase: Pending, nominated node: , "
        )
        text = next(each for each in nodes if each.startswith(f"Node name: {it.node_of('one')}\n"))
        assert "\nDeleted: false\nRequested Resources: &{MilliCPU:1500 Memory:0 " in text
        assert (
            f"\nScheduled Pods(number: 1):\nname: one, namespace: default, uid: {uid_of(it, 'one')}, " in text
        )


def known_names(daemon: Daemon) -> set[str]:
    return {each.name for each in daemon.parts.pods.values()}


def store_identity(it: Cluster, name: str) -> Any:
    from scheduler.kube.client.wire import ObjectIdentity

    return ObjectIdentity(name, "default", uid_of(it, name), "")
