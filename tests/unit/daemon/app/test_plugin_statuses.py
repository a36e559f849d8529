"""The statuses of the plugins of active profiles: whose are written, and what happens if a plugin fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scheduler.daemon.app.object_statuses import PluginStatuses
from scheduler.framework import Plugin, StatusSource
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    import pytest

KIND = "example.com/v1/things"


class Source(StatusSource):
    """Notes when it is called, and fails if it shall."""

    kind = KIND
    object_kind = "Thing"

    def __init__(self, plugins: Any, *, fails: bool = False) -> None:
        self.plugins, self.fails = plugins, fails
        self.called_at: list[float] = []
        self.has_ended = False

    async def status_of(self, objects: Any) -> Any:
        self.called_at.append(asyncio.get_running_loop().time())
        if self.fails:
            raise KeyError("spec")
        return lambda _key, _obj: None

    def ended(self) -> None:
        self.has_ended = True


class Things(Plugin):
    """Has the sources in `made`."""

    name = "Things"
    api_version = 1
    fails = False

    def __init__(self) -> None:
        self.made: list[Source] = []

    def statuses(self, plugins: Any, access: object) -> list[Source]:
        self.made.append(Source(plugins, fails=self.fails))
        return self.made[-1:]


class Others(Things):
    name = "Others"


class Broken(Things):
    name = "Broken"

    def statuses(self, plugins: Any, access: object) -> Any:
        raise KeyError("statuses")


def frameworks(*profiles: list[Plugin]) -> dict[str, Any]:
    return {
        str(number): SimpleNamespace(plugins=SimpleNamespace(all=lambda plugins=plugins: plugins))
        for number, plugins in enumerate(profiles)
    }


class Daemon:
    """Active profiles and one object."""

    def __init__(self, *profiles: list[Plugin]) -> None:
        objects = {"a": {"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}}}
        self.profiles = SimpleNamespace(frameworks=frameworks(*profiles))
        parts: Any = SimpleNamespace(
            clock=LoopClock(),
            cache=SimpleNamespace(table=SimpleNamespace(watch_kind=lambda _kind: objects)),
            profiles=self.profiles,
        )
        nothing: Any = None
        self.statuses = PluginStatuses(
            parts, nothing, writes=nothing, is_leading=lambda: True, recorder=nothing
        )

    async def run(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.statuses.run(), seconds)


async def test_one_source_has_the_instances_of_all_profiles() -> None:
    first, second = Things(), Things()
    await Daemon([first], [second]).run(2.5)

    [source] = first.made
    assert source.plugins == [first, second]
    assert not second.made
    assert source.called_at == [0.0, 1.0, 2.0]


async def test_a_reload_ends_the_sources_of_the_old_profiles() -> None:
    old, new = Things(), Things()
    daemon = Daemon([old])
    running = asyncio.create_task(daemon.run(5.5))
    await asyncio.sleep(2.5)
    daemon.profiles.frameworks = frameworks([new])
    await running

    assert old.made[0].has_ended
    assert max(old.made[0].called_at) < 3.5
    assert new.made[0].called_at[0] == 3.0


async def test_a_source_that_fails_is_called_again_later(caplog: pytest.LogCaptureFixture) -> None:
    broken, others = Things(), Others()
    broken.fails = True
    await Daemon([broken]).run(25)

    assert broken.made[0].called_at == [0.0, 10.0, 20.0]
    assert "Plugin failed to compute statuses" in caplog.text
    await Daemon([Broken(), others]).run(1.5)
    assert others.made[0].called_at
    assert "Plugin has no statuses" in caplog.text


async def test_one_plugin_writes_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    first, second = Things(), Others()
    await Daemon([first, second]).run(1.5)

    assert first.made[0].called_at
    assert not second.made[0].called_at
    assert "Two plugins have statuses of one kind" in caplog.text
