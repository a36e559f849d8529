"""The configuration of a guest: its arguments, and the source of its bytes."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from scheduler.errors import FieldError
from scheduler.files import read_regular
from scheduler.framework.interface import PluginArgs
from scheduler.kube.http.client import HttpClient
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.kube.http.request import Response

_PAGE_BYTES = 64 * 1024
_MAX_BYTES = 4 * 1024**3  # the 32-bit address space


@dataclass(frozen=True, slots=True)
class MemorySize:
    """An amount of memory, written as a quantity: `64Mi`."""

    size_bytes: int

    @classmethod
    def parse(cls, value: object) -> MemorySize:
        """Parse a quantity of 64Ki to 4Gi.

        Raises:
            ValueError: it is not a quantity, or out of range.
        """
        try:
            size = parse_quantity(value).value() if isinstance(value, str | int) else 0
        except ValueError:
            size = 0
        if not _PAGE_BYTES <= size <= _MAX_BYTES:
            raise ValueError(f"must be a quantity from 64Ki to 4Gi, was {value!r}")
        return cls(size)


class GuestArgs(PluginArgs, frozen=True, kw_only=True):
    """The location of a guest, its configuration, and its limits."""

    guest_url: str = msgspec.field(default="", name="guestURL")
    """`file://PATH`, a path, `http://...` or `https://...`; a relative path starts at the configuration's folder."""
    guest_config: str = ""
    """Passed to the guest unchanged."""
    log_severity: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0
    """The lowest severity of the guest's log lines that are kept: 0 info, 1 warning, 2 error, 3 fatal."""
    argv: tuple[str, ...] = msgspec.field(default=(), name="Args")
    """The guest's command line, beginning with the program's name."""
    time_limit: Duration = Duration(500_000_000)
    """The limit of all calls for one pod's scheduling cycle together. It is less than the default of attemptBudget, so that
    the time limit stops the guest before the budget ends the attempt."""
    memory_limit: MemorySize = MemorySize(128 * 1024**2)
    """The memory limit of one instance; there is one for every pod in flight."""
    sample: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """How many nodes are enough: Filter, after all other plugins, stops after this many feasible nodes; Score ranks them."""

    def faults(self) -> Iterable[FieldError]:
        """Yield errors of limits that leave no time at all, or block a pod for too long."""
        if not 0 < self.time_limit.seconds <= 5:
            yield FieldError("timeLimit", f"must be more than 0s and at most 5s, was {self.time_limit}")


_TOTAL_SECONDS = 60.0
"""How long a server may take in total."""
MOST_BYTES = 256 * 1024 * 1024
"""The limit of a guest's size."""
_FILE = "file://"


def guest_file(url: str, folder: Path | None) -> Path | None:
    """Return the file that a guestURL names; None if it is not a file."""
    if url.startswith(_FILE):
        # As upstream: all that follows is the path, so that file://./x and file://../x are relative.
        return (folder or Path()) / url[len(_FILE) :]
    return None if "://" in url else (folder or Path()) / url


def read_guest(url: str, folder: Path | None) -> bytes:
    """Read a guest; this takes as long as the network does, so never in a cycle.

    Raises:
        OSError: it does not exist, or the server does not answer in time; the message contains no secrets.
        ValueError: a URL with another scheme.

    Source:
        kube-scheduler-wasm-extension, scheduler/plugin/wasm.go, newWasmFromURL.
    """
    path = guest_file(url, folder)
    if path is not None:
        return read_regular(path, MOST_BYTES)
    scheme = url.partition("://")[0]
    if scheme not in {"http", "https"}:
        raise ValueError(f"unsupported URL scheme: {scheme}")
    answers: Future[Response] = Future()

    async def ask() -> None:
        client = HttpClient()
        try:
            answers.set_result(
                await client.send("GET", url, timeout_seconds=_TOTAL_SECONDS, most_bytes=MOST_BYTES)
            )
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            answers.set_exception(error)
        finally:
            await client.close()

    # In a thread of its own, because that of the caller may run a loop, which then waits too.
    threading.Thread(target=asyncio.run, args=(ask(),), daemon=True).start()
    answer = answers.result()
    if answer.status != 200:
        raise OSError(f"received {answer.status} status code")
    return answer.body
