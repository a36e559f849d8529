"""Watch events update the cache and the queue, and requeue pods that they may help."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from plugins.scheduling_gates import SchedulingGates
from scheduler.engine.cycle import event_handlers
from scheduler.engine.cycle.event_handlers import ObjectHandler
from scheduler.engine.cycle.scheduling import run_now
from scheduler.engine.queue import Place, scheduling_queue
from scheduler.engine.state.cache import PodState
from scheduler.errors import ObjectError
from scheduler.objects.decode import decode_pod
from tests.support import scripted_plugins as puppets
from tests.support.builders import node, pod, pod_object
from tests.support.counted_labels import calls_of
from tests.unit.engine.cycle.cluster import Cluster, Event, terminating

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.framework import ClusterEvent
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import ObjectStore

WEB = pod("web")
ON_NODE = pod("web", node="n1")
DONE = pod("web", node="n1", status={"phase": "Succeeded"})


class Happenings:
    """Records the calls of the handlers to the queue, and forwards them."""

    def __init__(self, cluster: Cluster) -> None:
        self.told: list[tuple[str, Any, Any]] = []
        self._queue = cluster.queue
        self._move_all = cluster.queue.move_all
        cluster.queue.move_all = self.move_all  # type: ignore[method-assign]

    def move_all(self, event: ClusterEvent, old: Any = None, new: Any = None, pre_check: Any = None) -> int:
        self.told.append((event.label, old, new))
        return self._move_all(event, old, new, pre_check)

    def labels(self) -> list[str]:
        return [label for label, _, _ in self.told]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(SchedulingGates(), puppets.NodeFilter("Picky"))
    yield cluster
    cluster.check()


@pytest.fixture
def happenings(cluster: Cluster) -> Happenings:
    return Happenings(cluster)


def reject(cluster: Cluster, name: str, **more: Any) -> None:
    """Let the plugin Picky reject a pod's first attempt."""
    cluster.pods.on_add(pod(name, **more))
    queued = cluster.pop()
    cluster.queue.add_unschedulable(queued, unschedulable_plugins=["Picky"])


class TestPods:
    def test_a_pending_pod_of_ours_is_queued(self, cluster: Cluster, happenings: Happenings):
        cluster.pods.on_add(WEB)

        assert cluster.place_of("web") is Place.ACTIVE
        assert happenings.told == []

    def test_a_pending_pod_of_another_scheduler_is_ignored(self, cluster: Cluster):
        other, newer = (pod("web", scheduler_name="other", labels={"v": v}) for v in "12")
        cluster.pods.on_add(other)
        cluster.pods.on_update(other, newer)
        cluster.pods.on_delete(newer)

        assert cluster.place_of("web") is Place.OUTSIDE

    @pytest.mark.parametrize("scheduler_name", ["custom-scheduler", "other"])
    def test_a_pod_on_a_node_is_counted_for_any_scheduler(
        self, cluster: Cluster, happenings: Happenings, scheduler_name: str
    ):
        placed = pod("web", node="n1", scheduler_name=scheduler_name)
        cluster.pods.on_add(placed)
        assert cluster.cache.pod(WEB.uid) is placed
        cluster.pods.on_delete(placed)
        assert cluster.cache.pod(WEB.uid) is None

        assert happenings.told == [("AssignedPodAdd", None, placed), ("AssignedPodDelete", placed, None)]

    def test_a_finished_pod_is_not_counted(self, cluster: Cluster, happenings: Happenings):
        cluster.pods.on_add(DONE)
        cluster.pods.on_update(DONE, DONE)
        cluster.pods.on_delete(DONE)

        assert cluster.cache.counts()["pods"] == 0
        assert happenings.told == []

    def test_a_pod_that_finishes_frees_its_capacity(self, cluster: Cluster, happenings: Happenings):
        cluster.pods.on_add(ON_NODE)
        cluster.pods.on_update(ON_NODE, DONE)
        cluster.pods.on_delete(DONE)

        assert cluster.cache.counts()["pods"] == 0
        cluster.pods.on_update(DONE, DONE)
        assert happenings.told[1:] == [("AssignedPodDelete", ON_NODE, None)]

    def test_a_pending_pod_that_finishes_leaves_the_queue(self, cluster: Cluster):
        cluster.pods.on_add(WEB)
        cluster.pods.on_update(WEB, pod("web", status={"phase": "Failed"}))

        assert cluster.place_of("web") is Place.OUTSIDE

    def test_a_pod_reported_running_after_its_end_counts_again(self, cluster: Cluster):
        cluster.pods.on_update(DONE, ON_NODE)
        cluster.pods.on_update(pod("other", status={"phase": "Failed"}), pod("other"))

        assert cluster.cache.state_of(WEB.uid) is PodState.CONFIRMED
        assert cluster.place_of("other") is Place.ACTIVE

    def test_a_pod_bound_by_another_scheduler_leaves_the_queue(
        self, cluster: Cluster, happenings: Happenings
    ):
        cluster.pods.on_add(WEB)
        cluster.pods.on_update(WEB, ON_NODE)

        assert cluster.place_of("web") is Place.OUTSIDE
        assert cluster.cache.state_of(WEB.uid) is PodState.CONFIRMED
        assert happenings.told == [("AssignedPodAdd", None, ON_NODE)]

    def test_a_pod_unbound_by_a_restore_of_the_server_is_queued_again(
        self, cluster: Cluster, happenings: Happenings
    ):
        cluster.pods.on_add(ON_NODE)
        cluster.pods.on_update(ON_NODE, WEB)

        assert cluster.place_of("web") is Place.ACTIVE
        assert cluster.cache.counts()["pods"] == 0
        assert happenings.told[1:] == [("AssignedPodDelete", ON_NODE, None)]

    def test_the_binding_of_an_assumed_pod_confirms_it(self, cluster: Cluster):
        cluster.pods.on_add(WEB)
        cluster.pop()
        cluster.cache.assume(WEB, "n1")
        cluster.pods.on_update(WEB, ON_NODE)

        assert cluster.cache.state_of(WEB.uid) is PodState.CONFIRMED
        cluster.queue.done(WEB.uid)

    def test_each_change_of_a_pod_on_a_node_is_an_event(self, cluster: Cluster, happenings: Happenings):
        old, new = pod("web", node="n1", cpu="2"), pod("web", node="n1", cpu="1", labels={"a": "b"})
        cluster.pods.on_add(old)
        cluster.pods.on_update(old, new)

        assert cluster.cache.pod(WEB.uid) is new
        assert happenings.labels()[1:] == ["AssignedPodUpdatePodLabel", "AssignedPodUpdatePodScaleDown"]

    def test_an_attempt_uses_the_updated_version_of_a_pending_pod(self, cluster: Cluster):
        newer = pod("web", labels={"v": "2"})
        cluster.pods.on_add(WEB)
        cluster.pods.on_update(WEB, newer)
        queued = cluster.queue.pop()

        assert queued is not None
        assert queued.pod is newer
        cluster.queue.done(WEB.uid)

    def test_a_deleted_pod_leaves_the_queue(self, cluster: Cluster, happenings: Happenings):
        cluster.pods.on_add(WEB)
        cluster.pods.on_delete(WEB)

        assert cluster.place_of("web") is Place.OUTSIDE
        assert happenings.told == []

    @pytest.mark.parametrize("gates", [pytest.param([], id="not gated"), pytest.param(["wait"], id="gated")])
    @pytest.mark.parametrize("how", ["deleted", "nominated elsewhere"])
    def test_capacity_of_a_nomination_requeues_pods_of_equal_or_lower_priority(
        self, cluster: Cluster, how: str, gates: list[str]
    ):
        nominated = pod("web", priority=5, gates=gates, status={"nominatedNodeName": "n1"})
        elsewhere = pod("web", priority=5, gates=gates, status={"nominatedNodeName": "n2"})
        for name, priority in [("low", 0), ("equal", 5), ("high", 9)]:
            reject(cluster, name, priority=priority)
        cluster.pods.on_add(nominated)
        assert cluster.place_of("web") is (Place.GATED if gates else Place.ACTIVE)
        if how == "deleted":
            cluster.pods.on_delete(nominated)
        else:
            cluster.pods.on_update(nominated, elsewhere)

        places = [cluster.place_of(name) for name in ("low", "equal", "high")]
        assert places == [Place.BACKOFF, Place.BACKOFF, Place.UNSCHEDULABLE]

    @pytest.mark.parametrize("status", [{}, {"nominatedNodeName": "n1"}], ids=["plain", "was nominated"])
    def test_a_pod_deleted_while_assumed_frees_its_capacity_for_others(
        self, cluster: Cluster, happenings: Happenings, status: dict[str, Any]
    ):
        web = pod("web", status=status)
        cluster.pods.on_add(web)
        cluster.queue.pop()
        placed = cluster.cache.assume(web, "n1")
        cluster.nominator.delete(web.uid)  # as the scheduling cycle does
        cluster.pods.on_delete(web)

        assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE
        assert happenings.told == [("AssignedPodDelete", placed, None)]
        cluster.queue.done(WEB.uid)

    def test_the_deletion_of_an_assumed_pod_frees_its_capacity_once(
        self, cluster: Cluster, happenings: Happenings
    ):
        cluster.pods.on_add(WEB)
        cluster.queue.pop()
        cluster.cache.assume(WEB, "n1")
        cluster.pods.on_update(WEB, terminating("web"))
        cluster.pods.on_delete(terminating("web"))

        assert cluster.cache.state_of(WEB.uid) is PodState.OUTSIDE
        assert happenings.labels() == ["AssignedPodDelete"]
        cluster.queue.done(WEB.uid)


class TestNodes:
    def test_a_node_is_added_changed_and_deleted(self, cluster: Cluster, happenings: Happenings):
        old, new = node("n2"), node("n2", cpu="64", labels={"a": "b"})
        cluster.nodes.on_add(old)
        cluster.nodes.on_update(old, new)
        assert cluster.cache.table.nodes[1] is new
        cluster.nodes.on_delete(new)

        assert cluster.cache.counts()["nodes"] == 1
        assert happenings.told == [
            ("NodeAdd", None, old),
            ("NodeUpdateNodeAllocatable", old, new),
            ("NodeUpdateNodeLabel", old, new),
            ("NodeDelete", new, None),
        ]

    def test_a_heartbeat_causes_no_event(self, cluster: Cluster, happenings: Happenings):
        cluster.nodes.on_update(node("n1"), node("n1"))

        assert happenings.told == []

    def test_a_new_node_requeues_a_rejected_pod(self, cluster: Cluster):
        reject(cluster, "web")
        assert cluster.place_of("web") is Place.UNSCHEDULABLE
        cluster.nodes.on_add(node("n2"))

        assert cluster.place_of("web") is Place.BACKOFF

    def test_a_node_deletion_is_an_event_while_the_node_is_still_readable(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ):
        rows: list[int | None] = []
        monkeypatch.setattr(
            cluster.queue, "move_all", lambda *_: rows.append(cluster.cache.table.row_of("n1"))
        )
        cluster.nodes.on_delete(node("n1"))

        assert rows == [0]

    def test_the_pods_of_a_deleted_node_count_until_they_are_deleted(self, cluster: Cluster):
        cluster.pods.on_add(ON_NODE)
        cluster.nodes.on_delete(node("n1"))

        assert cluster.cache.counts() == {"nodes": 0, "pods": 1, "assumed_pods": 0}

    def test_an_undecodable_node_is_logged_and_counted_and_its_last_version_stays(
        self, cluster: Cluster, caplog: pytest.LogCaptureFixture
    ):
        cluster.nodes.on_undecodable(Identity("n1"), ObjectError("Node", "n1", "status", "odd"))

        assert cluster.cache.counts()["nodes"] == 1
        assert cluster.counts.unreadable == ["Node"]
        assert [record.getMessage() for record in caplog.records] == ["Node cannot be decoded"]


class Identity(NamedTuple):
    key: str


class TestObjects:
    @pytest.fixture
    def store(self, cluster: Cluster) -> ObjectStore:
        return cluster.cache.table.watch_kind("v1/services")

    @pytest.fixture
    def handler(self, cluster: Cluster) -> ObjectHandler:
        return ObjectHandler(cluster.parts, "v1/services")

    def test_objects_are_kept_for_the_plugins_that_need_them(
        self, handler: ObjectHandler, store: ObjectStore
    ):
        old, new = ({"metadata": {"namespace": "a", "name": "b"}, "spec": v} for v in (1, 2))
        handler.on_add(old)
        handler.on_add({"metadata": {"name": "wide"}})
        assert set(store) == {"a/b", "wide"}
        handler.on_update(old, new)
        assert store["a/b"] is new
        handler.on_delete(new)
        handler.on_delete(new)
        assert set(store) == {"wide"}

    @pytest.mark.parametrize(
        ("kind", "label"),
        [("x/v1/things", "things.v1.x"), ("storage.k8s.io/v1/csinodes", "storage.k8s.io/CSINode")],
    )
    def test_changes_of_objects_are_events(
        self, cluster: Cluster, happenings: Happenings, kind: str, label: str
    ):
        handler = ObjectHandler(cluster.parts, kind)
        one = {"metadata": {"name": "one"}}
        handler.on_add(one)
        handler.on_update(one, one)
        handler.on_delete(one)

        assert happenings.told == [
            (f"{label}Add", None, one),
            (f"{label}Update", one, one),
            (f"{label}Delete", one, None),
        ]

    def test_an_event_of_an_unnamed_kind_requeues_pods_with_wildcard_registrations(
        self, cluster: Cluster, handler: ObjectHandler
    ):
        reject(cluster, "web")
        handler.on_add({"metadata": {"name": "one"}})

        assert cluster.place_of("web") is Place.BACKOFF

    def test_an_undecodable_object_is_logged_and_counted(self, cluster: Cluster, handler: ObjectHandler):
        handler.on_undecodable(Identity("a/b"), ObjectError("Object", "a/b", "", "no JSON"))

        assert cluster.counts.unreadable == ["v1/services"]


def unreadable(name: str, **more: Any) -> ObjectError:
    """Return the decoder's error for a pod with an invalid quantity."""
    with pytest.raises(ObjectError) as error:
        decode_pod(msgspec.json.encode(pod_object(name, cpu="a little", **more)))
    return error.value


BAD = "Pod default/web: spec.containers[0].resources.requests.cpu: 'a little' is not a quantity"


class TestUndecodablePods:
    def see(self, cluster: Cluster, error: ObjectError) -> None:
        cluster.pods.on_undecodable(Identity(error.key), error)

    def test_a_pending_pod_of_ours_gets_an_event_and_a_condition(self, cluster: Cluster):
        self.see(cluster, unreadable("web"))

        [event] = cluster.api.events
        [patch] = cluster.api.patches
        assert event[:3] == Event("default/web", "Warning", "FailedScheduling", "")[:3]
        assert event.note.startswith(BAD)
        assert patch.condition is not None
        assert (patch.condition.type, patch.condition.status, patch.condition.reason) == (
            "PodScheduled",
            "False",
            "SchedulerError",
        )
        assert patch.condition.message == event.note
        assert patch.nominated_node_name is None
        assert cluster.counts.unreadable == ["Pod"]

    def test_a_pod_that_already_has_the_condition_gets_no_second_one(self, cluster: Cluster):
        self.see(cluster, unreadable("web"))
        [patch] = cluster.api.patches
        said = {"conditions": [msgspec.to_builtins(patch.condition)]}
        self.see(cluster, unreadable("web", status=said))

        assert len(cluster.api.events) == len(cluster.api.patches) == 1
        assert cluster.counts.unreadable == ["Pod", "Pod"]

    @pytest.mark.parametrize(
        "error",
        [
            pytest.param(unreadable("web", scheduler_name="other"), id="of another scheduler"),
            pytest.param(unreadable("web", node="n1"), id="on a node"),
            pytest.param(unreadable("web", status={"phase": "Failed"}), id="ended"),
            pytest.param(ObjectError("Pod", "default/web", "", "expected JSON"), id="no JSON"),
            pytest.param(ObjectError("Pod", "default/?", "metadata.name", "odd", found={"metadata": 7}), id="no name"),
            pytest.param(ObjectError("Pod", "?", "", "odd", found={}), id="empty"),
        ],
    )  # fmt: skip
    def test_a_pod_of_another_scheduler_is_only_logged_and_counted(
        self, cluster: Cluster, error: ObjectError, caplog: pytest.LogCaptureFixture
    ):
        self.see(cluster, error)

        assert cluster.api.events == cluster.api.patches == []
        assert cluster.counts.unreadable == ["Pod"]
        [record] = caplog.records
        assert (record.levelno, record.getMessage()) == (logging.WARNING, "Pod cannot be decoded")

    @pytest.mark.parametrize(
        "error", [unreadable("web"), unreadable("web", node="n2")], ids=["pending", "bound"]
    )
    def test_an_undecodable_pod_is_not_tried_by_an_earlier_version(
        self, cluster: Cluster, error: ObjectError
    ):
        cluster.pods.on_add(WEB)
        self.see(cluster, error)

        assert cluster.place_of("web") is Place.OUTSIDE

    def test_a_pod_is_requeued_once_it_can_be_decoded(self, cluster: Cluster):
        cluster.pods.on_add(WEB)
        self.see(cluster, unreadable("web"))
        mended = pod("web", labels={"mended": "yes"})
        cluster.pods.on_update(WEB, mended)

        queued = cluster.queue.get(WEB.uid)
        assert queued is not None
        assert queued.pod is mended

    def test_a_running_attempt_does_not_requeue_an_undecodable_pod(self, cluster: Cluster):
        cluster.framework.filtering._filter[0].plugin.answer = KeyError("x")  # type: ignore[attr-defined]
        cluster.api.create(WEB)
        queued = cluster.pop()
        self.see(cluster, unreadable("web"))
        run_now(cluster.schedule_one(queued))

        assert cluster.place_of("web") is Place.OUTSIDE
        assert len(cluster.api.events) == 1  # the result of the attempt concerns an outdated version
        cluster.api.delete("default/web")

    def test_capacity_nominated_for_an_undecodable_pod_is_free(self, cluster: Cluster):
        reject(cluster, "low")
        cluster.pods.on_add(pod("web", status={"nominatedNodeName": "n1"}))
        self.see(cluster, unreadable("web"))

        assert cluster.place_of("low") is Place.BACKOFF
        assert cluster.nominator.node_of(WEB.uid) == ""

    def test_the_deletion_of_an_undecodable_pod_is_accepted(self, cluster: Cluster):
        cluster.pods.on_add(WEB)
        self.see(cluster, unreadable("web"))
        cluster.pods.on_delete(WEB)

        assert cluster.place_of("web") is Place.OUTSIDE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(WEB, pod("web", labels={"a": "b"}), id="pending"),
        pytest.param(ON_NODE, pod("web", node="n1", labels={"a": "b"}), id="on a node"),
        pytest.param(WEB, ON_NODE, id="bound"),
    ],
)
def test_a_change_of_a_pod_is_compared_at_most_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, old: PodInfo, new: PodInfo
):
    cluster.pods.on_add(old)
    compared = [calls_of(monkeypatch, module, "pod_changes") for module in (event_handlers, scheduling_queue)]
    cluster.pods.on_update(old, new)

    assert [after for calls in compared for _, after in calls] == ([] if new is ON_NODE else [new])
