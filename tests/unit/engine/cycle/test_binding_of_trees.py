"""The joint binding of a tree of groups: no pod is bound before enough pods of enough groups can be bound."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.engine.cycle.group_binding import GroupBinding, GroupRelease
from scheduler.framework import PodGroup
from scheduler.objects.pod_group import COMPOSITE_POD_GROUPS, POD_GROUPS, GroupKey
from tests.support.builders import pod

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

A, B = (GroupKey(POD_GROUPS, "default", name) for name in "ab")


def tree(min_groups: int) -> PodGroup:
    leaves = tuple(PodGroup(key, key.name, 2, is_entity=True) for key in (A, B))
    key = GroupKey(COMPOSITE_POD_GROUPS, "default", "root")
    return PodGroup(key, "root", min_groups, is_entity=True, is_composite=True, children=leaves)


def pods() -> dict[str, PodInfo]:
    names = ("a-0", "a-1", "b-0", "b-1")
    return {name: pod(name, scheduling_group={"podGroupName": name[0]}) for name in names}


def binding_of(min_groups: int, placed: dict[GroupKey, int]) -> tuple[GroupBinding, dict[str, PodInfo]]:
    members = pods()
    release: Any = GroupRelease(None, None, None)  # type: ignore[arg-type]
    uids = {each.uid: each.group for each in members.values() if each.group is not None}
    return GroupBinding(tree(min_groups), uids, placed, release), members


@pytest.mark.parametrize(
    ("min_groups", "placed", "ready", "is_decided"),
    [
        pytest.param(2, {}, ["a-0", "a-1", "b-0"], False, id="a pod of the second group is missing"),
        pytest.param(2, {}, ["a-0", "a-1"], False, id="all pods of the second group are missing"),
        pytest.param(2, {}, ["a-0", "b-0", "b-1", "a-1"], True, id="all"),
        pytest.param(1, {}, ["a-0", "b-0"], False, id="one group is enough, but none is complete"),
        pytest.param(1, {}, ["b-0", "b-1"], True, id="one group is enough"),
        pytest.param(2, {A: 2}, ["a-0", "b-0"], False, id="one group is on nodes already"),
        pytest.param(2, {A: 2, B: 1}, ["a-0"], True, id="only one pod was missing"),
    ],
)
async def test_no_pod_is_bound_before_enough_groups_are_ready(
    min_groups: int, placed: dict[GroupKey, int], ready: list[str], *, is_decided: bool
) -> None:
    binding, members = binding_of(min_groups, placed)
    waiting = [asyncio.create_task(binding.wait_ready(members[name], lambda: True)) for name in ready]
    await asyncio.sleep(1)
    assert [each.done() for each in waiting] == [is_decided] * len(ready)
    assert all(each.result().is_success for each in waiting if each.done())
    for each in waiting:
        each.cancel()


async def test_pods_that_are_gone_do_not_count() -> None:
    binding, members = binding_of(1, {})
    gone = asyncio.create_task(binding.wait_ready(members["a-0"], lambda: False))
    other = asyncio.create_task(binding.wait_ready(members["a-1"], lambda: True))
    await asyncio.sleep(1)
    assert not gone.done()
    assert not other.done()
    last = [asyncio.create_task(binding.wait_ready(members[name], lambda: True)) for name in ("b-0", "b-1")]
    await asyncio.sleep(1)
    assert all(each.done() and each.result().is_success for each in (other, *last))


async def test_all_pods_go_back_once_too_few_groups_are_left() -> None:
    binding, members = binding_of(2, {})
    waiting = asyncio.create_task(binding.wait_ready(members["a-0"], lambda: True))
    await asyncio.sleep(0)
    assert not binding.lost(members["b-1"], "its volume cannot be attached")
    status = await waiting
    assert binding.is_given_up
    assert status.message.endswith("too few members can be bound: pod b-1: its volume cannot be attached")


async def test_the_loss_of_a_group_that_is_not_needed_does_no_harm() -> None:
    binding, members = binding_of(1, {})
    binding.lost(members["b-1"], "why")
    ready = [asyncio.create_task(binding.wait_ready(members[name], lambda: True)) for name in ("a-0", "a-1")]
    await asyncio.sleep(1)
    assert [each.result().is_success for each in ready] == [True, True]
