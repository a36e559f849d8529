"""The child process of a dry run: `python -m scheduler.daemon.app.plugin_dry_run_child`, with a `DryRunTask` on standard input.

It handles no exceptions: the parent repeats the same steps, and reports the errors.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

import msgspec

from scheduler.clock import SystemClock
from scheduler.configuration.load import parse
from scheduler.daemon.app.api_access import NO_API_SERVER
from scheduler.daemon.app.assembly import Parts
from scheduler.daemon.app.child_process import limit_this_process
from scheduler.daemon.app.in_tree import IN_TREE
from scheduler.daemon.app.plugin_dry_run import DRY_RUN_SECONDS, DryRunProgress, DryRunTask, note
from scheduler.engine.cycle.observer import NoObserver
from scheduler.engine.runtime.profiles import build_each, load_each
from scheduler.worker_thread import waited_seconds

_MEMORY_BYTES = 512 * 1024 * 1024


def main() -> None:
    """Load and build each plugin, writing each step before it begins."""
    limit_this_process(2 * int(DRY_RUN_SECONDS), _MEMORY_BYTES)  # the parent gives up earlier
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


if __name__ == "__main__":
    main()
