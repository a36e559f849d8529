"""Follows a configuration file, and the files it names: plugins, and a policy.

Their state is asked for every two seconds: a ConfigMap that is mounted changes once a minute at best, by a symbolic
link that is swapped, and notifications of the kernel neither follow links nor cross network file systems.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from scheduler.app.reloader import Offer, digest_of, named_files, outcome
from scheduler.aside import in_a_thread
from scheduler.client.recorded_event import ObjectReference
from scheduler.configuration.load import NO_POLICIES, decoded, parse, unreadable
from scheduler.errors import ConfigurationError
from scheduler.files import read_regular
from scheduler.wasm.source import MOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import LeaderElection
    from scheduler.configuration.versions.algorithm_source import PolicyConfigMap

POLL_SECONDS = 2.0

# per file: when it was written, its size and its number; None without it
_State = list[tuple[int, int, int] | None]


class ConfigFile:
    """One file.

    Args:
        path: of the configuration.
        policies: texts of policies in ConfigMaps; read once, at the start.

    Attributes:
        digest: of the version that was read last, plugin files included.
    """

    def __init__(self, path: Path, policies: Mapping[PolicyConfigMap, str] = NO_POLICIES) -> None:
        self._path = path
        self._policies = policies
        self._named: Sequence[Path] = ()
        self._state: _State = []
        self.digest = b""

    def load(self) -> Configuration:
        """Read it, and know from now on what it names.

        Raises:
            ConfigurationError: as `configuration.load`.
        """
        self._state = self._states()
        content, error = _content(self._path)
        self._take_digest(content)
        if error is not None:
            raise unreadable(error, str(self._path)) from error
        text = decoded(content, str(self._path))
        configuration = parse(text, str(self._path), self._path.parent, policies=self._policies)
        self._named = named_files(configuration)
        self._state = self._states()
        self._take_digest(content)
        return configuration

    def unread(self) -> None:
        """Have what is there offered, though it was read already: it was not taken."""
        self._state, self.digest = [], b""

    async def follow(self, offer: Callable[[Offer], None], about: ObjectReference) -> NoReturn:
        """Offer every version that differs from the one before, until cancelled.

        Events are `about` another object: a file is none.
        """
        last = self._state
        doing = f"looking at {self._path}"
        while True:
            await asyncio.sleep(POLL_SECONDS)
            # A file system may take any time, and is asked again only when it has answered.
            last, made = await in_a_thread(partial(self._look, last, about), doing, gives_up=False)
            if made is not None:
                offer(made)

    def _look(self, last: _State, about: ObjectReference) -> tuple[_State, Offer | None]:
        """Return the state of the files, and what they say if that is new and they rest."""
        state, before = self._states(), self.digest
        # What differs from look to look is still being written.
        if state == self._state or state != last:
            return state, None
        made = self._offer(about)
        return state, made if self.digest != before else None

    def _offer(self, about: ObjectReference) -> Offer:
        result: Configuration | ConfigurationError
        try:
            result = self.load()
        except ConfigurationError as error:
            result = error
        return Offer(str(self._path), about, self.digest, outcome(result))

    def _take_digest(self, content: bytes) -> None:
        self.digest = digest_of(content, ((str(path), _content(path)[0]) for path in self._named))

    def _states(self) -> _State:
        return [_state_of(path) for path in (self._path, *self._named)]


def lease_of(election: LeaderElection) -> ObjectReference:
    """Return the lease, which stands for the scheduler where it has no other object."""
    return ObjectReference(
        kind="Lease",
        namespace=election.resource_namespace,
        name=election.resource_name,
        api_version="coordination.k8s.io/v1",
    )


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()  # of what a link leads to
    except (OSError, ValueError):  # the second of a name that no file can have
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _content(path: Path) -> tuple[bytes, OSError | None]:
    """Return what a file holds, and why it cannot be read; then the words for that stand for what it holds."""
    try:
        return read_regular(path, MOST_BYTES), None
    except (OSError, ValueError) as error:  # the second of a name that no file can have
        return str(error).encode(), error if isinstance(error, OSError) else OSError(str(error))
