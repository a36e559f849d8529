"""Watches a configuration file, and the files it names: plugins, and a policy.

The files are polled every two seconds: a mounted ConfigMap changes once a minute at most, by the exchange of a symbolic
link, and the kernel's file notifications neither follow links nor cross network file systems.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from scheduler.configuration.load import NO_POLICIES, decoded, parse, unreadable
from scheduler.daemon.app.reloader import Offer, digest_of, named_files, outcome
from scheduler.errors import ConfigurationError
from scheduler.extensions.wasm.guest_source import MOST_BYTES
from scheduler.files import read_regular
from scheduler.kube.client.events import ObjectReference
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import LeaderElection
    from scheduler.configuration.versions.algorithm_source import PolicyConfigMap

POLL_SECONDS = 2.0

# per file: modification time, size and inode number; None if the file is absent
_State = list[tuple[int, int, int] | None]


class ConfigFile:
    """One configuration file.

    Args:
        path: path of the configuration.
        policies: texts of policies in ConfigMaps; read once, at the start.

    Attributes:
        digest: digest of the version that was read last, plugin files included.
    """

    def __init__(self, path: Path, policies: Mapping[PolicyConfigMap, str] = NO_POLICIES) -> None:
        self._path = path
        self._policies = policies
        self._named: Sequence[Path] = ()
        self._state: _State = []
        self.digest = b""

    def load(self) -> Configuration:
        """Read the configuration, and remember the files that it names.

        Raises:
            ConfigurationError: as `configuration.load`.
        """
        self._state = self._states()
        content, error = _content(self._path)
        self._take_digest(content)
        if error is not None:
            raise unreadable(error, str(self._path)) from error
        text = decoded(content, str(self._path))
        configuration = parse(text, str(self._path), self._path.parent, policies=self._policies, version=None)
        self._named = named_files(configuration)
        self._state = self._states()
        self._take_digest(content)
        return configuration

    def unread(self) -> None:
        """Offer the current version again although it was read already, because it was not accepted."""
        self._state, self.digest = [], b""

    async def follow(self, offer: Callable[[Offer], None], about: ObjectReference) -> NoReturn:
        """Offer every version that differs from the version before, until cancelled.

        A file is not an object of the API, so events are `about` another object.
        """
        last = self._state
        doing = f"looking at {self._path}"
        while True:
            await asyncio.sleep(POLL_SECONDS)
            # A file system may take any time; the next poll begins only after its answer.
            last, made = await in_a_thread(partial(self._look, last, about), doing, gives_up=False)
            if made is not None:
                offer(made)

    def _look(self, last: _State, about: ObjectReference) -> tuple[_State, Offer | None]:
        """Return the state of the files, and an offer if their content is new and no longer changes."""
        state, before = self._states(), self.digest
        # Files that differ between two polls are still being written.
        if state == self._state or state != last:
            return state, None
        made = self._offer(about)
        return state, made if self.digest != before else None

    def _offer(self, about: ObjectReference) -> Offer:
        result: Configuration | ConfigurationError
        try:
            result = self.load()
        except ConfigurationError as error:
            result = error.with_traceback(None)  # it refers to this frame
        return Offer(str(self._path), about, self.digest, outcome(result))

    def _take_digest(self, content: bytes) -> None:
        self.digest = digest_of(content, ((str(path), _content(path)[0]) for path in self._named))

    def _states(self) -> _State:
        return [_state_of(path) for path in (self._path, *self._named)]


def lease_of(election: LeaderElection) -> ObjectReference:
    """Return the lease, the object of events if the scheduler has no other object."""
    return ObjectReference(
        kind="Lease",
        namespace=election.resource_namespace,
        name=election.resource_name,
        api_version="coordination.k8s.io/v1",
    )


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()  # follows links
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _content(path: Path) -> tuple[bytes, OSError | None]:
    """Return a file's content and None, or the error text and the error; the text then stands in for the content."""
    try:
        return read_regular(path, MOST_BYTES), None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        return str(error).encode(), error if isinstance(error, OSError) else OSError(str(error))
