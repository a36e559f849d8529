"""Groups that change many times a second are never bound below their size and never stuck; time is virtual."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.groups.test_coscheduling import (
    AS_QUEUE_SORT,
    KINDS,
    kinds_served,
    member,
    members,
    placed,
    pod_group,
)
from tests.support.builders import node_object

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

FLIPS = 400
GROUPS = ("g", "h", "i")


def move(it: Cluster, kind: str, name: str, group: str) -> None:
    """Make a pod a member of another group."""
    metadata = member(kind, group, name)["metadata"]
    patch: dict[str, Any] = {each: metadata[each] for each in ("labels", "annotations") if metadata.get(each)}
    it.server.store.patch("pods", name, {"metadata": patch})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
async def test_pods_that_change_their_group_are_bound_once_a_group_is_complete(
    tmp_path: Path, kind: str, seed: int
) -> None:
    """Five pods move among three groups of three, of which none ever has more than two of them, until they stop."""
    draw = Random(seed)
    async with kinds_served(tmp_path) as it, it.daemon(AS_QUEUE_SORT) as daemon:
        it.add_nodes(node_object("n", cpu="8"))
        for name in GROUPS:
            it.server.store.create(kind, pod_group(kind, name, 3))
        group_of = {f"p{number}": GROUPS[number % 3] for number in range(5)}
        it.add_pods(*(member(kind, group, name) for name, group in group_of.items()))
        for _ in range(FLIPS):
            name, group = draw.choice(sorted(group_of)), draw.choice(GROUPS)
            if Counter(group_of.values())[group] < 2:
                move(it, kind, name, group)
                group_of[name] = group
            await asyncio.sleep(draw.uniform(0, 0.02))
        await asyncio.sleep(5)
        assert not placed(it)

        for name in ("p0", "p1", "p2"):
            move(it, kind, name, "g")
        for name in ("p3", "p4"):
            move(it, kind, name, "h")
        await it.until(lambda: placed(it) == {"p0", "p1", "p2"}, seconds=20)
        await asyncio.sleep(30)
        assert placed(it) == {"p0", "p1", "p2"}
        daemon.parts.cache.groups.check()

        move(it, kind, "p0", "h")  # one that runs counts where its label says
        await it.until(lambda: len(placed(it)) == 5, seconds=20)
        daemon.parts.cache.groups.check()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_recreated_pod_group_counts_with_its_new_spec(tmp_path: Path, kind: str) -> None:
    draw = Random(1)
    async with kinds_served(tmp_path) as it, it.daemon(AS_QUEUE_SORT) as daemon:
        it.add_nodes(node_object("n", cpu="8"))
        it.add_pods(*members(kind, "g", 3))
        for _ in range(FLIPS // 2):
            it.server.store.create(kind, pod_group(kind, "g", draw.randint(4, 9)))
            await asyncio.sleep(draw.uniform(0, 0.02))
            it.server.store.delete(kind, "g", "default")
            await asyncio.sleep(draw.uniform(0, 0.02))
        await asyncio.sleep(5)
        assert not placed(it)

        it.server.store.create(kind, pod_group(kind, "g", 3))
        await it.until(lambda: len(placed(it)) == 3, seconds=20)
        daemon.parts.cache.groups.check()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_size_that_changes_constantly_leaves_no_pod_stuck(tmp_path: Path, kind: str) -> None:
    """There is room for two of the three pods: those are bound when the size is 2 for a while, and not before."""
    draw = Random(1)
    async with kinds_served(tmp_path) as it, it.daemon(AS_QUEUE_SORT) as daemon:
        it.add_nodes(node_object("n", cpu="2"))
        it.server.store.create(kind, pod_group(kind, "g", 3))
        it.add_pods(*members(kind, "g", 3))
        for _ in range(FLIPS):
            it.server.store.patch(
                kind, "g", {"spec": {"minMember": draw.choice((3, 4, 9))}}, namespace="default"
            )
            await asyncio.sleep(draw.uniform(0, 0.02))
        await asyncio.sleep(5)
        assert not placed(it)

        it.server.store.patch(kind, "g", {"spec": {"minMember": 2}}, namespace="default")
        await it.until(lambda: len(placed(it)) == 2, seconds=20)
        it.server.store.patch(kind, "g", {"spec": {"minMember": 5}}, namespace="default")
        it.add_nodes(node_object("m", cpu="2"))
        await asyncio.sleep(20)
        assert len(placed(it)) == 2

        it.add_nodes(node_object("o", cpu="2"))
        it.add_pods(*(member(kind, "g", f"more-{number}") for number in range(2)))
        await it.until(lambda: len(placed(it)) == 5, seconds=20)
        daemon.parts.cache.groups.check()
