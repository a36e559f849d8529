"""A rejection of this scheduler's pod by a kubelet is detected and reported, and its node is avoided for a while."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.explanation import explain
from scheduler.engine.cycle.kubelet_rejections import is_rejected
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.errors import ApiError
from tests.support import scripted_plugins as puppets
from tests.support.builders import node, pod
from tests.unit.engine.cycle.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.objects.pod import PodInfo

OUT_OF_CPU = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: no room"}


class Scene(Cluster):
    """A cluster in which kubelets may reject pods.

    Attributes:
        reasons: the counted reasons.
        asked: the pods that were read from the API server.
    """

    def __init__(self, *plugins: Any, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
        super().__init__(*plugins, nodes=nodes)
        self.asked: list[str] = []
        read_pod = self.api.read_pod

        async def noting(namespace: str, name: str) -> PodInfo | None:
            self.asked.append(name)
            return await read_pod(namespace, name)

        self.api.read_pod = noting  # type: ignore[method-assign]

    @property
    def reasons(self) -> Counter[str]:
        return Counter(self.counts.kubelets)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.rejections.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def leave(self, before: PodInfo, after: PodInfo | None, *, placed: bool = True) -> None:
        """Let a pod of this scheduler leave the watch, and set its current version in the API server."""
        if placed and before.node_name:
            self.cache.assume(before, before.node_name)
        self.api.create(before)
        self.api.delete(before.key)
        if after is not None:
            self.api.pods[after.key] = after
        await asyncio.sleep(1)

    def avoided(self) -> dict[str, str]:
        """Node -> reason of its pause."""
        snapshot = self.cache.snapshot()
        rows = self.cache.pauses.rows(snapshot, at=self.clock.monotonic())
        return {snapshot.name_of(row): why for row, why in rows.items()}


def likes(name: str) -> puppets.NodeScore:
    """Scores one node higher than others."""
    return puppets.NodeScore("Likes", lambda _state, _pod, node: 100 if node.name == name else 0)


def bound(**fields: Any) -> PodInfo:
    return pod("web", **{"node": "n1", "status": {"phase": "Pending"}, **fields})


async def test_a_kubelet_rejection_is_counted_and_logged_and_its_node_avoided():
    scene = Scene()
    async with scene.watching():
        await scene.leave(bound(), bound(status=OUT_OF_CPU))

    assert scene.reasons == {"OutOfcpu": 1}
    assert scene.notes("web", "RejectedByKubelet") == [
        "node n1 rejected the pod after it was bound: OutOfcpu: no room; other nodes are preferred for 5 s"
    ]
    assert scene.avoided() == {"n1": "its kubelet rejected pod default/web: OutOfcpu: no room"}


async def test_without_pauses_a_rejection_is_still_counted_and_logged():
    scene = Scene()
    scene.cache.pauses.configure(initial_seconds=0, max_seconds=0)
    async with scene.watching():
        await scene.leave(bound(), bound(status=OUT_OF_CPU))

    assert scene.reasons == {"OutOfcpu": 1}
    assert scene.notes("web", "RejectedByKubelet") == [
        "node n1 rejected the pod after it was bound: OutOfcpu: no room"
    ]
    assert scene.avoided() == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (bound(), None),
        (bound(), bound(uid="another", status=OUT_OF_CPU)),
        (bound(), bound(status={"phase": "Failed", "reason": "DeadlineExceeded", "message": "too late"})),
        (bound(), bound(status={"phase": "Succeeded"})),
    ],
    ids=["deleted at once", "deleted and recreated", "failed otherwise", "done quickly"],
)
async def test_a_pod_that_left_for_another_reason_is_no_rejection(before: PodInfo, after: PodInfo | None):
    scene = Scene()
    async with scene.watching():
        await scene.leave(before, after)

    assert scene.asked == ["web"]
    assert scene.reasons == {}
    assert scene.avoided() == {}


@pytest.mark.parametrize(
    "before",
    [bound(scheduler_name="other"), bound(status={"phase": "Running"}), pod("web")],
    ids=["another scheduler's", "ran", "never bound"],
)
async def test_pods_that_cannot_have_been_rejected_are_not_read(before: PodInfo):
    scene = Scene()
    async with scene.watching():
        await scene.leave(before, bound(status=OUT_OF_CPU))

    assert scene.asked == []


async def test_a_standby_reads_no_pods():
    scene = Scene()
    scene.is_leading = False
    async with scene.watching():
        await scene.leave(bound(), bound(status=OUT_OF_CPU))

    assert scene.asked == []


async def test_a_pod_created_on_its_node_is_ignored():
    scene = Scene()
    async with scene.watching():
        await scene.leave(bound(), bound(status=OUT_OF_CPU), placed=False)

    assert (scene.asked, scene.reasons, scene.avoided()) == ([], {}, {})


async def test_a_pod_bound_to_our_node_by_another_scheduler_is_ignored():
    scene = Scene()
    async with scene.watching():
        scene.cache.assume(pod("web"), "n1")
        scene.api.create(bound())
        scene.cache.forget(pod("web").uid)  # because the Binding was rejected
        await scene.leave(bound(), bound(status=OUT_OF_CPU), placed=False)

    assert scene.asked == []


async def test_a_pod_bound_to_another_node_by_another_scheduler_is_ignored():
    scene = Scene()
    async with scene.watching():
        scene.cache.assume(pod("web"), "n2")
        await scene.leave(bound(), bound(status=OUT_OF_CPU), placed=False)

    assert scene.asked == []


async def test_a_node_is_not_paused_for_a_problem_of_the_pod_alone():
    scene = Scene()
    status = {"phase": "Failed", "reason": "SysctlForbidden", "message": "Pod was rejected: forbidden sysctl"}
    async with scene.watching():
        await scene.leave(bound(), bound(status=status))

    assert scene.reasons == {"SysctlForbidden": 1}
    assert scene.notes("web", "RejectedByKubelet") == [
        "node n1 rejected the pod after it was bound: SysctlForbidden: forbidden sysctl"
    ]
    assert scene.avoided() == {}


async def test_a_pod_without_an_observed_binding_is_read():
    scene = Scene()
    async with scene.watching():
        scene.api.create(pod("web"))
        scene.cache.assume(pod("web"), "n1")
        scene.api.delete("default/web")
        scene.api.pods["default/web"] = bound(status=OUT_OF_CPU)
        await asyncio.sleep(1)

    assert scene.reasons == {"OutOfcpu": 1}
    scene.queue.delete(pod("web"))


async def test_an_unreadable_pod_does_not_stop_the_reads(caplog: pytest.LogCaptureFixture):
    scene = Scene()
    scene.api.reads = [ApiError(403, "Forbidden", "no")]
    async with scene.watching():
        await scene.leave(bound(), bound(status=OUT_OF_CPU))
        del scene.api.pods["default/web"]
        await scene.leave(bound(), bound(status=OUT_OF_CPU))

    assert scene.reasons == {"OutOfcpu": 1}
    assert "Cannot determine whether the kubelet rejected the pod" in caplog.text


async def rejected_scene() -> Scene:
    scene = Scene()
    async with scene.watching():
        await scene.leave(bound(), bound(status=OUT_OF_CPU))
    assert scene.avoided()
    return scene


async def test_a_pause_continues_after_pods_leave_since_others_want_the_same_capacity():
    scene = await rejected_scene()
    await scene.leave(pod("old", node="n1", status={"phase": "Running"}), None)

    assert scene.avoided()


async def test_a_pause_ends_when_the_node_changes_and_not_with_a_heartbeat():
    scene = await rejected_scene()
    scene.nodes.on_update(node("n1"), node("n1"))
    assert scene.avoided()

    scene.nodes.on_update(node("n1"), node("n1", cpu="64"))
    assert scene.avoided() == {}


async def test_a_pause_ends_with_the_deletion_of_the_node():
    scene = await rejected_scene()
    scene.nodes.on_delete(node("n1"))
    scene.nodes.on_add(node("n1"))

    assert scene.avoided() == {}


async def test_pods_avoid_a_paused_node_and_use_it_again_afterwards():
    scene = Scene(likes("n1"))
    async with scene.running():
        scene.cache.pauses.rejected("n1", "why", at=scene.clock.monotonic())
        scene.api.create(pod("first"))
        await scene.until(lambda: scene.node_of("first"))
        await asyncio.sleep(5)
        scene.api.create(pod("second"))
        await scene.until(lambda: scene.node_of("second"))

    assert (scene.node_of("first"), scene.node_of("second")) == ("n2", "n1")


async def test_an_avoided_node_is_chosen_at_once_if_no_other_node_fits():
    scene = Scene(nodes=("n1",))
    async with scene.running():
        scene.cache.pauses.rejected("n1", "why", at=scene.clock.monotonic())
        scene.api.create(pod("web"))
        await scene.until(lambda: scene.node_of("web") == "n1", seconds=1)


def test_an_avoided_node_is_explained_as_feasible_and_unranked():
    cluster = Cluster(likes("n1"), nodes=("n1", "n2", "n3"))
    snapshot = cluster.cache.snapshot()
    decision = schedule_pod(
        cluster.framework,
        pod("web"),
        snapshot,
        nominated={},
        random=Random(1),
        avoided={0: "why"},
    )

    assert decision.node_name != "n1"
    nodes = explain(decision, snapshot.names)["nodes"]
    assert nodes["n1"] == {"feasible": True, "avoided": "why"}
    assert nodes["n2"] == {"feasible": True, "scores": {"Likes": 0}, "total": 0}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (OUT_OF_CPU, True),
        ({"phase": "Failed", "reason": "OutOfpods", "message": ""}, True),
        ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "Pod Node had no room"}, True),
        ({"phase": "Failed", "reason": "NodeAffinity", "message": "Pod Predicate NodeAffinity failed"}, True),
        (
            {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no zone"},
            True,
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}, False),
        ({"phase": "Failed"}, False),
        ({"phase": "Pending", "reason": "OutOfcpu"}, False),
    ],
    ids=["today", "no message", "device", "older", "manager", "evicted", "failed by itself", "not failed"],
)
def test_the_conditions_of_a_kubelet_rejection(status: dict[str, str], expected: bool):
    assert is_rejected(bound(status=status)) is expected


def test_a_pod_without_a_node_was_not_rejected_by_a_kubelet():
    assert not is_rejected(pod("web", status=OUT_OF_CPU))
