"""Trees of CompositePodGroups and PodGroups: their shape, their quorum, and the events that help their pods."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement, count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.pod_groups.gang_scheduling import GangArgs, GangScheduling
from plugins.preemption.ranking import VictimUnits
from scheduler.configuration.feature_gates import features_of
from scheduler.engine.state.pod_groups import PodGroups
from scheduler.errors import ObjectError
from scheduler.framework import EventResource, PodGroup, QueueingHint
from scheduler.loop_work import run_to_end
from scheduler.objects.pod_group import COMPOSITE_POD_GROUPS, POD_GROUPS, GroupKey
from scheduler.snapshot import ObjectStore
from scheduler.testing.fakes import FakeActivator, FakeApi, FakeBackground, FakeWaitingPods, ManualClock
from tests.support.builders import node, pod
from tests.support.snapshots import snapshot_of


def leaf_key(name: str) -> GroupKey:
    return GroupKey(POD_GROUPS, "default", name)


def composite_key(name: str) -> GroupKey:
    return GroupKey(COMPOSITE_POD_GROUPS, "default", name)


class Forest:
    """Objects of groups, and the plugin that reads them."""

    def __init__(self, **gates: bool) -> None:
        self.stores = {POD_GROUPS: ObjectStore(), COMPOSITE_POD_GROUPS: ObjectStore()}
        self.members = PodGroups()
        objects: Any = SimpleNamespace(objects=lambda kind: self.stores[kind])
        self.plugin = GangScheduling(
            args=GangArgs(),
            objects=objects,
            members=self.members,
            features=features_of({"CompositePodGroup": True, **gates}, "1.37"),
            background=FakeBackground(),
            statuses=FakeApi(),
            clock=ManualClock(),
            waiting_pods=FakeWaitingPods(),
            activator=FakeActivator(),
        )

    def add(self, key: GroupKey, minimum: int = 0, parent: str = "", **spec: Any) -> dict[str, Any]:
        field = "minCount" if key.kind == POD_GROUPS else "minGroupCount"
        spec["schedulingPolicy"] = {"gang": {field: minimum}} if minimum else {"basic": {}}
        if parent:
            spec["parentCompositePodGroupName"] = parent
        metadata = {"name": key.name, "namespace": key.namespace, "uid": f"uid-{key.name}"}
        obj = {"metadata": metadata, "spec": spec}
        self.stores[key.kind][key.key] = obj
        return obj

    def add_pods(self, group: str, count: int, node_name: str = "") -> list[Any]:
        pods = [
            pod(f"{group}-{number}", node=node_name, scheduling_group={"podGroupName": group})
            for number in range(count)
        ]
        for each in pods:
            (self.members.note_placed if node_name else self.members.note_pending)(each)
        return pods

    def gate(self, group: str) -> str:
        """Return why the pods of a group are gated; "" if they are not."""
        status = self.plugin.pre_enqueue(pod("any", scheduling_group={"podGroupName": group}))
        return "" if status is None else status.message


def test_the_children_of_a_group_are_in_the_order_of_their_names() -> None:
    forest = Forest()
    forest.add(leaf_key("c"), 1, "root")
    forest.add(composite_key("b"), 1, "root")
    forest.add(leaf_key("a"), 1, "b")
    forest.add(composite_key("root"), 2)
    forest.add(leaf_key("other"), 1)

    tree = forest.plugin.tree(composite_key("root"))

    assert tree is not None
    assert [child.key for child in tree.children] == [composite_key("b"), leaf_key("c")]
    assert [leaf.key.name for leaf in tree.leaves] == ["a", "c"]
    assert forest.plugin.leaf_keys(leaf_key("c")) == [leaf_key("a"), leaf_key("c")]
    assert [group.key.name for group in forest.plugin.lineage(leaf_key("a"))] == ["a", "b", "root"]
    assert forest.plugin.root_key(leaf_key("other")) == leaf_key("other")


def test_a_tree_follows_its_objects() -> None:
    forest = Forest()
    forest.add(composite_key("root"), 1)
    forest.add(leaf_key("a"), 1, "root")
    before = forest.plugin.tree(composite_key("root"))
    forest.add(leaf_key("b"), 1, "root")
    after = forest.plugin.tree(composite_key("root"))
    del forest.stores[POD_GROUPS]["default/a"]
    last = forest.plugin.tree(composite_key("root"))

    found = [[leaf.key.name for leaf in tree.leaves] for tree in (before, after, last) if tree is not None]
    assert found == [["a"], ["a", "b"], ["b"]]


def test_a_broken_tree_gates_its_pods_with_the_missing_object() -> None:
    forest = Forest()
    forest.add_pods("a", 1)
    assert forest.gate("a") == (
        "failed to build hierarchy snapshot: pod group object not found in state for podgroup/default/a"
    )
    forest.add(leaf_key("a"), 1, "middle")
    forest.add(composite_key("middle"), 1, "root")
    assert forest.gate("a") == (
        "failed to build hierarchy snapshot: composite pod group object not found in state for "
        "compositepodgroup/default/root"
    )
    forest.add(composite_key("root"), 1)
    assert forest.gate("a") == ""


def test_a_tree_has_at_most_four_levels() -> None:
    """By kube-scheduler v1.37, WorkloadMaxTreeDepth, which counts the level of the PodGroups."""
    forest = Forest()
    forest.add(leaf_key("leaf"), 1, "three")
    forest.add(composite_key("three"), 1, "two")
    forest.add(composite_key("two"), 1, "one")
    forest.add(composite_key("one"), 1)
    forest.add_pods("leaf", 1)
    assert forest.gate("leaf") == ""

    forest.add(composite_key("one"), 1, "root")
    forest.add(composite_key("root"), 1)
    assert forest.gate("leaf").startswith("failed to build hierarchy snapshot: the hierarchy has more than 4")
    with pytest.raises(ObjectError):
        forest.plugin.tree(composite_key("root"))


def test_a_cycle_gates_the_pods_below_it() -> None:
    forest = Forest()
    forest.add(leaf_key("a"), 1, "one")
    forest.add(composite_key("one"), 1, "two")
    forest.add(composite_key("two"), 1, "one")
    forest.add_pods("a", 1)

    assert "or a cycle" in forest.gate("a")
    assert forest.plugin.leaf_keys(leaf_key("a")) == [leaf_key("a")]


@pytest.mark.parametrize(
    ("minimum", "counts", "is_gated"),
    [
        pytest.param(2, {"a": 2, "b": 3}, False, id="both groups"),
        pytest.param(2, {"a": 2, "b": 2}, True, id="one group with too few pods"),
        pytest.param(1, {"a": 2}, False, id="one group is enough"),
        pytest.param(0, {"b": 3}, False, id="a basic group needs one"),
        pytest.param(0, {"a": 1, "b": 2}, True, id="a basic group without any"),
        pytest.param(3, {"a": 9, "b": 9}, True, id="more groups than there are"),
    ],
)
def test_pods_wait_until_enough_pods_of_enough_groups_exist(
    minimum: int, counts: dict[str, int], *, is_gated: bool
) -> None:
    forest = Forest()
    forest.add(composite_key("root"), minimum)
    forest.add(leaf_key("a"), 2, "root")
    forest.add(leaf_key("b"), 3, "root")
    for group, number in counts.items():
        forest.add_pods(group, number)

    waiting = 'waiting for composite pod group "root" tree to meet quorum'
    assert forest.gate("a") == forest.gate("b") == (waiting if is_gated else "")


def test_without_the_gate_a_group_is_a_root() -> None:
    forest = Forest(CompositePodGroup=False)
    forest.add(leaf_key("a"), 2, "root")
    forest.add_pods("a", 2)

    assert forest.gate("a") == ""
    assert forest.plugin.leaf_keys(leaf_key("a")) == (leaf_key("a"),)
    assert COMPOSITE_POD_GROUPS not in forest.plugin.needs.kinds
    assert GroupKey(POD_GROUPS, "default", "a") == forest.plugin.root_key(leaf_key("a"))


def test_a_pod_or_object_of_a_tree_helps_the_pods_of_all_its_groups() -> None:
    forest = Forest()
    root = forest.add(composite_key("root"), 2)
    forest.add(leaf_key("a"), 1, "root")
    b = forest.add(leaf_key("b"), 1, "root")
    forest.add(leaf_key("other"), 1)
    waiting = forest.add_pods("a", 1)[0]
    added = {each.event.resource: each for each in forest.plugin.events()}
    of_pod, of_leaf = added[EventResource.POD], added[EventResource.POD_GROUP]
    of_composite = added[EventResource.COMPOSITE_POD_GROUP]
    new = forest.add_pods("b", 1)[0]

    for event, obj in ((of_pod, new), (of_leaf, b), (of_composite, root)):
        assert event.hint is not None
        assert event.event_keys is not None
        assert event.waits_for_keys is not None
        assert event.hint(waiting, None, obj) is QueueingHint.QUEUE
        assert set(event.event_keys(None, obj) or ()) == {leaf_key("a"), leaf_key("b")}
        assert event.waits_for_keys(waiting) == (leaf_key("a"),)
    assert of_pod.hint is not None
    assert of_pod.hint(waiting, None, forest.add_pods("other", 1)[0]) is QueueingHint.SKIP


@st.composite
def trees(draw: st.DrawFn) -> PodGroup:
    """Draw a tree of two or three levels, of which each group has enough children."""
    numbers = count()

    def leaf() -> PodGroup:
        return PodGroup(leaf_key(f"g{next(numbers)}"), "uid", draw(st.integers(0, 2)))

    def composite(children: list[PodGroup]) -> PodGroup:
        minimum, name = draw(st.integers(0, len(children))), composite_key(f"c{next(numbers)}")
        return PodGroup(name, "uid", minimum, is_composite=True, children=tuple(children))

    def below() -> PodGroup:
        size = draw(st.integers(0, 2))
        return composite([leaf() for _ in range(size)]) if size else leaf()

    return composite([below() for _ in range(draw(st.integers(1, 2)))])


@given(trees(), st.data())
def test_the_fewest_missing_pods_are_those_of_the_smallest_addition(
    tree: PodGroup, data: st.DataObject
) -> None:
    keys = [leaf.key for leaf in tree.leaves]
    counts = Counter({key: data.draw(st.integers(0, 2)) for key in keys})
    fewest = tree.fewest(counts)

    for size in range(fewest + 1):
        additions = combinations_with_replacement(keys, size)
        can_be_met = any(tree.has_quorum(counts + Counter(added)) for added in additions)
        assert can_be_met == (size == fewest)


def test_the_highest_group_that_is_disrupted_as_a_whole_is_the_unit() -> None:
    """By kube-scheduler v1.37, preemption/types.go, getHighestAllAncestor and getPodPriority; util.go, MoreImportantVictim."""
    forest = Forest()
    whole = {"disruptionMode": {"all": {}}}
    forest.add(composite_key("root"), 1, priority=5)
    forest.add(composite_key("middle"), 1, "root", **whole)
    forest.add(leaf_key("a"), 1, "middle", **whole)
    forest.add(leaf_key("b"), 1, "middle")
    forest.add(leaf_key("c"), 1, "root", **whole)
    forest.add(leaf_key("d"), 1, "root")
    there = [each for group in "abd" for each in forest.add_pods(group, 2, "n")]
    # More pods than those of `middle`: a tree is more important than a group of any size.
    there += forest.add_pods("c", 5, "n")
    units = VictimUnits(forest.members, forest.plugin)  # type: ignore[arg-type]

    found = run_to_end(units.of(snapshot_of(node("n"), pods=there)))
    ranked = sorted(found, key=lambda unit: unit.importance)

    assert [sorted(each.name for each in unit.pods) for unit in ranked[:2]] == [
        ["a-0", "a-1", "b-0", "b-1"],
        ["c-0", "c-1", "c-2", "c-3", "c-4"],
    ]
    assert sorted(unit.pods[0].name for unit in ranked[2:]) == ["d-0", "d-1"]
    assert {unit.priority for unit in found} == {5}
    assert [unit.is_composite for unit in ranked] == [True, False, False, False]
    (on_node,) = units.on_node(there[:2])
    assert len(on_node.pods) == 4
    assert on_node.is_composite
