"""Attempts that need more than a time slice are replayed exactly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from plugins.registry import IN_TREE
from scheduler.daemon.recording.recording_files import Note
from scheduler.framework import NeedsTime, PreFilterPlugin
from tests.recording.memory_recording import Taped
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from scheduler.objects.pod import PodInfo

CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: Hungry}]}}
"""


class Hungry(PreFilterPlugin):
    """Needs a number of steps of four milliseconds for a pod, from the pod's label.

    Attributes:
        has_pages: whether an HTTP endpoint evaluates `shown` pods with it before their attempts.
    """

    name = "Hungry"
    api_version = 1
    has_pages: ClassVar[bool] = True

    def __init__(self) -> None:
        self.known = set[str]()

    def pre_filter(self, state: Any, pod: PodInfo, snapshot: Any) -> None:
        steps = int(pod.labels.get("steps", "0"))
        is_known = pod.uid in self.known or (self.has_pages and "shown" in pod.labels)
        if steps and not is_known:
            raise NeedsTime(self._steps(pod, steps))

    def _steps(self, pod: PodInfo, number: int) -> Generator[None, None, None]:
        for _ in range(number):
            asyncio.get_running_loop()._now += 0.004  # type: ignore[attr-defined]
            yield
        self.known.add(pod.uid)


async def life(folder: Path, tape: Taped) -> list[str]:
    """Add heavy pods and others, and meanwhile delete one and change one; return the order in which pods were bound."""
    async with (
        cluster(folder, kubelet=True) as it,
        it.daemon(CONFIGURATION, plugins={"Hungry": Hungry}, ports=tape.recorder) as daemon,
    ):
        tape.recorder.daemon = daemon
        it.add_nodes(*(node_object(f"n{number}") for number in range(4)))
        for number in range(7):
            it.add_pods(pod_object(f"heavy-{number}", labels={"steps": str(20 + 10 * number)}))
        for number in range(15):
            shown = {"steps": "5", "shown": ""} if number % 4 == 2 else {}
            it.add_pods(pod_object(f"web-{number}", requests={"cpu": "10m"}, labels=shown))
            await asyncio.sleep(0.02)
            if number == 4:
                it.server.store.delete("pods", "heavy-1")
                idle = {"steps": "0"}
                it.label_pod("heavy-6", **idle)
        expected = {f"heavy-{number}" for number in (0, 2, 3, 4, 5, 6)} | {f"web-{n}" for n in range(15)}
        await it.until(lambda: all(it.node_of(name) for name in expected))
        await asyncio.sleep(1.0)
        it.add_pods(pod_object("last", labels={"steps": "50"}))
        await it.until(lambda: it.node_of("last"))
    return [note[1] for note in tape.tape.notes if note[0] == Note.DECIDED]


def taped(folder: Path) -> tuple[Taped, list[str]]:
    async def story() -> tuple[Taped, list[str]]:
        made = Taped(LoopClock())
        return made, await life(folder, made)

    return virtual_time.run(story())


class Quiet(Hungry):
    """The same plugin without elapsed time and without HTTP endpoints: in a replay, the time comes from the recording."""

    has_pages = False

    def _steps(self, pod: PodInfo, number: int) -> Generator[None, None, None]:
        for _ in range(number):
            yield
        self.known.add(pod.uid)


def test_a_replay_decides_in_the_same_order_with_more_cached_state(tmp_path: Path) -> None:
    tape, decided = taped(tmp_path)
    assert sum(note[0] == Note.NEEDED_TIME for note in tape.tape.notes) == 8
    assert len(decided) == 22

    again = tape.replay({**IN_TREE, "Hungry": Quiet})

    assert again.difference is None
    assert again.ended == ""
    assert again.decisions == 22
