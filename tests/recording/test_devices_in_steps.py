"""Long searches for devices are replayed as they were recorded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from plugins.dynamic_resources.structured.search import DeviceSearch
from scheduler.daemon.recording.recording_files import Note
from scheduler.testing.devices import claims_of, device_class, resource_slice
from tests.integration.plugins.test_devices import create
from tests.recording.memory_recording import Taped
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock
from tests.unit.plugins.dynamic_resources.structured.node_search import long_search

if TYPE_CHECKING:
    from pathlib import Path


async def life(folder: Path, tape: Taped) -> None:
    """Pods come whose claims take long to refuse, and plain ones; devices of one node change meanwhile."""
    found = [long_search(name) for name in ("one", "two", "three")]
    async with cluster(folder, kubelet=True) as it, it.daemon(ports=tape.recorder) as daemon:
        tape.recorder.daemon = daemon
        it.add_nodes(*(node_object(f"n{number}") for number in range(3)))
        create(it, device_class(), *(claim for _, claim in found))
        for number in range(3):
            create(it, resource_slice(f"n{number}", found[0][0]))
        for number, name in enumerate(("one", "two", "three", "one")):
            it.add_pods(pod_object(f"heavy-{number}", resourceClaims=claims_of(name)))
            it.add_pods(pod_object(f"web-{number}"))
            await asyncio.sleep(0.1)
            it.label_pod(f"heavy-{number}", changed="yes")
            await it.until(lambda each=number: it.node_of(f"web-{each}"))
        await it.until(lambda: all(it.condition(f"heavy-{number}") for number in range(4)))


def taped(folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Taped:
    """Record a run in which each step of a search takes so long."""
    advance = DeviceSearch.advance

    def slow(self: DeviceSearch) -> bool:
        asyncio.get_running_loop()._now += seconds  # type: ignore[attr-defined]
        return advance(self)

    async def story() -> Taped:
        made = Taped(LoopClock())
        made.tape.notes_of_a_file = 20
        await life(folder, made)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(DeviceSearch, "advance", slow)
        return virtual_time.run(story())


@pytest.mark.parametrize("seconds", [0.0004, 0.003])
def test_a_long_search_is_replayed_with_any_cached_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    tape = taped(tmp_path, monkeypatch, seconds)
    assert any(note[0] == Note.NEEDED_TIME for note in tape.tape.notes)
    assert tape.tape.files
    for begin in (0, *tape.tape.files):
        again = tape.replay(begin=begin)
        assert (again.difference, again.ended) == (None, "")
