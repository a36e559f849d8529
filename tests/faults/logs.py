"""The permitted log messages of the daemon: an ERROR without an injected fault is a finding."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.faults.actors.coscheduling import CoschedulingGroups
from tests.faults.actors.machine import Stalls
from tests.faults.faulty_plugins import ON_PURPOSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.stage import Stage


def _says(field: str, *words: str) -> Callable[[logging.LogRecord], bool]:
    return lambda record: any(word in str(vars(record).get(field, "")) for word in words)


def _stopped_in_the_middle(record: logging.LogRecord) -> bool:
    """Whether aiohttp speaks of a future it has cancelled itself: the simulated server stops while it answers."""
    return bool(record.exc_info) and isinstance(record.exc_info[1], asyncio.InvalidStateError)  # type: ignore[index]


def _raised_on_purpose(record: logging.LogRecord) -> bool:
    return bool(record.exc_info) and ON_PURPOSE in str(record.exc_info[1])  # type: ignore[index]


_EXPECTED: dict[str, Callable[[logging.LogRecord], bool]] = {
    # A plugin that goes wrong, or an API server that does: its answer, or the lack of one.
    "Error scheduling pod; retrying": _says(
        "err",
        ON_PURPOSE,
        "invalid score 101",
        "not leading any more",
        "over budget: more than 0.75s had passed",  # all stopped in the middle of the attempt
        "over budget: wasm: ",  # a guest that runs endlessly
        "over budget: not asked: it rests",
        "/binding: ",
        "the pod could not be passed on to another replica: ",
        'extender "http',
        "Status(code=<Code.UNSCHEDULABLE",
        "preempted",
        "is not bound, because too few members can be bound",
        "podgroup.scheduling.",  # which was deleted meanwhile
        "cannot determine domain for already scheduled pods",  # it is gone, or was made another
        # A guest that goes wrong.
        "wasm: ",
        "invalid score 2147483647",
        # What PreBind writes is refused or lost; the pod, its claim or its volume goes; no volume can be made.
        'running PreBind plugin "VolumeBinding": ',
        'running PreBind plugin "DynamicResources": ',
    ),
    "Plugin failed": lambda record: (
        _raised_on_purpose(record)
        or any(
            word in f"{record.exc_info} {vars(record).get('error', '')}"
            for word in (ON_PURPOSE, "invalid score 101", "invalid score 2147483647", "wasm: ")
        )
    ),
    "Plugin returned an invalid value": _says("answer", ON_PURPOSE),
    "Plugin could not refresh its data": _raised_on_purpose,
    "PreEnqueue failed; the pod stays gated": _says(
        "error", ON_PURPOSE, "over budget: more than 0.75s had passed"
    ),
    "Queueing hint failed; the pod is tried again": _raised_on_purpose,
    "No permission to use the lease": _says("status", "401", "403"),
    "Lease is lost": lambda _: True,
    "Over budget": _says("why", "more than 0.75s had passed", "wasm: ", "not asked: it rests"),
    "Plugin was stopped again and again, and rests": _says("plugin", "guest"),
    "Configuration could not be built": _raised_on_purpose,
    "Configuration rejected; the one before stays active": _says(
        "error",
        ON_PURPOSE,
        "wasm: ",
        "NoSuchPlugin",
        "the scheduler is not running",
        "kubescheduler.config.k8s.io/v9",
    ),
    # After an outage it is looked, also where a watch is silent on purpose.
    "Cache differs from the cluster": lambda record: (
        vars(record)["found"].keys() <= {"watched", "missed", "redundant"}
    ),
    "No permission to list and watch this kind": _says("status", "401", "403"),
    "Unhandled exception": lambda record: record.name == "aiohttp.server" and _stopped_in_the_middle(record),
}
"""Message of a record -> whether an injected fault explains it."""


@contextmanager
def watching_logs(stage: Stage) -> Iterator[None]:
    """Take what is logged into the story, and note what should not have been."""
    root = logging.getLogger()
    others = root.handlers
    root.handlers = [_Watching(stage)]  # who else would format thousands of records has no use for them
    try:
        yield
    finally:
        root.handlers = others


class _Watching(logging.Handler):
    def __init__(self, stage: Stage) -> None:
        super().__init__(logging.WARNING)
        self._stage = stage

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.levelname} {record.getMessage()} {_fields(record)}"
        self._stage.story.tell("log", text)
        explained = _EXPECTED.get(record.getMessage())
        is_explained = (
            bool(explained and explained(record))
            or (
                # What was carried out and never shown is found by looking, when the server has forgotten it.
                record.getMessage() == "Cache differs from the cluster" and bool(self._stage.restores)
            )
            or (
                # Since one of them changed groups.
                record.getMessage() == "Error scheduling pod; retrying"
                and "all pods in a single pod group should have the same .spec.schedulerName" in text
                and CoschedulingGroups in self._stage.plan.actors
                and len(self._stage.plan.scheduler_names) > 1
            )
            or (
                # It stood still in the middle of an attempt.
                record.getMessage() == "The lease was lost while an attempt held the loop"
                and Stalls in self._stage.plan.actors
            )
        )
        if record.levelno >= logging.ERROR and not is_explained:
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            self._stage.find(f"logged: {text}\n{trace}")


_STANDARD = frozenset(vars(logging.makeLogRecord({})))


def _fields(record: logging.LogRecord) -> str:
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return " ".join(f"{name}={value!s}" for name, value in extra.items())
