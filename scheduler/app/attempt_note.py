"""Which pod an attempt is at, in a file that outlives the process: whatever ended it, the next start finds the pod.

The file is mapped into memory, so a note is no call into the system, and is kept whether it was SIGKILL for want of memory,
a crash in C, or a probe that failed since something did not come back. Who starts next puts the pod aside, as one whose
attempt went over its budget: in the pod's condition, which whoever leads by then reads.
"""

from __future__ import annotations

import logging
import mmap
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from scheduler.client.http.request import STRATEGIC_MERGE_PATCH, Request
from scheduler.client.resources import PODS
from scheduler.client.status_patch import status_patch
from scheduler.errors import ApiError, ObjectError
from scheduler.objects.decode import decode_pod
from scheduler.objects.v1 import PodCondition
from scheduler.queue.put_aside import times_told, words

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.client.requests import Requests
    from scheduler.clock import Clock
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_BYTES: Final = 1024
"""Names and UIDs are shorter by far."""
_LENGTH_BYTES: Final = 2
_NOTHING: Final = bytes(_LENGTH_BYTES)


class Noted(NamedTuple):
    """The pod that an attempt was at when the process ended."""

    uid: str
    namespace: str
    name: str


class AttemptNote:
    """One file.

    Args:
        path: of the file, made if it is not there.

    Attributes:
        found: what the process before left in it.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_BYTES)
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self.found = _read(self._map[:])

    def write(self, pod: PodInfo | None) -> None:
        """Note which pod an attempt is at from now on; None for none."""
        if pod is None:
            self._map[:_LENGTH_BYTES] = _NOTHING
            return
        text = f"{pod.uid}/{pod.key}".encode()[: _BYTES - _LENGTH_BYTES]
        self._map[: _LENGTH_BYTES + len(text)] = len(text).to_bytes(_LENGTH_BYTES) + text


def _read(content: bytes) -> Noted | None:
    length = int.from_bytes(content[:_LENGTH_BYTES])
    parts = content[_LENGTH_BYTES : _LENGTH_BYTES + length].decode(errors="replace").split("/")
    return Noted(*parts) if len(parts) == len(Noted._fields) and all(parts) else None


async def put_aside(noted: Noted, requests: Requests, clock: Clock) -> None:
    """Say of a pod that the process before ended at it, if it still waits; that this is refused is no more than a pity."""
    fields: dict[str, object] = {"pod": f"{noted.namespace}/{noted.name}"}
    try:
        answer = await requests.send(Request("GET", PODS.path(noted.namespace, noted.name)))
        pod = decode_pod(answer.body)
        if pod.uid != noted.uid or pod.node_name or pod.is_terminating:
            return
        told = f"the scheduler ended in the middle of an attempt at this pod{words(times_told(pod) + 1)}"
        condition = PodCondition("PodScheduled", "False", "SchedulerError", told)
        patch = msgspec.json.decode(status_patch(pod, [condition], None, clock.utc_now()) or b"{}")
        body = msgspec.json.encode({**patch, "metadata": {"uid": pod.uid}})
        path = PODS.path(noted.namespace, noted.name, "status")
        await requests.send(Request("PATCH", path, body, STRATEGIC_MERGE_PATCH))
    except (ApiError, ObjectError) as error:
        if not isinstance(error, ApiError) or error.status not in {404, 409}:
            logger.warning(
                "The pod that the process before ended at is not put aside",
                extra={**fields, "error": str(error)},
            )
        return
    logger.warning("The process before ended in the middle of an attempt", extra={**fields, "told": told})
