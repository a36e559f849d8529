"""No Binding is sent after the renew deadline, by any binder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.errors import LeadershipLostError
from scheduler.framework import BindPlugin, PreBindPlugin, Sleep, Status
from tests.support import frozen_processes as freezing
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.extender_server import scripted_extender
from tests.support.replicas import replica

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.framework import CycleState
    from scheduler.objects.pod import PodInfo

PRE_BIND_SECONDS = 3.0
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PROFILE = "profiles:\n- schedulerName: custom-scheduler\n  plugins:\n    multiPoint: {enabled: [{name: Preparing}]}\n"
OWN_WAY = "    bind: {enabled: [{name: OwnWay}], disabled: [{name: DefaultBinder}]}\n"


class Preparing(PreBindPlugin):
    """Takes its time; a process may well stand still in it."""

    name = "Preparing"
    api_version = 1

    def __init__(self, *, sleep: Sleep) -> None:
        self._sleep = sleep

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        await self._sleep.sleep(PRE_BIND_SECONDS)
        return None


class OwnWay(BindPlugin):
    """Binds by ways that nobody sees."""

    name = "OwnWay"
    api_version = 1
    bound: list[tuple[str, float]]

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        self.bound.append((pod.name, asyncio.get_running_loop().time()))
        return None


@pytest.mark.parametrize(
    "asleep_seconds",
    [pytest.param(5.0, id="short of the deadline"), pytest.param(30.0, id="beyond the deadline")],
)
@pytest.mark.parametrize("by", ["extender", "plugin"])
def test_a_leader_whose_process_was_suspended_sends_no_bind_when_it_resumes(
    by: str, asleep_seconds: float, tmp_path: Path
) -> None:
    async def scenario() -> None:
        class Binder(OwnWay):
            bound: list[tuple[str, float]] = []  # noqa: RUF012 - of this test

        def bind(said: dict[str, Any]) -> dict[str, Any]:
            Binder.bound.append((said["PodName"], asyncio.get_running_loop().time()))
            return {}

        async with cluster(tmp_path) as it, scripted_extender({"bind": bind}) as extender:
            it.add_nodes(node_object("n1"))
            configuration = HEAD + PROFILE + (OWN_WAY if by == "plugin" else "")
            if by == "extender":
                configuration += f"extenders: [{{urlPrefix: {extender.url}, bindVerb: bind}}]\n"
            plugins = {"Preparing": Preparing, "OwnWay": Binder}
            async with replica(it, "first", plugins=plugins, configuration=configuration) as first:
                await it.until(lambda: first.is_leading)
                it.add_pods(pod_object("before"))
                await it.until(lambda: Binder.bound)
                it.add_pods(pod_object("asleep"))
                await it.until(lambda: first.daemon.parts.cache.counts()["assumed_pods"] == 2)
                await asyncio.sleep(PRE_BIND_SECONDS / 2)

                first.freezer.freeze()
                await asyncio.sleep(asleep_seconds)
                first.freezer.thaw()
                if asleep_seconds < 10.0:
                    await it.until(lambda: len(Binder.bound) == 2)
                    return
                with pytest.raises(LeadershipLostError):
                    await first.ended

            assert [name for name, _ in Binder.bound] == ["before"]

    freezing.run(scenario())
