"""Simulations equal a daemon: preemption, groups, Permit, backoff, volumes, and writes of plugins."""

from __future__ import annotations

import asyncio
from http.server import BaseHTTPRequestHandler, HTTPServer
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from plugins.registry import IN_TREE
from scheduler.configuration.load import default, parse
from scheduler.errors import ApiError, ObjectError
from scheduler.framework import PermitPlugin, Wait, WantedStatus
from scheduler.objects.decode import decode_pod
from scheduler.snapshot import object_key
from scheduler.testing.devices import claims_of, device_class, exactly, resource_claim, resource_slice
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.simulation.cluster import DEVICE_CLAIMS as CLAIMS_OF_DEVICES
from scheduler.tools.whatif.simulation.cluster import ObjectWrites
from scheduler.tools.whatif.simulation.parallel_simulations import Player
from scheduler.tools.whatif.simulation.simulation_measures import Attempts
from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
from scheduler.tools.whatif.simulation.virtual_time import VirtualTimeLoop, run
from scheduler.tools.whatif.simulation.workload import (
    Arrival,
    NodeGoes,
    NodeIsDrained,
    NodeIsThere,
    PodIsAnother,
    PodIsResized,
    Workload,
    served_by,
)
from tests.support.builders import node, pod, pod_object
from tests.support.errors import raises

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo

PLURALS = {
    "DeviceClass": "deviceclasses",
    "ResourceClaim": "resourceclaims",
    "ResourceSlice": "resourceslices",
}

Line = tuple[float, str, str]


class Diary:
    """A witness who notes everything: when, what, whom."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def note(self, what: str, pod: PodInfo) -> None:
        where = f" {pod.node_name}" if what == "placed" else ""
        self.lines.append((asyncio.get_running_loop().time(), f"{what}{where}", pod.name))

    def came(self, pod: PodInfo) -> None:
        self.note("came", pod)

    def placed(self, pod: PodInfo, waited_seconds: float) -> None:
        self.note("placed", pod)

    def evicted(self, pod: PodInfo) -> None:
        self.note("evicted", pod)

    def went(self, pod: PodInfo) -> None:
        self.note("went", pod)

    def failed(self, pod: PodInfo) -> None:
        self.note("failed", pod)

    def settled(self, now: float) -> None: ...


def play(workload: Workload, configuration: str = "", **options: Any) -> tuple[list[Line], VirtualDaemon]:
    """Return the result of a workload, and the daemon that ran it."""
    diary = Diary()

    async def main() -> VirtualDaemon:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        parsed = parse(configuration) if configuration else default()
        daemon = VirtualDaemon(loop, parsed, random=Random(1), observer=Attempts(), **options)
        daemon.fill(workload.cluster)
        player = Player(served_by(workload, list(daemon.active.frameworks)), daemon, diary)
        await daemon.run(player.play())
        return daemon

    return diary.lines, run(main())


def of_replica_set(name: str, **fields: Any) -> PodInfo:
    return owned(name, "ReplicaSet", **fields)


def owned(name: str, kind: str, **fields: Any) -> PodInfo:
    obj = pod_object(name, **fields)
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": True}
    obj["metadata"]["ownerReferences"] = [owner]
    return decode_pod(msgspec.json.encode(obj))


def on(nodes: Sequence[Any], *arrivals: Arrival, **more: Any) -> Workload:
    return Workload(ClusterFile(nodes=list(nodes)), arrivals, **more)


def only(lines: list[Line], *whom: str) -> list[Line]:
    return [line for line in lines if line[2] in whom]


def test_victims_stay_for_their_grace_period_and_their_owners_replace_them():
    lines, _ = play(
        on(
            [node("n", cpu="4")],
            Arrival(of_replica_set("low", cpu="3"), 0.0),
            Arrival(pod("high", cpu="3", priority=10), 10.0, 100.0),
        )
    )

    assert only(lines, "low") == [
        (0.0, "came", "low"),
        (0.0, "placed n", "low"),
        (10.0, "evicted", "low"),
        (40.0, "went", "low"),
    ]
    assert (40.0, "placed n", "high") in lines
    assert [line[1:] for line in only(lines, "low-again-1")] == [
        ("came", "low-again-1"),
        ("placed n", "low-again-1"),
    ]
    assert (10.0, "came", "low-again-1") in lines
    assert next(line[0] for line in lines if line[1:] == ("placed n", "low-again-1")) >= 140.0


def test_a_pod_of_a_stateful_set_is_recreated_by_its_own_name_after_deletion():
    lines, _ = play(
        on(
            [node("n", cpu="4")],
            Arrival(owned("db-0", "StatefulSet", cpu="3"), 0.0),
            Arrival(pod("high", cpu="3", priority=10), 10.0, 100.0),
        ),
        stop_seconds=5.0,
    )

    assert [line[:2] for line in only(lines, "db-0")][2:5] == [
        (10.0, "evicted"),
        (15.0, "went"),
        (15.0, "came"),
    ]


def test_a_recreated_pod_does_not_end_with_the_run_time_of_its_predecessor():
    lines, _ = play(
        on(
            [node("n", cpu="4")],
            Arrival(owned("db-0", "StatefulSet", cpu="3"), 0.0, 50.0),
            Arrival(pod("high-1", cpu="3", priority=10), 10.0, 5.0),
            Arrival(pod("high-2", cpu="3", priority=10), 30.0, 5.0),
        ),
        stop_seconds=2.0,
    )

    at = [line[0] for line in only(lines, "db-0") if line[1] in {"placed n", "went"}]
    assert len(at) == 6  # placed and gone three times
    assert at[1::2] == [12.0, 32.0, at[4] + 50.0]  # the second, placed at 17, would have gone at 67 or later


def test_a_pod_without_an_owner_is_not_recreated():
    lines, daemon = play(
        on(
            [node("n", cpu="4")],
            Arrival(pod("low", cpu="3"), 0.0),
            Arrival(pod("high", cpu="3", priority=10), 10.0),
        )
    )

    assert {line[2] for line in lines} == {"low", "high"}
    assert list(daemon.parts.pods) == ["default/high"]


def in_group(name: str, **fields: Any) -> PodInfo:
    return pod(name, schedulingGroup={"podGroupName": "g"}, **fields)


def test_a_gang_is_placed_as_a_whole_or_not_at_all():
    group = {
        "metadata": {"name": "g", "namespace": "default", "uid": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    there = ClusterFile(
        nodes=[node("n", cpu="4")],
        others={"scheduling.k8s.io/v1alpha2/podgroups": {"default/g": msgspec.json.encode(group)}},
    )
    lines, daemon = play(
        Workload(
            there,
            [
                Arrival(pod("before", cpu="2"), 0.0, 50.0),
                *(Arrival(in_group(f"g-{place}", cpu="1"), 10.0 + place) for place in range(3)),
            ],
        )
    )

    placed = [line for line in lines if line[1].startswith("placed") and line[2].startswith("g-")]
    assert len(placed) == 3
    assert len({at for at, _, _ in placed}) == 1
    assert placed[0][0] >= 50.0
    conditions = daemon.cluster.find("scheduling.k8s.io/v1alpha2/podgroups", "default/g")
    assert conditions is not None
    assert conditions["status"]["conditions"][0]["status"] == "True"


class HoldsFor20Seconds(PermitPlugin):
    name = "HoldsFor20Seconds"
    api_version = 1

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Wait:
        return Wait(20.0)


HOLDING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {permit: {enabled: [{name: HoldsFor20Seconds}]}}
"""


def test_a_pod_that_permit_never_allows_is_finally_dropped():
    lines, daemon = play(
        on([node("n")], Arrival(pod("held"), 0.0)),
        HOLDING,
        in_tree={**IN_TREE, HoldsFor20Seconds.name: HoldsFor20Seconds},
    )

    assert [line[1] for line in lines] == ["came"]
    assert daemon.parts.pods["default/held"].node_name == ""


class NotesRefreshes(HoldsFor20Seconds):
    name = "NotesRefreshes"
    refresh_seconds = 1.0
    times: ClassVar[list[float]] = []

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        return None

    async def refresh(self) -> None:
        self.times.append(asyncio.get_running_loop().time())


class ReadsTheClusterOnly(NotesRefreshes):
    name = "ReadsTheClusterOnly"
    refreshes_in_simulations = True


@pytest.mark.parametrize(
    ("plugin", "times"),
    [
        pytest.param(NotesRefreshes, [0], id="data that are fetched: once"),
        pytest.param(ReadsTheClusterOnly, [0, 1, 3, 6, 11, 20, 37, 70, 101], id="after changes, and then less often"),
    ],
)  # fmt: skip
def test_plugins_are_refreshed_in_a_simulation(plugin: type[NotesRefreshes], times: list[int]):
    plugin.times.clear()

    play(
        on([node("n")], Arrival(pod("p"), 0.0, 100.0), Arrival(pod("q"), 101.5, 0.1)),
        HOLDING.replace(HoldsFor20Seconds.name, plugin.name),
        in_tree={**IN_TREE, plugin.name: plugin},
    )

    assert plugin.times == times


def test_a_pod_in_backoff_gets_new_capacity_if_no_other_pod_waits():
    lines, _ = play(
        on(
            [node("n", cpu="4")],
            Arrival(pod("first", cpu="3"), 0.0, 10.0),
            Arrival(pod("second", cpu="3"), 9.5, 10.0),
        )
    )

    assert (10.0, "placed n", "second") in lines


def test_nodes_are_added_deleted_and_drained():
    lines, _ = play(
        on(
            [node("a", cpu="4")],
            Arrival(of_replica_set("web-1", cpu="3"), 0.0),
            Arrival(of_replica_set("web-2", cpu="3"), 1.0),
            events=(
                NodeIsThere(20.0, node("b", cpu="8")),
                NodeIsDrained(100.0, "a"),
                NodeGoes(200.0, "b"),
                NodeIsThere(300.0, node("c", cpu="8")),
            ),
        ),
        stop_seconds=5.0,
    )

    assert (20.0, "placed b", "web-2") in lines
    assert (100.0, "evicted", "web-1") in lines
    assert (100.0, "placed b", "web-1-again-1") in lines
    assert {line[2] for line in lines if line[0] == 200.0 and line[1] == "went"} == {"web-2", "web-1-again-1"}
    assert {line[2] for line in lines if line[1] == "placed c"} == {"web-2-again-1", "web-1-again-1-again-1"}


def test_a_late_version_of_a_placed_pod_is_ignored():
    large = pod("web", cpu="3")

    lines, daemon = play(
        on(
            [node("n", cpu="4")],
            Arrival(pod("web", cpu="1"), 0.0),
            Arrival(pod("next", cpu="2"), 20.0),
            events=[PodIsAnother(10.0, large)],
        )
    )

    assert (20.0, "placed n", "next") in lines
    assert daemon.parts.pods["default/web"].node_name == "n"


CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default", "uid": "data"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "disk",
        "resources": {"requests": {"storage": "1Gi"}},
    },
    "status": {"phase": "Pending"},
}
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disk"},
    "provisioner": "disk.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def with_a_claim(there: Any) -> Workload:
    """Return a node and a pod with a claim that is not bound yet."""
    others = {
        "v1/persistentvolumeclaims": {"default/data": msgspec.json.encode(CLAIM)},
        "storage.k8s.io/v1/storageclasses": {"disk": msgspec.json.encode(CLASS)},
    }
    db = pod("db", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    return Workload(ClusterFile([there], [], others), [Arrival(db, 5.0)])


def test_a_volume_is_provisioned_at_the_node_of_the_pod():
    lines, daemon = play(with_a_claim(node("n", labels={"topology.kubernetes.io/zone": "z"})))

    assert (5.0, "placed n", "db") in lines
    claim = daemon.cluster.find("v1/persistentvolumeclaims", "default/data")
    assert claim is not None
    assert claim["spec"]["volumeName"] == "pvc-data"
    assert claim["status"]["capacity"] == {"storage": "1Gi"}
    volume = daemon.cluster.find("v1/persistentvolumes", "pvc-data")
    assert volume is not None
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["z"]


def test_a_pod_that_fails_repeatedly_is_finally_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "scheduler.tools.whatif.simulation.virtual_daemon.bind_volumes", lambda _cluster: None
    )

    lines, _ = play(with_a_claim(node("n")))

    assert [line[1] for line in lines] == ["came"]


def test_a_pod_is_bound_once_and_only_in_its_current_version():
    async def done(_api: ObjectWrites, daemon: VirtualDaemon) -> list[int]:
        bind, statuses = daemon.cluster.bind, []
        await bind(daemon.parts.pods["default/p"], "n")
        for each in (pod("p"), pod("p", uid="another"), pod("nobody")):
            with pytest.raises(ApiError) as error:
                await bind(each, "n")
            statuses.append(error.value.status)
        return statuses

    assert writes(done, ClusterFile([node("n")], [pod("p")])) == [409, 409, 404]


def writes(
    done: Callable[[ObjectWrites, VirtualDaemon], Any], there: ClusterFile, configuration: str = ""
) -> Any:
    """Return the result of a plugin's write."""

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        parsed = parse(configuration) if configuration else default()
        daemon = VirtualDaemon(loop, parsed, random=Random(1), observer=Attempts())
        daemon.fill(there)
        return await done(ObjectWrites(daemon.cluster, daemon.parts.clock), daemon)

    return run(main())


def test_a_plugin_writes_annotations_of_its_pod_only():
    async def done(api: ObjectWrites, daemon: VirtualDaemon) -> Mapping[str, str]:
        patch = {"metadata": {"uid": "uid-of-default-p", "annotations": {"a": "1", "b": None}}}
        path, kind = "/api/v1/namespaces/default/pods/p", "application/merge-patch+json"
        await api.api_write("PATCH", path, patch, content_type=kind)
        patch["metadata"]["uid"] = "another"
        with raises(ApiError, status=409):
            await api.api_write("PATCH", path, patch, content_type=kind)
        return daemon.parts.pods["default/p"].annotations

    assert writes(done, ClusterFile(pods=[pod("p", annotations={"b": "2"})])) == {"a": "1"}


def test_a_concurrently_changed_object_is_not_overwritten():
    async def done(api: ObjectWrites, daemon: VirtualDaemon) -> None:
        path = "/api/v1/namespaces/default/persistentvolumeclaims/data"
        before = daemon.cluster.find("v1/persistentvolumeclaims", "default/data")
        assert before is not None
        labels = {"metadata": {**before["metadata"], "labels": {"app": "db"}}}
        await api.api_write("PUT", path, {**before, **labels})
        with raises(ApiError, status=409):
            await api.api_write("PUT", path, before)

    writes(
        done, ClusterFile(others={"v1/persistentvolumeclaims": {"default/data": msgspec.json.encode(CLAIM)}})
    )


def test_writes_of_plugins_have_the_rules_of_the_api_server():
    async def done(api: ObjectWrites, daemon: VirtualDaemon) -> None:
        path = "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims"
        asked = resource_claim("", exactly(), reserved_for=[pod("p")])
        asked["metadata"] = {"generateName": "gpu-"}
        created = await api.api_write("POST", path, asked)
        name = created["metadata"]["name"]
        assert name.startswith("gpu-")
        assert created["status"] == {}
        assert msgspec.json.decode(await api.api_get(f"{path}/{name}")) == created
        assert daemon.cluster.find(CLAIMS_OF_DEVICES, f"a/{name}") == created

        await api.api_write("DELETE", f"{path}/{name}")
        assert daemon.cluster.find(CLAIMS_OF_DEVICES, f"a/{name}") is None
        with pytest.raises(OSError, match="not found"):
            await api.api_get(f"{path}/{name}")

    writes(done, ClusterFile())


QUOTAS = "scheduling.x-k8s.io/v1alpha1/elasticquotas"
WITH_QUOTAS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: CapacityScheduling}]}}
"""


def test_custom_resources_that_plugins_read_have_a_status_of_their_own():
    quota = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "a", "uid": "u"},
        "spec": {"min": {"cpu": "1"}},
    }
    patch = {"spec": {"min": {"cpu": "2"}}, "status": {"used": {"cpu": "1"}}}

    async def done(api: ObjectWrites, daemon: VirtualDaemon) -> list[Any]:
        path, kind = (
            "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/a/elasticquotas/q",
            "application/merge-patch+json",
        )
        await api.api_write("PATCH", f"{path}/status", patch, content_type=kind)
        found = daemon.cluster.find(QUOTAS, "a/q")
        assert found is not None
        return [found["metadata"]["uid"], found["spec"], found["status"]]

    there = ClusterFile(others={QUOTAS: {"a/q": msgspec.json.encode(quota)}})
    assert writes(done, there, WITH_QUOTAS) == ["u", quota["spec"], patch["status"]]


def test_a_malformed_object_is_reported_with_its_name():
    claim = {**CLAIM, "spec": {**CLAIM["spec"], "dataSource": "none"}}
    there = ClusterFile(others={"v1/persistentvolumeclaims": {"default/data": msgspec.json.encode(claim)}})

    async def done(*_arguments: object) -> None: ...

    with pytest.raises(ObjectError, match=r"default/data.*dataSource"):
        writes(done, there)


def test_a_plugin_writes_the_status_of_an_object_and_the_conditions_of_others_stay():
    kind, key = "v1/persistentvolumeclaims", "default/data"
    others = {"type": "Resizing", "status": "True"}

    async def done(api: ObjectWrites, daemon: VirtualDaemon) -> None:
        wanted = WantedStatus({"phase": "Lost"}, [{"type": "Checked", "status": "True"}])
        assert await api.write_status(kind, key, "another", wanted) is None
        uid = CLAIM["metadata"]["uid"]
        await api.write_status(kind, key, uid, wanted, condition_types={"Checked"})
        found = daemon.cluster.find(kind, key)
        assert found is not None
        assert found["status"]["phase"] == "Lost"
        assert [each["type"] for each in found["status"]["conditions"]] == ["Resizing", "Checked"]

    claim = {**CLAIM, "status": {"conditions": [others]}}
    writes(done, ClusterFile(others={kind: {key: msgspec.json.encode(claim)}}))


def test_an_unsupported_write_is_logged_once(caplog: pytest.LogCaptureFixture):
    async def done(api: ObjectWrites, _daemon: VirtualDaemon) -> None:
        for name in ("a", "b"):
            await api.api_write("PUT", f"/api/v1/namespaces/default/configmaps/{name}", {})

    writes(done, ClusterFile())

    assert [record.message for record in caplog.records] == ["Not simulated: a write has no effect"]


def test_claimed_devices_are_allocated_and_released():
    objects = [device_class(), resource_slice(node="n", devices=1)]
    objects += [resource_claim("one", exactly()), resource_claim("two", exactly())]
    others: dict[str, dict[str, bytes]] = {}
    for each in objects:
        kind = f"resource.k8s.io/v1/{PLURALS[each['kind']]}"
        others.setdefault(kind, {})[object_key(each)] = msgspec.json.encode(each)
    there = ClusterFile(nodes=[node("n")], others=others)

    lines, daemon = play(
        Workload(
            there,
            [
                Arrival(pod("a", resource_claims=claims_of("one")), 0.0, 50.0),
                Arrival(pod("b", resource_claims=claims_of("two")), 10.0, 50.0),
            ],
        )
    )

    assert only(lines, "b") == [(10.0, "came", "b"), (50.0, "placed n", "b"), (100.0, "went", "b")]
    for name in ("one", "two"):
        claim = daemon.cluster.find(CLAIMS_OF_DEVICES, f"default/{name}")
        assert claim is not None
        assert not claim["status"].get("reservedFor")
        assert "allocation" not in claim["status"]


class _OnlyB(BaseHTTPRequestHandler):
    """An extender that leaves node b alone."""

    def do_POST(self) -> None:
        asked = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        answer = msgspec.json.encode({"NodeNames": [name for name in asked["NodeNames"] if name == "b"]})
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_args: object) -> None: ...


def test_an_extender_is_called_at_a_fixed_time_and_never_to_bind(caplog: pytest.LogCaptureFixture):
    server = HTTPServer(("127.0.0.1", 0), _OnlyB)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        configuration = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- {{urlPrefix: "http://127.0.0.1:{server.server_port}", filterVerb: filter, bindVerb: bind, nodeCacheCapable: true}}
"""
        lines, _ = play(
            on([node("a"), node("b")], *(Arrival(pod(f"p-{n}"), float(n)) for n in range(5))), configuration
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    assert [line for line in lines if line[1] != "came"] == [
        (float(n), "placed b", f"p-{n}") for n in range(5)
    ]
    assert [record.message for record in caplog.records] == [
        "Not simulated: the extender's bind verb is not called"
    ]


def resizes(daemon: VirtualDaemon) -> dict[str, tuple[int, str]]:
    """Return pod -> the milliCPUs that it takes of its node, and why its resize is pending."""
    return {
        each.name: (
            each.resources.taken["cpu"],
            next((one.reason for one in each.pod.status.conditions if one.type == "PodResizePending"), ""),
        )
        for each in daemon.parts.pods.values()
    }


def resized(at: float, name: str, cpu: str) -> PodIsResized:
    return PodIsResized(at, f"default/{name}", "", {"cpu": cpu})


def test_a_deferred_resize_keeps_its_capacity_from_other_pods():
    _, daemon = play(
        on(
            [node("n", cpu="4")],
            Arrival(pod("web", cpu="1"), 0.0),
            Arrival(pod("old", cpu="2"), 0.0),
            Arrival(pod("new", cpu="1"), 20.0),
            events=[resized(10.0, "web", "3")],
        )
    )

    assert resizes(daemon) == {"web": (3000, "Deferred"), "old": (2000, ""), "new": (1000, "")}
    assert daemon.parts.pods["default/web"].held_for_resize == {"cpu": 2000}
    assert daemon.parts.pods["default/new"].node_name == ""


def test_deferred_resizes_are_carried_out_by_priority_when_pods_leave_or_the_node_grows():
    events = [resized(10.0, "low", "2"), resized(11.0, "high", "2")]
    pods = [
        Arrival(pod("low", cpu="1", priority=1), 0.0),
        Arrival(pod("high", cpu="1", priority=2), 0.0),
        Arrival(pod("ends", cpu="2"), 0.0, 60.0),
        Arrival(pod("other", cpu="1", priority=-1), 61.0),
    ]
    _, before = play(on([node("n", cpu="4")], *pods[:3], events=events))
    assert resizes(before) == {"low": (2000, ""), "high": (2000, "")}

    lack = [*events, NodeIsThere(50.0, node("n", cpu="5"))]
    _, grown = play(on([node("n", cpu="4")], *pods[:2], Arrival(pod("stays", cpu="2"), 0.0), events=lack))
    assert resizes(grown) == {"low": (2000, "Deferred"), "high": (2000, ""), "stays": (2000, "")}


def test_a_resize_of_a_pending_pod_counts_when_it_is_placed_and_a_resize_back_ends_the_wait():
    _, daemon = play(
        on(
            [node("n", cpu="4")],
            Arrival(pod("web", cpu="5"), 0.0),
            events=[resized(10.0, "web", "2"), resized(20.0, "web", "3.5"), resized(30.0, "web", "8")],
        )
    )
    assert resizes(daemon) == {"web": (3500, "Infeasible")}
    assert daemon.cluster.resizes.counts() == {"Completed": 1, "Infeasible": 1}


def test_a_stateful_set_creates_a_resized_pod_again_with_its_first_requests():
    _, daemon = play(
        on(
            [node("n", cpu="4")],
            Arrival(owned("db-0", "StatefulSet", cpu="1"), 0.0),
            events=[
                resized(10.0, "db-0", "8"),
                NodeIsDrained(20.0, "n"),
                NodeIsThere(60.0, node("m", cpu="4")),
            ],
        )
    )

    assert resizes(daemon) == {"db-0": (1000, "")}
    assert daemon.cluster.resizes.counts() == {}


PREEMPTING_FOR_RESIZES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
emulatedVersion: '1.37'
featureGates: {InPlacePodVerticalScalingSchedulerPreemption: true}
"""


def test_pods_of_lower_priority_make_room_for_a_resize_with_the_gate():
    workload = on(
        [node("n", cpu="4")],
        Arrival(pod("web", cpu="1", priority=10), 0.0),
        Arrival(of_replica_set("batch", cpu="2"), 0.0),
        events=[resized(10.0, "web", "4")],
    )
    lines, daemon = play(workload, PREEMPTING_FOR_RESIZES)
    assert (10.0, "evicted", "batch") in lines
    assert resizes(daemon)["web"] == (4000, "")

    _, without = play(workload)
    assert resizes(without) == {"web": (4000, "Deferred"), "batch": (2000, "")}


def test_a_resize_of_a_pod_that_has_ended_is_reported(caplog: pytest.LogCaptureFixture):
    play(on([node("n")], Arrival(pod("web"), 0.0, 5.0), events=[resized(10.0, "web", "4")]))

    (record,) = caplog.records
    assert record.message == "Step of the scenario failed"
    assert record.__dict__["error"] == "there is no pod default/web"


NODE_SETS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: NodePreference, weight: 100}]}}
  pluginConfig:
  - {name: NodePreference, args: {writeDeletionCost: true}}
"""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def test_the_limits_of_node_sets_hold_and_deletion_costs_are_written():
    preference = {
        "sets": [
            {"matchLabels": {"capacity": "spot"}, "maxReplicas": "30%"},
            {"matchLabels": {"capacity": "on-demand"}, "minReplicas": 2},
        ]
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "u",
            "annotations": {"custom-scheduler.io/node-preference": msgspec.json.encode(preference).decode()},
        },
        "spec": {"replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    nodes = [node("s", labels={"capacity": "spot"}), node("d", labels={"capacity": "on-demand"})]
    others = {"apps/v1/replicasets": {"default/web": msgspec.json.encode(replica_set)}}
    arrivals = [
        Arrival(of_replica_set(f"web-{number}", cpu="100m", labels={"app": "web"}), 0.0)
        for number in range(10)
    ]
    later = Arrival(pod("later"), 10.0)  # by then the costs are written
    _, daemon = play(Workload(ClusterFile(nodes=nodes, others=others), [*arrivals, later]), NODE_SETS)
    pods = [each for each in daemon.parts.pods.values() if each.name != "later"]

    assert [sum(each.node_name == name for each in pods) for name in ("s", "d")] == [3, 7]
    costs = sorted((int(each.annotations[DELETION_COST]), each.node_name) for each in pods)
    assert [name for _, name in reversed(costs)] == ["d", "d", "d", "s", "d", "d", "s", "d", "d", "s"]
