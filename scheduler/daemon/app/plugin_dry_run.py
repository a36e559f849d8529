"""Dry run of a configuration's code in a separate process.

A plugin file may hang when it is imported, use all memory, or end the process, and nothing in the scheduler's process can
interrupt all of that. But one process can end another. Plugins that are not in-tree are therefore first imported,
compiled and built in a child process with limited time and memory. Only if that process ends normally, the same is done
in the scheduler's process, which detects and reports all other errors.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.defaults import UPSTREAM_PLUGINS, enabled_names
from scheduler.configuration.write import to_yaml
from scheduler.daemon.app.child_process import ending, in_a_child
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.errors import ConfigurationError, FieldError
from scheduler.urls import shown_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.child_process import ChildResult

DRY_RUN_SECONDS = 30.0
"""For the whole dry run, see `TimeLimit`: heavy libraries take seconds to import on a small machine."""
LONGEST_BUILD_SECONDS = 2.0
"""Plugins are built in the event loop, since they may need it; it is blocked meanwhile."""


class DryRunTask(msgspec.Struct):
    """The input of the child: a configuration, the directory of its files, and the plugins to load."""

    text: str
    folder: str
    names: list[str]


class DryRunProgress(msgspec.Struct):
    """One line of output of the child: its current step, and at the end the time for building the plugins."""

    doing: str = ""
    build_seconds: float | None = None


def foreign_names(configuration: Configuration) -> list[str]:
    """Return the enabled plugins that are neither in-tree nor kube-scheduler's."""
    names = (name for profile in configuration.settings.profiles for name in enabled_names(profile.plugins))
    return [name for name in dict.fromkeys(names) if name not in IN_TREE and name not in UPSTREAM_PLUGINS]


async def dry_run_plugins(configuration: Configuration) -> None:
    """Run the code of a configuration in a child process; does nothing if there is none.

    Raises:
        ConfigurationError: it hangs, ends the process, or would block the scheduler.
    """
    names = foreign_names(configuration)
    if not names:
        return
    task = DryRunTask(to_yaml(configuration), str(configuration.folder.absolute()), names)
    problem = await _problem_of(msgspec.json.encode(task))
    if problem:
        raise ConfigurationError([FieldError("profiles", problem)], configuration.source)


async def _problem_of(task: bytes) -> str:
    async def given() -> AsyncIterator[bytes]:
        yield task

    ended = await in_a_child("scheduler.daemon.app.plugin_dry_run_child", given(), DRY_RUN_SECONDS)
    return _problem(ended)


def _problem(ended: ChildResult) -> str:
    progress = DryRunProgress("being read")
    for line in ended.output.splitlines():
        with suppress(msgspec.DecodeError):
            progress = msgspec.json.decode(line, type=DryRunProgress)
    doing = shown_text(progress.doing)
    if progress.build_seconds is None and ended.late:
        return f"{doing} takes {ended.late}, in a dry run in another process"
    if progress.build_seconds is None:
        return f"{doing} ends the process ({ending(ended.status)}), in a dry run in another one"
    if progress.build_seconds > LONGEST_BUILD_SECONDS:
        return (
            f"building the plugins takes {progress.build_seconds:.1f} seconds, for which nothing else could happen; "
            f"at most {LONGEST_BUILD_SECONDS:.0f} are allowed, read what they need in refresh()"
        )
    return ""


def note(progress: DryRunProgress, file: Any) -> None:
    """Write a line immediately, so that it remains if the process ends."""
    file.write(msgspec.json.encode(progress) + b"\n")
    file.flush()
