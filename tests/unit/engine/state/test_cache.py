"""The counted pods: assumed, confirmed, forgotten, removed, and on nodes that are added and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.state.cache import MOVES, Cache, PodState
from scheduler.objects.pod import TOPOLOGY_LABELS
from tests.support.builders import node, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.objects.pod import PodInfo

WEB = pod("web", cpu="1")


@pytest.fixture
def cache() -> Iterator[Cache]:
    cache = Cache()
    cache.add_node(node("n1"))
    cache.add_node(node("n2"))
    yield cache
    cache.check()


def milli_cpu(cache: Cache) -> dict[str, int]:
    """Node -> requests of its pods."""
    snapshot = cache.snapshot()
    return {snapshot.name_of(row): int(snapshot.requested["cpu"][row]) for row in range(snapshot.n_nodes)}


def bound(name: str, node_name: str, **more: object) -> PodInfo:
    return pod(name, node=node_name, **{"cpu": "1", **more})


def test_an_assumed_pod_counts_on_the_node_chosen_for_it(cache: Cache):
    placed = cache.assume(WEB, "n2")

    assert (placed.node_name, placed.uid) == ("n2", WEB.uid)
    assert cache.pod(WEB.uid) is placed
    assert WEB.node_name == ""
    assert cache.state_of(WEB.uid) is PodState.ASSUMED
    assert milli_cpu(cache) == {"n1": 0, "n2": 1000}
    assert cache.counts() == {"nodes": 2, "pods": 1, "assumed_pods": 1}


def test_a_confirmed_pod_counts_once_with_its_version_of_the_api_server(cache: Cache):
    cache.assume(WEB, "n2")
    cache.add_pod(bound("web", "n2", cpu="2"))

    assert cache.state_of(WEB.uid) is PodState.CONFIRMED
    assert milli_cpu(cache) == {"n1": 0, "n2": 2000}
    assert cache.counts() == {"nodes": 2, "pods": 1, "assumed_pods": 0}


def test_a_pod_found_on_another_node_than_assumed_counts_there_and_is_reported(
    cache: Cache, caplog: pytest.LogCaptureFixture
):
    cache.assume(WEB, "n2")
    cache.add_pod(bound("web", "n1"))

    assert milli_cpu(cache) == {"n1": 1000, "n2": 0}
    [record] = caplog.records
    assert record.getMessage() == "Pod is on another node than expected"
    assert (vars(record)["expected"], vars(record)["node"]) == ("n2", "n1")


def test_a_forgotten_pod_does_not_count_and_is_returned(cache: Cache):
    placed = cache.assume(WEB, "n2")

    assert cache.forget(WEB.uid) is placed
    assert cache.state_of(WEB.uid) is PodState.OUTSIDE
    assert cache.pod(WEB.uid) is None
    assert milli_cpu(cache) == {"n1": 0, "n2": 0}


def test_a_pod_that_was_confirmed_in_between_is_not_forgotten(cache: Cache):
    cache.assume(WEB, "n2")
    cache.add_pod(bound("web", "n2"))

    assert cache.forget(WEB.uid) is None
    assert milli_cpu(cache) == {"n1": 0, "n2": 1000}


def test_forgetting_an_unknown_pod_is_accepted(cache: Cache):
    assert cache.forget(WEB.uid) is None


@pytest.mark.parametrize("first", ["assumed", "confirmed"])
def test_a_pod_that_is_counted_cannot_be_assumed(cache: Cache, first: str):
    if first == "assumed":
        cache.assume(WEB, "n1")
    else:
        cache.add_pod(bound("web", "n1"))

    with pytest.raises(AssertionError, match=f"pod default/web: {first} -> assumed"):
        cache.assume(WEB, "n2")
    assert milli_cpu(cache) == {"n1": 1000, "n2": 0}


def test_a_removed_pod_does_not_count_and_is_returned(cache: Cache):
    web = bound("web", "n1")
    cache.add_pod(web)

    assert cache.remove_pod(web.uid) is web
    assert cache.remove_pod(web.uid) is None
    assert milli_cpu(cache) == {"n1": 0, "n2": 0}


def test_an_assumed_pod_can_be_removed(cache: Cache):
    cache.assume(WEB, "n1")
    cache.remove_pod(WEB.uid)

    assert cache.state_of(WEB.uid) is PodState.OUTSIDE


def test_an_update_of_a_bound_pod_replaces_its_previous_amounts(cache: Cache):
    cache.add_pod(bound("web", "n1", cpu="3"))
    cache.add_pod(bound("web", "n1", cpu="1"))

    assert milli_cpu(cache) == {"n1": 1000, "n2": 0}


def test_pods_with_a_deferred_resize_are_counted_until_the_resize_or_the_pod_is_gone(cache: Cache):
    def resizing(reason: str, node_name: str = "n1", cpu: str = "1") -> PodInfo:
        condition = {"type": "PodResizePending", "status": "True", "reason": reason}
        return bound("web", node_name, cpu=cpu, status={"conditions": [condition]})

    for version, counts in (
        (bound("web", "n1"), False),
        (resizing("Deferred"), True),
        (resizing("Infeasible"), False),
        (resizing("Deferred", cpu="2"), True),
        (bound("web", "n1", cpu="2"), False),
        (resizing("Deferred", "unknown"), True),
    ):
        cache.add_pod(version)
        assert cache.deferred_resizes == ({WEB.uid} if counts else set())
        cache.check()

    cache.recount()
    assert cache.deferred_resizes == {WEB.uid}
    cache.remove_pod(WEB.uid)
    assert cache.deferred_resizes == set()


def test_a_pod_may_be_added_before_its_node(cache: Cache):
    cache.add_pod(bound("early", "n9"))
    assert cache.counts() == {"nodes": 2, "pods": 1, "assumed_pods": 0}
    cache.check()

    cache.add_node(node("n9"))
    assert milli_cpu(cache)["n9"] == 1000


def test_a_pod_removed_before_its_node_is_added_leaves_nothing_behind(cache: Cache):
    early = bound("early", "n9")
    cache.add_pod(early)
    cache.remove_pod(early.uid)
    cache.add_node(node("n9"))

    assert milli_cpu(cache)["n9"] == 0


def test_the_pods_of_a_removed_node_count_again_after_it_is_added(cache: Cache):
    web = bound("web", "n1")
    cache.add_pod(web)
    cache.assume(pod("soon", cpu="2"), "n1")
    cache.remove_node("n1")
    cache.check()
    assert cache.counts() == {"nodes": 1, "pods": 2, "assumed_pods": 1}
    cache.remove_pod(web.uid)

    cache.add_node(node("n1"))
    assert milli_cpu(cache) == {"n2": 0, "n1": 2000}


def test_a_pod_assumed_on_a_removed_node_can_be_forgotten(cache: Cache):
    cache.assume(WEB, "n1")
    cache.remove_node("n1")

    assert cache.forget(WEB.uid) is not None
    assert cache.counts() == {"nodes": 1, "pods": 0, "assumed_pods": 0}


def test_removing_an_unknown_node_is_accepted(cache: Cache):
    cache.remove_node("n9")

    assert cache.counts()["nodes"] == 2


def test_a_newer_version_of_a_node_keeps_its_pods(cache: Cache):
    cache.add_pod(bound("web", "n1"))
    cache.add_node(node("n1", cpu="64"))

    assert milli_cpu(cache) == {"n1": 1000, "n2": 0}
    assert cache.snapshot().allocatable["cpu"].tolist() == [64000, 4000]


def test_every_state_can_be_entered_and_left():
    assert set(MOVES) == set(PodState)
    assert set().union(*MOVES.values()) == set(PodState)


class TestChangedRows:
    """The rows that are marked as changed, so that cached results are dropped."""

    def rows_changed_by(self, cache: Cache, change: Callable[[], object]) -> set[int]:
        seen = cache.table.changes.end
        change()
        return set(cache.table.changes.since(seen) or ())

    def test_a_confirmed_choice_changes_no_row(self, cache: Cache):
        cache.assume(WEB, "n2")
        confirmed = bound("web", "n2", status={"conditions": [{"type": "PodScheduled", "status": "True"}]})

        assert self.rows_changed_by(cache, lambda: cache.add_pod(confirmed)) == set()
        assert cache.pod(WEB.uid) is confirmed
        assert list(cache.snapshot().pods_on(1)) == [confirmed]

    def test_labels_that_the_api_server_copies_from_the_node_change_no_row(self, cache: Cache):
        zone, region = TOPOLOGY_LABELS
        cache.copied_labels = TOPOLOGY_LABELS
        cache.add_node(node("n2", labels={zone: "a", region: "eu", "pool": "x"}))

        chosen = cache.assume(WEB, "n2")

        confirmed = bound("web", "n2", labels={zone: "a", region: "eu"})
        counted = cache.pod(WEB.uid)
        assert counted is not None
        assert counted.labels == confirmed.labels
        assert self.rows_changed_by(cache, lambda: cache.add_pod(confirmed)) == set()
        assert (chosen.labels, chosen.node_name) == (WEB.labels, "n2"), "plugins get the pod as it is"

    @pytest.mark.parametrize("own", [{}, {TOPOLOGY_LABELS[0]: "a"}], ids=["no node labels", "equal labels"])
    def test_a_pod_that_gets_no_label_is_confirmed_without_a_change(self, cache: Cache, own: dict[str, str]):
        cache.copied_labels = TOPOLOGY_LABELS
        cache.add_node(node("n2", labels=own))
        cache.assume(pod("web", cpu="1", labels=own), "n2")

        assert self.rows_changed_by(cache, lambda: cache.add_pod(bound("web", "n2", labels=own))) == set()

    @pytest.mark.parametrize(
        "fields",
        [
            {"cpu": "2"},
            {"labels": {"app": "web"}},
            {"annotations": {"a": "b"}},
            {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
            {"affinity": {"podAntiAffinity": {}}},
        ],
        ids=lambda fields: next(iter(fields)),
    )
    def test_a_confirmation_with_other_fields_changes_its_row(self, cache: Cache, fields: dict[str, Any]):
        cache.assume(WEB, "n2")

        assert self.rows_changed_by(cache, lambda: cache.add_pod(bound("web", "n2", **fields))) == {1}

    def test_a_later_change_of_a_confirmed_pod_changes_its_row(self, cache: Cache):
        cache.add_pod(bound("web", "n2"))
        started = bound("web", "n2", status={"startTime": "2026-01-01T00:00:00Z"})

        assert self.rows_changed_by(cache, lambda: cache.add_pod(started)) == {1}
        assert list(cache.snapshot().pods_on(1)) == [started]

    def test_added_and_removed_pods_change_the_rows_of_their_nodes(self, cache: Cache):
        assert self.rows_changed_by(cache, lambda: cache.assume(WEB, "n1")) == {0}
        assert self.rows_changed_by(cache, lambda: cache.forget(WEB.uid)) == {0}
        assert self.rows_changed_by(cache, lambda: cache.add_pod(bound("db", "n2"))) == {1}
        assert self.rows_changed_by(cache, lambda: cache.add_pod(bound("db", "n1"))) == {0, 1}
        assert self.rows_changed_by(cache, lambda: cache.remove_pod(bound("db", "n1").uid)) == {0}

    def test_a_heartbeat_changes_no_row(self, cache: Cache):
        def beat(time: str, status: str = "True") -> None:
            ready = {"type": "Ready", "status": status, "lastHeartbeatTime": time}
            cache.add_node(node("n1", conditions=[ready]))

        beat("00:00")
        node_generation = cache.node_generation("n1")
        assert self.rows_changed_by(cache, lambda: beat("00:05")) == set()
        assert cache.node_generation("n1") == node_generation
        assert cache.table.nodes[0].object["status"]["conditions"][0]["lastHeartbeatTime"] == "00:05"

        assert self.rows_changed_by(cache, lambda: beat("00:10", "False")) == {0}
        assert cache.node_generation("n1") != node_generation


def test_another_version_of_an_assumed_pod_counts_until_it_is_confirmed(cache: Cache):
    placed = cache.assume(WEB, "n2")

    cache.replace(bound("web", "n2", cpu="3"))
    assert milli_cpu(cache) == {"n1": 0, "n2": 3000}
    assert cache.state_of(placed.uid) is PodState.ASSUMED

    cache.forget(placed.uid)
    assert milli_cpu(cache) == {"n1": 0, "n2": 0}


def test_only_an_assumed_pod_is_replaced_and_only_on_its_node(cache: Cache):
    with pytest.raises(AssertionError, match="is not assumed"):
        cache.replace(bound("web", "n2"))
    cache.assume(WEB, "n2")

    with pytest.raises(AssertionError, match="is assumed on n2"):
        cache.replace(bound("web", "n1"))
