"""Records the pod of the current attempt in a file, so that the next process finds it however this one ended.

A record is one write into existing blocks of the file. The kernel keeps it whether the process ended by SIGKILL for lack
of memory, a crash in C, or a failed liveness probe. The next process quarantines the pod as one whose attempt exceeded
its budget. The quarantine is in the pod's condition, which the next leader reads.

The file is not mapped into memory: if a full, truncated or broken file system cannot provide a mapped page, the process
ends with SIGBUS, while a write fails with an error.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from scheduler.engine.queue.quarantine import message, times_in_condition
from scheduler.errors import ApiError, ObjectError
from scheduler.files import open_regular
from scheduler.kube.client.resources import PODS
from scheduler.kube.client.status_queue import status_patch
from scheduler.kube.http.request import STRATEGIC_MERGE_PATCH, Request
from scheduler.objects.decode import decode_pod
from scheduler.objects.v1 import PodCondition

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.clock import Clock
    from scheduler.kube.client.requests import Requests
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_BYTES: Final = 1024
"""Names and UIDs are much shorter."""
_LENGTH_BYTES: Final = 2
_NOTHING: Final = bytes(_LENGTH_BYTES)
# Not `os.pwrite`, which releases the interpreter's lock: while another thread computes, it returns only after that
# thread's 5 ms, twice for each attempt. This call takes a microsecond and keeps the lock.
_write_at: Final = ctypes.PyDLL(None).pwrite
_write_at.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long]
_write_at.restype = ctypes.c_ssize_t


class MarkedPod(NamedTuple):
    """The pod whose attempt was running when the process ended."""

    uid: str
    namespace: str
    name: str


class AttemptMarker:
    """One file, open as long as the process runs.

    Args:
        path: path of the file; created if absent.

    Attributes:
        found: the record that the previous process left.
        is_kept: whether the file has the last record. A failed write is logged once, and repeated with the next record.

    Raises:
        OSError: the file cannot be created, its file system is full, or it is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_regular(path, os.O_RDWR | os.O_CREAT)
        try:
            content = os.pread(self._file, _BYTES, 0)
            # Written once as a whole, so that the file has its blocks and later records need no space.
            _write_all(self._file, content.ljust(_BYTES, b"\0"))
        except OSError:
            os.close(self._file)
            raise
        self.found = _read(content)
        self.is_kept = True

    def write(self, pod: PodInfo | None) -> None:
        """Record the pod of the current attempt; None for none."""
        if pod is None:
            self._put(_NOTHING)
            return
        text = f"{pod.uid}/{pod.key}".encode()[: _BYTES - _LENGTH_BYTES]
        self._put(len(text).to_bytes(_LENGTH_BYTES) + text)

    def _put(self, record: bytes) -> None:
        if _write_at(self._file, record, len(record), 0) == len(record):
            self.is_kept = True
            return
        try:
            _write_all(self._file, record)  # which raises the error
        except OSError as error:
            if self.is_kept:
                fields = {"file": str(self._path), "error": str(error)}
                logger.warning("The pod of an attempt cannot be recorded for a restart", extra=fields)
            self.is_kept = False


def _write_all(file: int, content: bytes) -> None:
    """Write at the beginning of a file; raises OSError."""
    if os.pwrite(file, content, 0) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read(content: bytes) -> MarkedPod | None:
    length = int.from_bytes(content[:_LENGTH_BYTES])
    parts = content[_LENGTH_BYTES : _LENGTH_BYTES + length].decode(errors="replace").split("/")
    return MarkedPod(*parts) if len(parts) == len(MarkedPod._fields) and all(parts) else None


async def quarantine(noted: MarkedPod, requests: Requests, clock: Clock) -> None:
    """Quarantine the pod of the previous process's last attempt, if it still waits; errors are only logged."""
    fields: dict[str, object] = {"pod": f"{noted.namespace}/{noted.name}"}
    try:
        answer = await requests.send(Request("GET", PODS.path(noted.namespace, noted.name)))
        pod = decode_pod(answer.body)
        if pod.uid != noted.uid or pod.node_name or pod.is_terminating:
            return
        description = f"the scheduler ended in the middle of an attempt at this pod{message(times_in_condition(pod) + 1)}"
        condition = PodCondition("PodScheduled", "False", "SchedulerError", description)
        patch = msgspec.json.decode(status_patch(pod, [condition], None, clock.utc_now()) or b"{}")
        body = msgspec.json.encode({**patch, "metadata": {"uid": pod.uid}})
        path = PODS.path(noted.namespace, noted.name, "status")
        await requests.send(Request("PATCH", path, body, STRATEGIC_MERGE_PATCH))
    except (ApiError, ObjectError) as error:
        if not isinstance(error, ApiError) or error.status not in {404, 409}:
            logger.warning(
                "The pod of the previous process's last attempt is not quarantined",
                extra={**fields, "error": str(error)},
            )
        return
    logger.warning(
        "The previous process ended during an attempt", extra={**fields, "description": description}
    )
