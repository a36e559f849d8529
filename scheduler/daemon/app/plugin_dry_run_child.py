"""The child process of a dry run: `python -m scheduler.daemon.app.plugin_dry_run_child`, with a `DryRunTask` on standard input.

It handles no exceptions: the parent repeats the same steps, and reports the errors.
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

from scheduler.clock import SystemClock
from scheduler.configuration.load import parse
from scheduler.daemon.app.api_access import NO_API_SERVER
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.plugin_dry_run import DRY_RUN_SECONDS, DryRunProgress, DryRunTask, note
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.runtime.profiles import build_each, load_each
from scheduler.worker_thread import waited_seconds

_MEMORY_BYTES = 512 * 1024 * 1024


def main() -> None:
    """Load and build each plugin, writing each step before it begins."""
    _limit()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # discards the output of plugins
    logging.disable()
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=DryRunTask)
    note(DryRunProgress("its text"), output)
    configuration = parse(task.text, folder=Path(task.folder))
    parts = Parts(SystemClock(), NoObserver(), IN_TREE)
    capabilities = {**parts.capabilities(), **NO_API_SERVER.capabilities("")}

    def say(doing: str) -> None:
        note(DryRunProgress(doing), output)

    loaded = load_each(configuration, task.names, parts.registry(), say)
    began, waited = time.monotonic(), waited_seconds()
    build_each(loaded, capabilities, say)
    # Time in which other processes had the processor does not count.
    note(DryRunProgress(build_seconds=time.monotonic() - began - (waited_seconds() - waited)), output)
    os._exit(0)  # a plugin's thread could block any other exit


def _limit() -> None:
    seconds = 2 * int(DRY_RUN_SECONDS)  # the parent gives up earlier; this is for a parent that has ended
    for what, amount in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(what)
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (amount if most < 0 else min(amount, most), most))
    # If memory runs out nevertheless, the kernel ends this process first.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    main()
