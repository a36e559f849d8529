"""A scenario of pod groups, played on any stage: the steps in order, and the observations."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any, Protocol

from tests.conformance.groups import Difference, compare, compare_end, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.conformance.groups import Case

_EVERY_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 30.0
_PATIENCE_SECONDS = 3.0
"""How long a state may take to be as recorded."""
_REST_SECONDS = 0.3
"""How long what is not to happen would have to happen."""

Object = dict[str, Any]


class Stage(Protocol):
    """An API server with an empty namespace, and a scheduler at work."""

    async def create(self, obj: Object) -> None:
        """Create an object, one of a namespace in that of the case."""

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object of the namespace."""

    async def patch_pod(self, name: str, patch: Any, *, status: bool = False) -> None:
        """Change a pod, or its status, by a merge patch."""

    async def pods(self) -> list[Object]:
        """Return the pods of the namespace."""

    async def groups(self) -> list[Object]:
        """Return its PodGroups."""

    async def cycles(self) -> float | None:
        """Return how often the scheduler tried a group, if that is known."""

    async def writes(self) -> Iterable[str] | None:
        """Return the kinds of what it wrote, if they are known."""


async def play(case: Case, stage: Stage) -> list[Difference]:
    """Play the steps of a case whose nodes are there.

    Returns:
        In what it went otherwise than recorded. A wait in vain is not told: what is observed next tells.
    """
    actors = _Actors(case, stage)
    for step in case.stored["steps"]:
        ((what, with_what),) = step.items()
        await getattr(actors, f"on_{what}")(with_what)
    await asyncio.sleep(_REST_SECONDS)
    there = {pod["metadata"]["name"] for pod in await stage.pods()}
    evicted = actors.created - actors.deleted - there
    return [
        *actors.differences,
        *compare_end(case, evicted, await stage.cycles(), await stage.writes()),
    ]


def whole_node(node: Object) -> Object:
    """Complete a node of a case, which says what is allocatable and nothing else."""
    node = copy.deepcopy(node)
    node["status"] |= {
        "capacity": node["status"]["allocatable"],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return node


def _bound(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _unschedulable(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("PodScheduled", "False") for each in conditions)


class _Actors:
    """What each kind of step does, as `on_<kind>`.

    Attributes:
        created: names of pods.
        deleted: names of pods, those that a step deleted.
        differences: found by looking.
    """

    def __init__(self, case: Case, stage: Stage) -> None:
        self._case = case
        self._stage = stage
        self._observed = iter(case.stored["observed"])
        self.created: set[str] = set()
        self.deleted: set[str] = set()
        self.differences: list[Difference] = []

    async def on_create(self, objects: list[Object]) -> None:
        for obj in objects:
            if obj["kind"] == "Pod":
                self.created.add(obj["metadata"]["name"])
            await self._stage.create(whole_node(obj) if obj["kind"] == "Node" else copy.deepcopy(obj))

    async def on_delete(self, names: list[str]) -> None:
        for each in names:
            kind, name = each.split("/")
            if kind == "Pod":
                self.deleted.add(name)
            await self._stage.delete(kind, name)

    async def on_setPodStatus(self, statuses: dict[str, Object]) -> None:  # noqa: N802 - as the step is called
        for name, status in statuses.items():
            await self._stage.patch_pod(name, {"status": status}, status=True)

    async def on_removeSchedulingGates(self, names: list[str]) -> None:  # noqa: N802 - as the step is called
        for name in names:
            await self._stage.patch_pod(name, {"spec": {"schedulingGates": None}})

    async def on_sleepSeconds(self, seconds: float) -> None:  # noqa: N802 - as the step is called
        await asyncio.sleep(seconds)

    async def on_waitUntilBound(self, names: list[str]) -> None:  # noqa: N802 - as the step is called
        await self._wait(lambda pods: all(name in pods and _bound(pods[name]) for name in names))

    async def on_waitUntilBoundCount(self, count: int) -> None:  # noqa: N802 - as the step is called
        await self._wait(lambda pods: sum(map(_bound, pods.values())) >= count)

    async def on_waitUntilUnschedulableCondition(self, names: list[str]) -> None:  # noqa: N802 - as the step is called
        await self._wait(lambda pods: all(name in pods and _unschedulable(pods[name]) for name in names))

    async def on_observe(self, _: str) -> None:
        await asyncio.sleep(_REST_SECONDS)
        wanted = next(self._observed)
        loop = asyncio.get_running_loop()
        end = loop.time() + _PATIENCE_SECONDS
        while found := compare(
            self._case, wanted, state_of(await self._stage.pods(), await self._stage.groups())
        ):
            if loop.time() >= end:
                break
            await asyncio.sleep(_EVERY_SECONDS)
        self.differences.extend(found)

    async def _wait(self, holds: Callable[[dict[str, Object]], bool]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _LONGEST_WAIT_SECONDS
        while loop.time() < end:
            if holds({pod["metadata"]["name"]: pod for pod in await self._stage.pods()}):
                return
            await asyncio.sleep(_EVERY_SECONDS)
