"""The reservation, the writes and the wait for volumes of a pod with a node."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest

from plugins.volume_binding.plugin import VolumeBindingArgs
from plugins.volumes.storage import CLAIMS, VOLUMES
from scheduler.engine.cycle.event_bus import EventBus
from scheduler.errors import ApiError
from scheduler.framework import SKIP, ActionType, ClusterEvent, Code, CycleState, EventResource, Status
from scheduler.framework.events import ASSIGNED_POD_DELETE, NODE_DELETE
from scheduler.testing.fakes import FakeApi
from scheduler.testing.samples import claim, csi_node, only_on, storage_class, volume
from tests.support.builders import node, pod
from tests.support.virtual_time import LoopClock
from tests.unit.engine.queue.cluster import Cluster
from tests.unit.plugins.volume_binding.small_cluster import HOST, LOCAL, ZONE, Stage, using

if TYPE_CHECKING:
    from collections.abc import Mapping

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
CLASSES = (storage_class("local", provisioner=LOCAL), storage_class("made"))


def versioned(obj: dict[str, Any], version: int, **metadata: Any) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version), **metadata}}


def local(name: str, host: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    """Return a volume as the API server returns it, with fields that scheduling does not read."""
    found = volume(
        name,
        phase="Available",
        nodeAffinity=only_on(HOST, host),
        storageClassName="local",
        local={"path": "/"},
        **spec,
    )
    return versioned(found, version, managedFields=[{"manager": "kubectl"}])


def to_bind(name: str) -> dict[str, Any]:
    return versioned(claim(name, class_name="local"), 2)


def to_make(name: str, version: int = 3) -> dict[str, Any]:
    return versioned(claim(name, class_name="made"), version)


DB = using("old", "new", name="db")
OLD, NEW, PV = to_bind("old"), to_make("new"), local("pv", "n1")


# Reserve.


def test_reserved_volumes_are_visible_to_all_pods_and_released():
    stage = Stage(*CLASSES, OLD, NEW, PV)
    state = stage.reserved(DB, "n1")

    held = stage.shown(VOLUMES, "pv")
    assert held["spec"]["claimRef"] == {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "old",
        "uid": "uid-of-claim-old",
        "resourceVersion": "2",
    }
    assert held["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert stage.shown(CLAIMS, "default/new")["metadata"]["annotations"] == {SELECTED_NODE: "n1"}
    assert stage.shown(CLAIMS, "default/old") == OLD
    assert PV["metadata"].get("annotations") is None, "what the API server sent stays as it is"

    stage.plugin.unreserve(state, DB, "n1")

    assert stage.shown(VOLUMES, "pv") == PV
    assert stage.shown(CLAIMS, "default/new") == NEW


def test_a_volume_reserved_by_one_pod_is_not_available_to_the_next():
    stage = Stage(*CLASSES, OLD, to_bind("other"), PV, local("pv-2", "n2"))
    first = stage.reserved(using("old", name="first"), "n1")
    assert stage.feasible(using("other")) == {"n2"}

    stage.plugin.unreserve(first, pod("first"), "n1")
    assert stage.feasible(using("other")) == {"n1", "n2"}


def test_a_volume_that_another_pod_reserved_is_not_released():
    stage = Stage(*CLASSES, OLD, to_bind("other"), PV)
    first = stage.reserved(using("old", name="first"), "n1")
    # The watch has a newer version.
    stage.show({**PV, "metadata": {**PV["metadata"], "resourceVersion": "9"}})
    second = using("other", name="second")
    stage.reserved(second, "n1")
    stage.plugin.unreserve(first, pod("first"), "n1")

    assert stage.shown(VOLUMES, "pv")["spec"]["claimRef"]["name"] == "other"


def test_an_error_while_volumes_are_assumed_is_counted(monkeypatch: pytest.MonkeyPatch):
    stage = Stage(claim("data", "pv"), volume("pv"))
    monkeypatch.setattr(stage.plugin, "_binder", None)
    state, snapshot = CycleState(), stage.table.snapshot()
    stage.plugin.pre_filter(state, using("data"), snapshot)
    stage.plugin.filter(state, using("data"), snapshot, snapshot.all_rows)
    with pytest.raises(AttributeError):
        stage.plugin.reserve(state, using("data"), "n1")

    assert stage.metrics.calls == [("scheduler_volume_scheduling_stage_error_total", ("assume",), 1.0)]


def test_two_pods_of_one_claim_share_its_reserved_volume():
    stage = Stage(*CLASSES, OLD, PV)
    stage.reserved(using("old", name="first"), "n1")
    second = using("old", name="second")
    state = stage.reserved(second, "n1")
    stage.plugin.unreserve(state, second, "n1")

    assert stage.shown(VOLUMES, "pv")["spec"]["claimRef"]["name"] == "old"


def test_a_volume_held_for_its_claim_is_not_marked_as_bound_by_the_controller():
    held = local("pv", "n1", claimRef={"namespace": "default", "name": "old"})
    stage = Stage(*CLASSES, OLD, held)
    stage.reserved(using("old"), "n1")

    found = stage.shown(VOLUMES, "pv")
    assert found["spec"]["claimRef"]["uid"] == "uid-of-claim-old"
    assert "pv.kubernetes.io/bound-by-controller" not in found["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("objects", "waiting"),
    [
        pytest.param([], pod("web"), id="no claims"),
        pytest.param([claim("old", "pv"), volume("pv")], using("old"), id="claims that are bound"),
    ],
)
def test_pods_without_anything_to_wait_for(objects: Any, waiting: Any):
    stage = Stage(*CLASSES, *objects)
    state, _ = stage.judged(waiting)
    stage.plugin.reserve(state, waiting, "n1")

    assert stage.plugin.pre_bind_pre_flight(state, waiting, "n1") is SKIP
    stage.plugin.unreserve(state, waiting, "n1")


def test_a_pod_without_evaluated_nodes_is_skipped():
    stage, state = Stage(), CycleState()
    stage.plugin.reserve(state, DB, "n1")

    assert stage.plugin.pre_bind_pre_flight(state, DB, "n1") is SKIP
    stage.plugin.unreserve(state, DB, "n1")


# PreBind.


class Writes(FakeApi):
    """Writes that get a version each, as the API server assigns it; `before_answering` runs meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.before_answering: Any = lambda _answer: None

    async def api_write(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, **_options: Any
    ) -> Mapping[str, Any]:
        assert body is not None
        await asyncio.sleep(0)
        await super().api_write(method, path, body)
        answer: dict[str, Any] = copy.deepcopy(dict(body))
        answer["metadata"]["resourceVersion"] = str(100 + len(self.written))
        self.before_answering(answer)
        return answer


class Live:
    """A pod in its binding cycle: `db` with claims `old`, for which there is a volume, and `new`, on node n1.

    Attributes:
        bus: distributes events.
        answers: the responses of the API server, by name.
    """

    def __init__(self, *objects: dict[str, Any], waiting: Any = DB, bind_timeout_seconds: int = 600) -> None:
        self.bus, self.writes, self.waiting = EventBus(Cluster().queue), Writes(), waiting
        self.stage = Stage(
            *CLASSES,
            *(objects or (OLD, NEW, PV)),
            writer=self.writes,
            happenings=self.bus,
            clock=LoopClock(),
            args=VolumeBindingArgs(bind_timeout_seconds=bind_timeout_seconds),
        )
        self.state = self.stage.reserved(waiting, "n1")
        assert self.stage.plugin.pre_bind_pre_flight(self.state, waiting, "n1") is None
        self.task = asyncio.ensure_future(self.stage.plugin.pre_bind(self.state, waiting, "n1"))

    def show(self, obj: dict[str, Any]) -> None:
        """Deliver an object by the watch."""
        self.stage.show(obj)
        resource = EventResource.of(f"{obj['apiVersion']}/{obj['kind'].lower()}s")
        self.bus.happened(ClusterEvent(resource, ActionType.UPDATE), None, obj)

    def remove(self, kind: str, key: str) -> None:
        gone = self.stage.table.watch_kind(kind).pop(key)
        self.bus.happened(ClusterEvent(EventResource.of(kind), ActionType.DELETE), gone, None)

    async def written(self) -> None:
        """Wait until everything is written."""
        await asyncio.sleep(1)
        assert not self.task.done()

    @property
    def result(self) -> Status | None:
        return self.task.result()


def bound_claim(name: str, volume_name: str, version: int, **annotations: str) -> dict[str, Any]:
    made = claim(name, volume_name, class_name="local", annotations=annotations)
    return versioned(made, version)


def claimed(version: int = 101, **reference: Any) -> dict[str, Any]:
    """Return the volume after it names its claim."""
    wanted = {"namespace": "default", "name": "old", "uid": "uid-of-claim-old", **reference}
    return local("pv", "n1", version, claimRef=wanted)


def placed(**fields: Any) -> dict[str, Any]:
    """Return the other claim after it names its node."""
    made = claim("new", class_name="made", annotations={SELECTED_NODE: "n1"}, **fields)
    return versioned(made, 102)


async def test_whole_volumes_and_then_claims_are_written():
    live = Live()
    await live.written()

    (put, path, body), (put_too, path_too, body_too) = live.writes.written
    assert (put, path) == ("PUT", "/api/v1/persistentvolumes/pv")
    assert body is not None
    assert body_too is not None
    assert body["spec"]["local"] == {"path": "/"}
    assert body["metadata"]["managedFields"] == [{"manager": "kubectl"}]
    assert body["metadata"]["resourceVersion"] == "1"
    assert body["spec"]["claimRef"]["name"] == "old"
    assert (put_too, path_too) == ("PUT", "/api/v1/namespaces/default/persistentvolumeclaims/new")
    assert body_too["metadata"]["resourceVersion"] == "3"
    assert body_too["metadata"]["annotations"] == {SELECTED_NODE: "n1"}
    live.task.cancel()


async def test_objects_from_a_list_are_written_with_their_kind():
    nameless = {field: value for field, value in PV.items() if field not in {"kind", "apiVersion"}}
    live = Live(OLD, NEW, PV)
    live.task.cancel()
    stage = Stage(*CLASSES, OLD, writer=live.writes, happenings=live.bus, clock=LoopClock())
    stage.table.watch_kind(VOLUMES)["pv"] = nameless
    only_old = using("old", name="web")
    state = stage.reserved(only_old, "n1")
    running = asyncio.ensure_future(stage.plugin.pre_bind(state, only_old, "n1"))
    await asyncio.sleep(1)

    body = live.writes.written[-1][2]
    assert body is not None
    assert (body["apiVersion"], body["kind"]) == ("v1", "PersistentVolume")
    running.cancel()


async def test_a_pod_waits_until_all_its_claims_are_bound():
    live = Live()
    await live.written()
    live.show(claimed())
    live.show(placed())
    await asyncio.sleep(100)
    live.show(bound_claim("old", "pv", 200))
    await asyncio.sleep(100)
    assert not live.task.done()

    live.show(versioned(volume("made", nodeAffinity=only_on(ZONE, "a")), 201))
    live.show(bound_claim("new", "made", 202, **{SELECTED_NODE: "n1"}))

    assert await live.task is None
    assert asyncio.get_running_loop().time() == 201


async def test_a_volume_whose_event_follows_the_claims_is_awaited():
    live = Live(NEW, waiting=using("new", name="db"))
    await live.written()
    live.show(bound_claim("new", "made", 202, **{SELECTED_NODE: "n1"}))
    await asyncio.sleep(10)
    assert not live.task.done()
    live.show(versioned(volume("made"), 201))

    assert await live.task is None


async def test_events_from_before_the_write_are_ignored():
    live = Live()
    await live.written()
    live.show(local("pv", "n1", 50))
    live.show(to_make("new", 51))
    await asyncio.sleep(10)
    assert not live.task.done(), "neither of them says that something was taken back"

    live.show(claimed())
    live.show(placed())
    live.show(bound_claim("old", "pv", 200))
    live.show(versioned(volume("made"), 201))
    live.show(bound_claim("new", "made", 202, **{SELECTED_NODE: "n1"}))
    assert await live.task is None


def moved(live: Live) -> None:
    live.stage.table.update_node(node("n1", labels={ZONE: "a", HOST: "renamed"}))
    live.bus.happened(ClusterEvent(EventResource.NODE, ActionType.UPDATE_NODE_LABEL), node("n1"), node("n1"))


def node_gone(live: Live) -> None:
    live.bus.happened(NODE_DELETE, node("n1"), None)
    live.stage.table.remove_node("n1")


def pod_gone(live: Live) -> None:
    row = live.stage.table.row_of("n1")
    assert row is not None
    gone = live.stage.table.remove_pod(row, DB.uid)
    live.bus.happened(ASSIGNED_POD_DELETE, gone, None)


def provisioned_elsewhere(live: Live) -> None:
    live.show(versioned(volume("made", nodeAffinity=only_on(HOST, "n2")), 201))
    live.show(bound_claim("old", "pv", 202))
    live.show(bound_claim("new", "made", 203, **{SELECTED_NODE: "n1"}))


def bound_elsewhere(live: Live) -> None:
    """A second pod of the claim was placed at the same moment, by another replica."""
    live.show(local("other", "n2", 201))
    live.show(bound_claim("old", "other", 202))


def bound_old(live: Live) -> None:
    live.show(bound_claim("old", "pv", 150))


MISMATCH = 'node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'
ENDS = [
    pytest.param(
        lambda live: live.show(local("pv", "n1", 200)), 'ClaimRef got reset for pv "pv"', id="unbound again"
    ),
    pytest.param(
        lambda live: live.show(claimed(200, uid="")), 'ClaimRef got reset for pv "pv"', id="held, not bound"
    ),
    pytest.param(
        lambda live: live.remove(VOLUMES, "pv"),
        'failed to check binding: persistentvolumes "pv" not found',
        id="the volume is deleted",
    ),
    pytest.param(
        lambda live: live.remove(CLAIMS, "default/old"),
        'failed to check binding: persistentvolumeclaims "default/old" not found',
        id="the claim is deleted",
    ),
    pytest.param(
        lambda live: (bound_old(live), live.remove(CLAIMS, "default/new")),
        'failed to check provisioning pvc: persistentvolumeclaims "default/new" not found',
        id="the claim to be provisioned is deleted",
    ),
    pytest.param(
        lambda live: (bound_old(live), live.show(to_make("new", 200))),
        'selectedNode annotation reset for PVC "new"',
        id="all annotations are removed",
    ),
    pytest.param(
        lambda live: (
            bound_old(live),
            live.show(versioned(claim("new", class_name="made", annotations={"a": "b"}), 200)),
        ),
        'provisioning failed for PVC "new"',
        id="the selected node is taken back",
    ),
    pytest.param(bound_elsewhere, f'pv "other" {MISMATCH}', id="bound to another volume"),
    pytest.param(provisioned_elsewhere, f'pv "made" {MISMATCH}', id="provisioned elsewhere"),
    pytest.param(moved, f'pv "pv" {MISMATCH}', id="the node has other labels"),
    pytest.param(node_gone, 'failed to get node "n1": node "n1" not found', id="the node is deleted"),
    pytest.param(pod_gone, 'pod does not exist any more: pod "db" not found', id="the pod is deleted"),
]


@pytest.mark.parametrize(("what_happens", "message"), ENDS)
async def test_the_events_that_end_the_wait(what_happens: Any, message: str):
    live = Live()
    await live.written()
    live.show(claimed())
    live.show(placed())
    await asyncio.sleep(1)
    what_happens(live)
    status = await live.task

    assert status is not None
    assert (status.code, status.message) == (Code.ERROR, f"binding volumes: {message}")
    assert asyncio.get_running_loop().time() == 2, "it is seen at once"


async def test_a_volume_that_the_driver_cannot_attach_ends_the_wait():
    source = {"csi": None, "awsElasticBlockStore": {"volumeID": "aws://nonsense"}}
    live = Live(NEW, csi_node("n1", {}, migrated=["kubernetes.io/aws-ebs"]), waiting=using("new", name="db"))
    await live.written()
    live.show(versioned(volume("made", **source), 201))
    live.show(bound_claim("new", "made", 202, **{SELECTED_NODE: "n1"}))
    status = await live.task

    assert status is not None
    assert status.message.startswith("binding volumes: could not translate pv: failed to translate")


@pytest.mark.parametrize("seconds", [0, 5])
async def test_the_wait_has_a_timeout(seconds: int):
    live = Live(bind_timeout_seconds=seconds)
    status = await live.task

    assert status is not None
    assert status.message == "binding volumes: context deadline exceeded"
    assert asyncio.get_running_loop().time() == seconds


CONFLICT = ApiError(409, "Conflict", "the object has been modified")


@pytest.mark.parametrize("error", [CONFLICT, ApiError(0, "Timeout", "no answer")])
async def test_a_failed_write_ends_the_wait_and_unwritten_objects_are_released(error: ApiError):
    live = Live()
    live.writes.refusals = [error]
    status = await live.task

    assert status is not None
    assert (status.code, status.message, status.error) == (Code.ERROR, str(error), error)
    assert live.stage.metrics.calls == [("scheduler_volume_scheduling_stage_error_total", ("bind",), 1.0)]
    live.stage.plugin.unreserve(live.state, DB, "n1")
    assert live.stage.shown(VOLUMES, "pv") == PV
    assert live.stage.shown(CLAIMS, "default/new") == NEW
    assert not live.writes.written


async def test_written_objects_stay_as_in_the_response_until_the_watch_event():
    live = Live()
    live.writes.refusals = [None, CONFLICT]
    assert await live.task is not None
    live.stage.plugin.unreserve(live.state, DB, "n1")
    live.show(local("pv", "n1", 50))

    assert live.stage.shown(VOLUMES, "pv")["spec"]["claimRef"]["name"] == "old"
    assert live.stage.shown(VOLUMES, "pv")["metadata"]["resourceVersion"] == "101"
    assert live.stage.shown(CLAIMS, "default/new") == NEW
    live.show(local("pv", "n1", 200))
    assert "claimRef" not in live.stage.shown(VOLUMES, "pv")["spec"]


async def test_a_response_older_than_the_watch_changes_nothing():
    live = Live(OLD, PV, waiting=using("old", name="db"))
    live.writes.before_answering = lambda _: (
        live.show(claimed(150)),
        live.show(bound_claim("old", "pv", 151)),
    )

    assert await live.task is None
    assert live.stage.shown(VOLUMES, "pv")["metadata"]["resourceVersion"] == "150"


async def test_a_volume_deleted_during_its_write_does_not_return():
    live = Live(OLD, PV, waiting=using("old", name="db"))
    live.writes.before_answering = lambda _: live.remove(VOLUMES, "pv")
    status = await live.task

    assert status is not None
    assert status.message == 'binding volumes: failed to check binding: persistentvolumes "pv" not found'
    assert live.stage.shown(VOLUMES, "pv") is None


async def test_a_pod_deleted_during_the_write_of_its_volumes_is_not_awaited():
    live = Live()
    live.writes.before_answering = lambda answer: (
        pod_gone(live) if answer["kind"] == "PersistentVolume" else None
    )
    status = await live.task

    assert status is not None
    assert status.message == 'binding volumes: pod does not exist any more: pod "db" not found'


async def test_a_cancelled_wait_releases_unwritten_objects():
    live = Live()
    await live.written()
    live.task.cancel()
    await asyncio.sleep(1)
    live.stage.plugin.unreserve(live.state, DB, "n1")

    assert live.task.cancelled()
    assert live.stage.shown(VOLUMES, "pv")["spec"]["claimRef"]["name"] == "old", "that is written"
    assert not live.bus._waiting_for


async def test_another_assumption_about_a_shared_claim_does_not_end_the_wait_of_the_first():
    live = Live(NEW, waiting=using("new", name="db"))
    await live.written()
    second = using("new", name="second")
    state = live.stage.reserved(second, "n1")
    live.stage.plugin.unreserve(state, second, "n1")  # restores what the watch has shown: nothing yet
    live.show(versioned(csi_node("n1", {}), 500))
    await asyncio.sleep(10)
    assert not live.task.done()

    live.show(placed())
    live.show(versioned(volume("made"), 201))
    live.show(bound_claim("new", "made", 202, **{SELECTED_NODE: "n1"}))
    assert await live.task is None


async def test_a_volume_that_differs_from_the_written_one_is_awaited():
    live = Live(OLD, PV, waiting=using("old", name="db"))
    await live.written()
    live.stage.table.watch_kind(VOLUMES).restore("pv")
    live.show(bound_claim("old", "pv", 150))
    await asyncio.sleep(10)
    assert not live.task.done()
    live.show(claimed())

    assert await live.task is None


async def test_a_claim_may_be_bound_to_another_volume_that_the_node_reaches():
    live = Live(OLD, PV, waiting=using("old", name="db"))
    await live.written()
    live.show(claimed())
    live.show(bound_claim("old", "other", 150))
    await asyncio.sleep(10)
    assert not live.task.done(), "the volume is not shown yet"
    live.show(local("other", "n1", 151))

    assert await live.task is None


async def test_a_claim_with_a_volume_that_is_not_completely_bound_is_awaited():
    live = Live(OLD, PV, waiting=using("old", name="db"))
    await live.written()
    live.show(claimed())
    half = versioned(claim("old", class_name="local", volumeName="pv"), 150)
    live.show(half)
    await asyncio.sleep(10)
    assert not live.task.done()
    assert BIND_COMPLETED not in half["metadata"]["annotations"]
    live.show(bound_claim("old", "pv", 151))

    assert await live.task is None
