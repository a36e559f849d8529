"""Follows a configuration file, and the files it names: plugins, and a policy.

Their state is asked for every two seconds: a ConfigMap that is mounted changes once a minute at best, by a symbolic
link that is swapped, and notifications of the kernel neither follow links nor cross network file systems.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from scheduler.app.reloader import Offer, digest_of, named_files, outcome
from scheduler.client.recorded_event import ObjectReference
from scheduler.configuration.load import NO_POLICIES, load
from scheduler.errors import ConfigurationError

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
        self._look()
        configuration = load(self._path, policies=self._policies)
        self._named = named_files(configuration)
        self._look()
        return configuration

    def unread(self) -> None:
        """Have what is there offered, though it was read already: it was not taken."""
        self._state, self.digest = [], b""

    async def follow(self, offer: Callable[[Offer], None], about: ObjectReference) -> NoReturn:
        """Offer every version that differs from the one before, until cancelled.

        Events are `about` another object: a file is none.
        """
        last = self._state
        while True:
            await asyncio.sleep(POLL_SECONDS)
            state = self._states()
            # What differs from look to look is still being written.
            if state != self._state and state == last:
                before = self.digest
                made = self._offer(about)
                if self.digest != before:
                    offer(made)
            last = state

    def _offer(self, about: ObjectReference) -> Offer:
        result: Configuration | ConfigurationError
        try:
            result = self.load()
        except ConfigurationError as error:
            result = error
        return Offer(str(self._path), about, self.digest, outcome(result))

    def _look(self) -> None:
        self._state = self._states()
        files = ((str(path), _content(path)) for path in self._named)
        self.digest = digest_of(_content(self._path), files)

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


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError):  # the second of a name that no file can have
        return b""
