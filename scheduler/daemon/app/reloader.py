"""Activates configurations from a source, and reports the result of each: log, event, metrics."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from scheduler.configuration.defaults import enabled_names
from scheduler.errors import ConfigurationError, SchedulerError, UnreadError
from scheduler.extensions.wasm.library import guest_files
from scheduler.kube.client.events import CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    from scheduler.clock import Clock
    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.kube.client.events import ObjectReference

logger = logging.getLogger(__name__)

RELOADED, REJECTED, RESTART = "ConfigurationReloaded", "ConfigurationRejected", "ConfigurationNeedsRestart"
_ACTION = "Reloading"
_AGAIN_SECONDS = 60.0
"""The interval of retries if objects that a configuration needs could not be read from the API server."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A configuration offered by a source.

    Attributes:
        source: name of the source for people, as in `ConfigMap kube-system/custom-scheduler`.
        about: the object of events.
        digest: digest of the text and of its plugin files.
        read: returns the configuration; raises ConfigurationError if there is none.
    """

    source: str
    about: ObjectReference
    digest: bytes
    read: Callable[[], Configuration]


class Reloader:
    """Activates offered configurations one after another; of several waiting offers only the newest counts.

    Args:
        daemon: the daemon.
        settle: completes a configuration as at the start: flags override fields, and conflicts raise
            ConfigurationError.
        clock: the time.
        dry_run_plugins: runs a configuration's code in a separate process; raises ConfigurationError.
        keep: receives the active configuration as it was read, and its digest.
        put: activates a configuration; `Daemon.reload` by default.
    """

    def __init__(
        self,
        daemon: Daemon,
        *,
        settle: Callable[[Configuration], Awaitable[Configuration]],
        clock: Clock,
        try_out: Callable[[Configuration], Awaitable[None]] | None = None,
        keep: Callable[[Configuration, bytes], None] | None = None,
        put: Callable[[Configuration], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        self._daemon = daemon
        self._settle = settle
        self._try_out = try_out
        self._keep = keep
        self._put = put or daemon.reload
        self._clock = clock
        self._metrics = daemon.metrics.configuration
        self._events = daemon.recorder(CONTROLLER)
        self._offered: Offer | None = None
        self._unread: Offer | None = None  # rejected only because a needed kind could not be read
        self._active: Offer | None = None
        self._is_offered = asyncio.Event()

    @property
    def active_as_read(self) -> Configuration:
        """The active configuration before it was settled."""
        assert self._active is not None, "before started_with"
        return self._active.read()

    def started_with(self, offer: Offer) -> None:
        """Record the initial configuration."""
        self._active = offer
        self._metrics.activated(offer.digest, self._clock.utc_now().timestamp())

    def offer(self, offer: Offer) -> None:
        """Request the activation of a configuration as soon as possible, instead of one that still waits."""
        self._offered = offer
        self._is_offered.set()

    def settle_again(self) -> None:
        """Request that the active configuration is settled and activated again, unless another one waits."""
        if self._offered is None and self._unread is None:
            self._offered = self._active
        self._is_offered.set()

    async def run(self) -> NoReturn:
        """Activate offered configurations, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._unread is None else _AGAIN_SECONDS):
                    await self._is_offered.wait()
            self._is_offered.clear()
            offer, self._offered = self._offered or self._unread, None
            if offer is not None:
                await self.take(offer)

    async def take(self, offer: Offer) -> bool:
        """Activate one configuration; if that fails, the old one stays, and the failure is reported but not raised.

        Returns:
            Whether the new configuration is active.
        """
        tried, self._unread = self._unread, None
        try:
            read = await self._daemon.aside(offer.read, f"reading {offer.source}")
            configuration = await self._settle(read)
            if self._try_out is not None:
                await self._try_out(configuration)
            left = await self._put(configuration)
        except UnreadError as error:
            self._unread = offer
            if tried is not offer:
                problem = "; ".join(map(str, error.errors))
                self._refused(offer, f"{problem}; it is tried again every minute")
        except ConfigurationError as error:
            self._refused(offer, "; ".join(map(str, error.errors)))
        except SchedulerError as error:
            self._refused(offer, str(error))
        except Exception as error:
            # A plugin's code may raise any error when it is loaded; the running scheduler continues.
            logger.exception("Configuration could not be built", extra={"source": offer.source})
            self._refused(offer, f"{type(error).__name__}: {error}")
        else:
            self._active = replace(offer, read=outcome(read))
            self._taken(offer, configuration, left)
            if self._keep is not None:
                await self._daemon.aside(
                    partial(self._keep, read, offer.digest), "keeping the configuration for a restart"
                )
            return True
        return False

    def _taken(self, offer: Offer, configuration: Configuration, left: Iterable[str]) -> None:
        names = sorted(self._daemon.frameworks)
        logger.info(
            "Configuration reloaded",
            extra={"source": offer.source, "profiles": names, "digest": offer.digest.hex()[:12]},
        )
        log_notes(configuration)
        self._metrics.reloaded()
        self._metrics.activated(offer.digest, self._clock.utc_now().timestamp())
        self._metrics.restart_needed = tuple(left)
        self._tell(offer, "Normal", RELOADED, f"Active now, with the profiles {', '.join(names)}")
        if self._metrics.restart_needed:
            paths = ", ".join(self._metrics.restart_needed)
            logger.warning(
                "Part of the configuration needs a restart", extra={"source": offer.source, "fields": paths}
            )
            self._tell(
                offer, "Warning", RESTART, f"All but this is active; restart the scheduler for {paths}"
            )

    def _refused(self, offer: Offer, problem: str) -> None:
        logger.error(
            "Configuration rejected; the one before stays active",
            extra={"source": offer.source, "error": problem},
        )
        self._metrics.rejected()
        self._tell(offer, "Warning", REJECTED, f"The previous configuration stays active: {problem}")

    def _tell(self, offer: Offer, type_: str, reason: str, note: str) -> None:
        """Record an event; all replicas reload, and only the leader writes events."""
        # Each rejection has its own message; in a series with the first it would not be shown.
        self._events.record(
            offer.about, type_=type_, reason=reason, action=_ACTION, note=note, is_unique=True
        )


def log_notes(configuration: Configuration) -> None:
    """Log the settings without an effect; those with an effect in another version of Kubernetes as warnings."""
    for note in configuration.notes:
        level = logging.WARNING if note.is_left_out else logging.INFO
        logger.log(level, "Setting has no effect", extra={"field": note.path, "why": note.text})


def outcome(result: Configuration | ConfigurationError) -> Callable[[], Configuration]:
    """Return a `read` function for a known result."""

    def read() -> Configuration:
        if isinstance(result, ConfigurationError):
            raise result
        return result

    return read


def named_files(configuration: Configuration) -> list[Path]:
    """Return the files of a configuration, each once: plugins and guests of profiles, and a policy."""
    names = (
        name.partition(":")[0]
        for profile in configuration.settings.profiles
        for name in enabled_names(profile.plugins)
    )
    plugins = [configuration.folder / name for name in dict.fromkeys(names) if name.endswith(".py")]
    return [*plugins, *guest_files(configuration), *configuration.files]


def digest_of(text: bytes, files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a digest of a configuration's text and of its files."""
    digest = hashlib.sha256(text)
    for name, content in files:
        digest.update(f"\0{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.digest()
