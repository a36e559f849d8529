"""Groups with an exception in their cycle are retried, and nothing is lost or left behind; time is virtual."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from scheduler.engine.cycle.group_cycle import PodGroupCycle
from scheduler.engine.cycle.group_explanation import GroupLog
from scheduler.engine.cycle.group_pass import GroupPasses
from scheduler.engine.queue import Place
from scheduler.engine.queue.contents import QueueContents
from scheduler.engine.queue.scheduling_queue import SchedulingQueue
from scheduler.framework import FilterPlugin, PermitPlugin, ReservePlugin, ScorePlugin
from scheduler.loop_work import run_to_end
from tests.integration.groups.gangs import add_gang, add_group, condition, fill, members, placed
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster

RAISES = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: Raises}]}}
  pluginConfig: [{name: GangScheduling, args: {priorityFromPods: true}}]
"""


class Raises(FilterPlugin, ScorePlugin, ReservePlugin, PermitPlugin):
    """Raises where a test wants it to, and counts what is reserved."""

    name = "Raises"
    api_version = 1
    where = ""
    pod = "g-1"
    reserved: ClassVar[Counter[str]] = Counter()

    def _perhaps(self, where: str, pod: Any) -> None:
        if where == self.where and pod.name == self.pod:
            raise RuntimeError(where)

    def filter_node(self, state: Any, pod: Any, node: Any) -> None:
        if pod.name.startswith("g") and not any(each.name.startswith("low") for each in node.pods):
            self._perhaps("filter of an empty node", pod)

    def score_node(self, state: Any, pod: Any, node: Any) -> int:
        self._perhaps("score", pod)
        return 0

    def reserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.reserved[pod.name] += 1
        self._perhaps("reserve", pod)

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.reserved[pod.name] -= 1

    def permit(self, state: Any, pod: Any, node_name: str) -> None:
        self._perhaps("permit", pod)


def check_nothing_is_left(it: Cluster, daemon: Daemon, plugin: type[Raises]) -> None:
    assert not placed(it)
    assert not +plugin.reserved
    assert not daemon.parts.cache.counts()["assumed_pods"]
    daemon.parts.cache.check()
    daemon.parts.queue.check()


@pytest.mark.parametrize("where", ["score", "reserve", "permit"])
async def test_a_plugin_that_raises_for_one_member_costs_the_attempt_only(where: str, tmp_path: Path) -> None:
    class It(Raises):
        reserved: ClassVar[Counter[str]] = Counter()

    It.where = where
    async with cluster(tmp_path) as it, it.daemon(RAISES, plugins={"Raises": It}) as daemon:
        it.add_nodes(*(node_object(f"n{number}", cpu="4") for number in range(2)))
        add_gang(it, "g", 3)
        await asyncio.sleep(60)
        check_nothing_is_left(it, daemon, It)
        It.where = ""
        it.add_nodes(node_object("n2", cpu="4"))
        await it.until(lambda: len(placed(it)) == 3, seconds=400)


@pytest.mark.parametrize(
    ("part", "method"),
    [(PodGroupCycle, "_placed"), (GroupLog, "note"), (GroupPasses, "_take_in")],
    ids=["before they are bound", "when all are placed", "in the middle of a pass"],
)
async def test_an_internal_error_leaves_nothing_reserved_and_loses_no_pod(
    part: type, method: str, tmp_path: Path
) -> None:
    class It(Raises):
        reserved: ClassVar[Counter[str]] = Counter()

    original, left = getattr(part, method), 5

    def breaks(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal left
        answer = original(self, *args, **options)
        left -= 1
        if left >= 0 and (part is not GroupPasses or left < 4):
            if isinstance(answer, Coroutine):
                answer.close()
            raise RuntimeError("a mistake")
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, method, breaks)
        async with cluster(tmp_path) as it, it.daemon(RAISES, plugins={"Raises": It}) as daemon:
            it.add_nodes(node_object("n", cpu="4"))
            add_gang(it, "g", 3)
            await asyncio.sleep(0.5)
            check_nothing_is_left(it, daemon, It)
            await it.until(lambda: len(placed(it)) == 3, seconds=400)
            assert It.reserved == {"g-0": 1, "g-1": 1, "g-2": 1}


@pytest.mark.parametrize(
    ("part", "method", "at"),
    [
        (QueueContents, "pop_with", "before"),
        (SchedulingQueue, "pop_group", "before"),
        (SchedulingQueue, "pop_group", "after"),
    ],
    ids=["at one member", "before any was taken out", "when all were taken out"],
)
async def test_a_group_that_cannot_be_popped_as_a_whole_loses_no_pod(
    part: type, method: str, at: str, tmp_path: Path
) -> None:
    original, left = getattr(part, method), 3

    def breaks(self: Any, *args: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            return original(self, *args)
        if at == "after":
            run_to_end(original(self, *args))
        raise RuntimeError("a mistake")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, method, breaks)
        async with cluster(tmp_path) as it, it.daemon() as daemon:
            it.add_nodes(node_object("n", cpu="8"))
            add_group(it, "g", 3)
            it.add_pods(*members("g", 3), pod_object("alone"))
            await it.until(lambda: "alone" in placed(it), seconds=5)
            assert daemon.parts.queue.count(Place.IN_FLIGHT) == 0
            daemon.parts.queue.check()
            await it.until(lambda: len(placed(it)) == 4, seconds=400)
            daemon.parts.queue.check()


async def test_an_error_during_the_search_for_victims_is_reported(tmp_path: Path) -> None:
    class It(Raises):
        where = "filter of an empty node"
        pod = "g-0"

    async with cluster(tmp_path, kubelet=True) as it, it.daemon(RAISES, plugins={"Raises": It}):
        it.add_nodes(node_object("n", cpu="2"))
        await fill(it, 2, priority=1)
        add_gang(it, "g", 2, priority=1000)
        await it.until(lambda: condition(it, "g")[0] == "False")
        assert "filter of an empty node" in condition(it, "g")[2]
        assert placed(it) == {"low-0", "low-1"}
