"""The numbers of waiting pods by reason code: they follow the queue, and are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.queue import contents
from scheduler.engine.queue.contents import MOST_NAMESPACES
from scheduler.framework.events import NODE_ADD
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import PROFILE, Cluster

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

CPU, TAINT = ("InsufficientCPU", "Fit"), ("UntoleratedTaint", "Taints")


def reject(cluster: Cluster, each: PodInfo, *codes: tuple[str, str], plugins: Any = ("Fit",)) -> None:
    """Add a pod, and let its first attempt be rejected for some reason codes."""
    cluster.queue.add(each)
    cluster.queue.add_unschedulable(
        cluster.pop(), unschedulable_plugins=plugins, reason_codes=frozenset(codes)
    )
    cluster.queue.check()


def key(code: tuple[str, str], namespace: str = "default") -> tuple[str, str, str, str]:
    return (*code, namespace, PROFILE)


def test_a_waiting_pod_counts_for_each_of_its_causes_until_it_is_tried(cluster: Cluster) -> None:
    reject(cluster, pod("web"), CPU, TAINT)
    reject(cluster, pod("db"), CPU)
    assert cluster.queue.rejections_by_code == {key(CPU): 2, key(TAINT): 1}

    cluster.queue.activate(["uid-of-default-web"])
    assert cluster.queue.rejections_by_code[key(CPU)] == 2
    cluster.pop()

    assert cluster.queue.rejections_by_code == {key(CPU): 1}
    cluster.queue.check()


def test_a_pod_that_leaves_the_queue_is_not_counted_and_its_counter_disappears(cluster: Cluster) -> None:
    reject(cluster, pod("web"), CPU)
    cluster.queue.move_all(NODE_ADD, None, node("n"))
    cluster.queue.delete(pod("web"))

    assert cluster.queue.rejections_by_code == {}
    cluster.queue.check()


def test_a_rejection_without_a_plugin_counts_too(cluster: Cluster) -> None:
    reject(cluster, pod("web"), ("NoNodes", ""), plugins=())

    assert cluster.queue.rejections_by_code == {key(("NoNodes", "")): 1}
    assert cluster.queue.rejections == {}


def test_the_causes_of_the_last_attempt_replace_those_before(cluster: Cluster) -> None:
    reject(cluster, pod("web"), CPU)
    cluster.queue.activate(["uid-of-default-web"])
    cluster.queue.add_unschedulable(cluster.pop(), is_error=True)

    assert cluster.queue.rejections_by_code == {}


def test_a_gated_pod_counts_for_its_gate(cluster: Cluster) -> None:
    cluster.queue.add(pod("web", gates=("example.com/quota",)))

    assert cluster.queue.rejections_by_code == {key(("Gates", "Gates")): 1}


def test_the_pods_of_further_namespaces_count_as_other_until_a_namespace_has_none(cluster: Cluster) -> None:
    many = [pod("web", namespace=f"team-{number:03}") for number in range(MOST_NAMESPACES)]
    for each in many:
        reject(cluster, each, CPU)
    late, later = pod("late", namespace="team-late"), pod("later", namespace="team-later")
    reject(cluster, late, CPU, TAINT)
    assert len(cluster.queue.rejections_by_code) == MOST_NAMESPACES + 2
    assert cluster.queue.rejections_by_code[key(CPU, "other")] == 1

    cluster.queue.delete(many[7])
    reject(cluster, later, CPU)
    cluster.queue.delete(late)

    found = cluster.queue.rejections_by_code
    assert found[key(CPU, "team-later")] == 1
    assert key(CPU, "other") not in found
    assert key(CPU, "team-007") not in found
    cluster.queue.check()


def test_too_many_codes_of_a_plugin_count_as_one(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_MOST_BY_CODE", 3)
    for number in range(9):
        reject(cluster, pod(f"web-{number}"), (f"Code{number}", "Fit"))

    found = cluster.queue.rejections_by_code
    assert found[("other", "other", "other", PROFILE)] == 6
    assert len(found) == 4
    cluster.queue.check()
