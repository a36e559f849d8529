"""The process in which the code of a configuration is tried: `python -m scheduler.app.trial_child`, told on its standard input.

It looks at nothing that raises: whoever began it does the same again, and says what is wrong.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from scheduler.app.assembly import Parts
from scheduler.app.capabilities import NoApiServer
from scheduler.app.in_tree import IN_TREE
from scheduler.app.trial import TRIAL_SECONDS, Progress, Task, note
from scheduler.aside import waited_seconds
from scheduler.clock import SystemClock
from scheduler.configuration.load import parse
from scheduler.cycle.observer import NoObserver
from scheduler.framework import ApiGet, ApiWrite, Background, PodBinder, PodEvents
from scheduler.runtime.trial import build_each, load_each

_MEMORY_BYTES = 512 * 1024 * 1024


def main() -> None:
    """Load and build each plugin, saying before each what comes next."""
    _limit()
    told = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what plugins print is nobody's concern
    logging.disable()
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    note(Progress("its text"), told)
    configuration = parse(task.text, folder=Path(task.folder))
    parts = Parts(SystemClock(), NoObserver(), IN_TREE)
    capabilities = dict(parts.capabilities())
    for capability in (ApiGet, ApiWrite, Background, PodBinder, PodEvents):
        capabilities[capability] = NoApiServer()

    def say(doing: str) -> None:
        note(Progress(doing), told)

    loaded = load_each(configuration, task.names, parts.registry(), say)
    began, waited = time.monotonic(), waited_seconds()
    build_each(loaded, capabilities, say)
    # That others had the processor meanwhile is no fault of the plugins.
    note(Progress(build_seconds=time.monotonic() - began - (waited_seconds() - waited)), told)
    os._exit(0)  # a thread of a plugin's could hold up any other way


def _limit() -> None:
    seconds = 2 * int(TRIAL_SECONDS)  # whoever waits gives up before; this is for when that process has ended
    for what, amount in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(what)
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (amount if most < 0 else min(amount, most), most))
    # If memory runs out all the same, this is the process to end.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    main()
