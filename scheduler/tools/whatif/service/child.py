"""The child process of a what-if request: `python -m scheduler.tools.whatif.service.child`, with a copy of the cluster.

Its output is the HTTP status of the answer as a line, and the answer as JSON.
"""

from __future__ import annotations

import logging
import os
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from scheduler.configuration.load import parse
from scheduler.daemon.app.child_process import limit_this_process
from scheduler.errors import FieldError, SchedulerError
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.service.cluster_copy import ChildTask, fill, read_pieces
from scheduler.tools.whatif.service.evaluation import evaluate
from scheduler.tools.whatif.service.limits import SECONDS
from scheduler.tools.whatif.service.wire import WhatIfError, read_request

_NICE = 19
"""The daemon has the processor whenever it needs it."""


def main() -> None:
    """Answer a request."""
    os.nice(_NICE)
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # discards the output of plugins
    logging.disable()
    given = read_pieces(sys.stdin.buffer)
    task = msgspec.msgpack.decode(next(given), type=ChildTask)
    limit_this_process(2 * int(SECONDS), task.memory_bytes)  # the parent gives up earlier
    status, answer = HTTPStatus.OK, b""
    try:
        request = read_request(task.body, task.query)
        configuration = parse(task.configuration, "the active configuration", Path(task.folder))
        scheduler = OfflineScheduler(ClusterFile(), configuration, stops_plugins=True)
        fill(scheduler, given, task)
        answer = msgspec.json.encode(evaluate(scheduler, request))
    except WhatIfError as error:
        status, answer = HTTPStatus.UNPROCESSABLE_ENTITY, msgspec.json.encode([*map(_fault, error.faults)])
    except SchedulerError as error:
        status, answer = (
            HTTPStatus.INTERNAL_SERVER_ERROR,
            msgspec.json.encode([_fault(FieldError("", str(error)))]),
        )
    except MemoryError:
        problem = f"the evaluation needs more than {task.memory_bytes // 2**20} MiB"
        status, answer = (
            HTTPStatus.SERVICE_UNAVAILABLE,
            msgspec.json.encode([_fault(FieldError("", problem))]),
        )
    output.write(b"%d\n" % status + answer)
    output.flush()
    os._exit(0)  # a plugin's thread could block any other exit


def _fault(error: FieldError) -> dict[str, Any]:
    return {"field": error.path, "message": error.problem}


if __name__ == "__main__":
    main()
