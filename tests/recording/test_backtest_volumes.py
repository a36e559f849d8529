"""Claims of the pods that a backtest schedules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scheduler.testing.samples import claim, mounted, storage_class
from tests.integration.plugins.test_volumes import create, local
from tests.recording.backtests import PACKING, SPREADING, delete, material, under
from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster


async def with_volumes(it: Cluster) -> None:
    """Binds two claims to volumes of their pods' nodes; a third one was bound when its pod was created."""
    it.add_nodes(node_object("n0", cpu="4"), node_object("n1", cpu="4"))
    create(it, storage_class("local", provisioner="kubernetes.io/no-provisioner"))
    for each in range(2):
        create(it, *(local(f"on-n{node}-{each}", f"n{node}") for node in range(2)))
        create(it, claim(f"data-{each}", class_name="local"))
        it.add_pods(pod_object(f"db-{each}", cpu="1", volumes=mounted(f"data-{each}")))
        await it.until(lambda each=each: it.node_of(f"db-{each}"))
    delete(it, "db-0")
    await asyncio.sleep(40.0)
    it.add_pods(pod_object("db-0-next", cpu="1", volumes=mounted("data-0")))
    await asyncio.sleep(5.0)


def test_claims_are_bound_again_at_the_nodes_of_their_pods(tmp_path: Path) -> None:
    recorded = material(tmp_path, with_volumes, controllers=True)

    again, packed = under(recorded, SPREADING), under(recorded, PACKING)

    assert (again.moves.elsewhere, packed.moves.elsewhere) == (0, 1)
    assert [run.figures.samples[-1].in_use for run in (again, packed)] == [2, 1]
    assert (again.figures.placed, packed.figures.placed) == (3, 3)
    assert (again.held, packed.held) == (0, 0)


def test_pods_follow_claims_that_an_earlier_placement_bound(tmp_path: Path) -> None:
    async def another_daemon(it: Cluster) -> None:
        delete(it, "db-0-next")
        await asyncio.sleep(40.0)
        it.add_pods(pod_object("db-0-last", cpu="1", volumes=mounted("data-0")))
        await asyncio.sleep(5.0)

    recorded = material(tmp_path, with_volumes, another_daemon, controllers=True, only_last=True)

    packed = under(recorded, PACKING)

    assert (packed.moves.same, packed.moves.elsewhere, packed.held) == (1, 0, 1)
