"""Hot reload of a running daemon: watches the source of its configuration."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from scheduler.daemon.app.config_file import lease_of
from scheduler.daemon.app.config_map import ConfigMapMissingError, read_config_map
from scheduler.daemon.app.profile_objects.profiles import ProfileListener
from scheduler.errors import ConfigurationError, SchedulerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.daemon.app.config_file import ConfigFile
    from scheduler.daemon.app.config_map import ConfigMapSource
    from scheduler.daemon.app.daemon import Daemon
    from scheduler.daemon.app.profile_objects.profiles import ClusterProfiles
    from scheduler.daemon.app.profile_objects.version_selection import ProfileStatusWriter
    from scheduler.daemon.app.reloader import Reloader
    from scheduler.daemon.app.server_version import ServerVersions
    from scheduler.daemon.config_watch.config_objects import ConfigMap
    from scheduler.daemon.config_watch.kopf_thread import KopfThread
    from scheduler.kube.client.connection import ApiConnection

logger = logging.getLogger(__name__)

_FILE, _CONFIG_MAP = "file", "configmap"
_AGAIN_SECONDS = 5.0
"""The interval of retries if it could not be determined whether the ConfigMap was deleted."""


@asynccontextmanager
async def following_server(
    daemon: Daemon, reloader: Reloader, versions: ServerVersions, connection: ApiConnection
) -> AsyncIterator[None]:
    """Activate what is offered, and follow the API server's version, while the block runs."""

    def active() -> str:
        is_named = reloader.active_as_read.settings.emulated_version
        return "" if is_named else daemon.configuration.features.version

    following = versions.follow(
        connection, daemon.watches.outages, active=active, activate=reloader.settle_again
    )
    tasks = (
        asyncio.create_task(reloader.run(), name="reload"),
        asyncio.create_task(following, name="version of the API server"),
    )
    try:
        yield
    finally:
        await _end(*tasks)


@asynccontextmanager
async def following_file(daemon: Daemon, reloader: Reloader, file: ConfigFile) -> AsyncIterator[None]:
    """Watch a file, and the plugin files it names, while the block runs."""
    daemon.metrics.configuration.watch_up[_FILE] = True
    about = lease_of(daemon.configuration.settings.leader_election)
    following = asyncio.create_task(file.follow(reloader.offer, about), name="configuration file")
    try:
        yield
    finally:
        await _end(following)


@asynccontextmanager
async def following_config_map(
    daemon: Daemon,
    reloader: Reloader,
    source: ConfigMapSource,
    *,
    connection: ApiConnection,
    thread: KopfThread,
) -> AsyncIterator[None]:
    """Watch a ConfigMap while the block runs; the caller starts the thread within the block."""
    from scheduler.daemon.config_watch.kopf_thread import ConfigMapWatch  # it loads kopf

    listener = _Listener(daemon, reloader, source, connection)
    where = source.where
    watch = ConfigMapWatch(
        where.namespace, where.name, began=listener.began, changed=listener.changed, seen=listener.seen
    )
    thread.follow(watch)
    try:
        yield
    finally:
        await _end(*listener.tasks)


@asynccontextmanager
async def following_profiles(
    daemon: Daemon,
    profiles: ClusterProfiles,
    statuses: ProfileStatusWriter,
    *,
    connection: ApiConnection,
    thread: KopfThread,
) -> AsyncIterator[None]:
    """Watch SchedulerProfiles while the block runs; the caller starts the thread within the block."""
    from scheduler.daemon.config_watch.kopf_thread import SchedulerProfileWatch  # it loads kopf

    up = daemon.metrics.configuration.watch_up
    listener = ProfileListener(profiles, connection, up, thread.begin_again)
    watch = SchedulerProfileWatch(
        began=listener.began, changed=listener.changed, deleted=listener.deleted, ended=listener.ended
    )
    thread.follow(watch)
    tasks = (
        asyncio.create_task(profiles.run(), name="profiles"),
        asyncio.create_task(statuses.run(lambda: profiles.choices), name="status of profiles"),
    )
    try:
        yield
    finally:
        listener.stop()
        await _end(*tasks)


class _Listener:
    """Receives changes of a ConfigMap from kopf, in the daemon's event loop."""

    def __init__(
        self, daemon: Daemon, reloader: Reloader, source: ConfigMapSource, connection: ApiConnection
    ) -> None:
        self._up = daemon.metrics.configuration.watch_up
        self._reloader = reloader
        self._source = source
        self._connection = connection
        self._is_silent = True
        self.tasks: set[asyncio.Task[None]] = set()
        self._up[_CONFIG_MAP] = False

    def began(self) -> None:
        """The kopf thread starts, perhaps again; it does not report deletions that happened meanwhile."""
        for earlier in self.tasks:
            earlier.cancel()
        self._is_silent = True
        task = asyncio.create_task(self._ask_whether_deleted(), name="configuration")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def changed(self, config_map: ConfigMap | None) -> None:
        self._is_silent = False
        self._offer(config_map)

    def seen(self, up: bool) -> None:
        if up and not self._up[_CONFIG_MAP]:
            logger.info("Configuration is followed", extra={"source": self._source.where.source})
        self._up[_CONFIG_MAP] = up

    async def _ask_whether_deleted(self) -> None:
        reported = ""
        while self._is_silent:
            try:
                await read_config_map(self._connection, self._source.where)
            except ConfigMapMissingError:
                if self._is_silent:
                    self._offer(None)
                    self.seen(True)
                return
            except SchedulerError as error:
                if reported != (reported := str(error)):
                    self._not_read(error)
            else:
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def _not_read(self, error: SchedulerError) -> None:
        fields = {"source": self._source.where.source, "error": str(error)}
        if isinstance(error, ConfigurationError):
            logger.error("Configuration cannot be followed", extra=fields)
        else:
            logger.warning("Configuration could not be read", extra=fields)

    def _offer(self, config_map: ConfigMap | None) -> None:
        offer = self._source.offer(config_map)
        if offer is not None:
            self._reloader.offer(offer)


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
