"""Runs kopf in a thread and an event loop of its own, restarts it whenever it ends, and watches objects with it.

In a shared loop kopf would replace the daemon's signal handlers and cancel its tasks when it ends. Here kopf
writes nothing to the cluster: no finalizers, no annotations, no events, no peering. It only lists and
watches, and passes plain values to the daemon's loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import kopf

from scheduler.daemon.config_watch.config_objects import ConfigMap, SchedulerProfile
from scheduler.errors import SchedulerError
from scheduler.kube.client.connect import Credentials
from scheduler.urls import shown_text

if TYPE_CHECKING:
    import ssl

    from scheduler.kube.client.login import Login

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 5.0
_RETRIES = 8
"""Number of retries of a request, one per second; then kopf ends, which is logged, and is restarted."""
_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 30.0
_STEADY_SECONDS = 60.0
"""A run that lasted this long was no failed start."""
_ANY = "default"
_GRACE_SECONDS = 1.0
"""How long kopf may take to end by itself, and again after its cancellation; it usually takes a fraction of this."""
_END_SECONDS = 5.0
"""Time limit of waiting for its end."""
DELETED = "DELETED"
"""The type of an event after which there is no object."""

Notify = Callable[..., None]
"""Called in the thread: has a function called in the daemon's loop with plain values."""


@dataclass(frozen=True, kw_only=True)
class _ConnectionInfo(kopf.ConnectionInfo):
    """Authentication and trust as in the rest of the scheduler; kopf has its own rules, and no tls-server-name."""

    login: Login

    def as_http_headers(self) -> dict[str, str]:
        return self.login.headers  # type: ignore[return-value]  # aiohttp takes pairs; several headers may have one name

    def as_ssl_context(self) -> ssl.SSLContext:
        context = self.login.tls()
        name = self.login.server_hostname
        if name:
            wrap = context.wrap_bio

            def wrap_bio(
                incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool = False, **_: object
            ) -> ssl.SSLObject:
                return wrap(incoming, outgoing, server_side, name)

            context.wrap_bio = wrap_bio  # type: ignore[assignment,method-assign]
        return context


class FollowedResource(Protocol):
    """Objects of one kind to watch, with the callbacks for them.

    Attributes:
        source: name of the objects, for messages.
        namespace: namespace of the objects; "" for a cluster-scoped kind.
    """

    source: str
    namespace: str

    def register(
        self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, tell: Notify
    ) -> None:
        """Register the watches of kopf; called in the thread, at each start of kopf."""
        ...

    def began(self) -> None:
        """Handle, in the daemon's loop, a start of kopf; after a restart it does not report deletions in between."""
        ...

    def ended(self) -> None:
        """Handle, in the daemon's loop, the end of kopf; it will be restarted."""
        ...


class KopfThread:
    """Watches objects while the block runs; an async context manager, entered once.

    Args:
        kubeconfig: path of the kubeconfig; None for the pod's service account.
    """

    def __init__(self, kubeconfig: str | None) -> None:
        self._followed: list[FollowedResource] = []
        self._kubeconfig = kubeconfig
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._stopping = threading.Event()
        self._run_ends = threading.Event()
        self._refusal: SchedulerError | None = None  # why the current run must end
        # A daemon thread: the process can end whatever kopf does.
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def follow(self, followed: FollowedResource) -> None:
        """Add objects to watch; call this before entering the block."""
        self._followed.append(followed)

    async def __aenter__(self) -> Self:
        # kopf's log of its own progress has no use here; its end and the reason are logged below.
        logging.getLogger("kopf").setLevel(logging.WARNING)
        for name in ("kopf.activities", "kopf._core.reactor.running", "kopf._cogs.clients"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger("kopf._core.reactor.observation").addFilter(_is_no_failed_request)
        self._thread.start()
        return self

    def begin_again(self) -> None:
        """Restart kopf to discover new kinds: it does so only at its start."""
        self._run_ends.set()

    async def __aexit__(self, *_: object) -> None:
        """End kopf, and wait a little for it."""
        self._stopping.set()
        self._run_ends.set()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            logger.warning("kopf did not end in time", extra={"seconds": _END_SECONDS})
        else:
            self._thread.join(_GRACE_SECONDS)  # `_ended` is the last thing the thread sets

    def _run(self) -> None:
        """Run kopf and restart it whenever it ends, until the thread stops; runs in the thread."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            why = "it ended"
            try:
                with asyncio.Runner(loop_factory=_Loop) as runner:
                    try:
                        runner.run(self._operate())
                    finally:
                        runner.run(_close_all())
            except Exception as error:  # noqa: BLE001 - any failure affects only the watched objects
                why = shown_text(f"{type(error).__name__}: {error}")
            if self._stopping.is_set():
                break
            for followed in self._followed:
                self._tell(followed.ended)
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            logger.warning(
                "Configuration is not watched at the moment; the scheduler continues with the current one",
                extra={
                    "sources": [each.source for each in self._followed],
                    "error": why,
                    "retry_seconds": pause,
                },
            )
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._tell(self._ended.set)

    async def _operate(self) -> None:
        """Run kopf once, until it ends or must end.

        Raises:
            Exception: the failure of kopf.
        """
        self._run_ends, self._refusal = threading.Event(), None
        if self._stopping.is_set():
            return
        asyncio.get_running_loop().set_exception_handler(_note)
        # Created before kopf starts, because kopf considers every later task one of its own.
        ending = asyncio.create_task(asyncio.to_thread(self._run_ends.wait), name="end of kopf")
        registry, settings = self._registry(), _settings()
        for followed in self._followed:
            followed.register(registry, settings, self._tell)
        operator = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=settings,
                standalone=True,
                # Without a namespace kopf would watch namespaced kinds in all namespaces.
                namespaces=sorted({each.namespace for each in self._followed if each.namespace} or {_ANY}),
                stop_flag=self._run_ends,
            ),
            name="kopf",
        )
        try:
            await asyncio.wait({operator, ending}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({operator}, timeout=_GRACE_SECONDS)
            operator.cancel()
            await asyncio.wait({operator}, timeout=_GRACE_SECONDS)
        finally:
            # Threads wait for this event; the loop would wait for those threads without end.
            self._run_ends.set()
        if self._refusal is not None:
            raise self._refusal
        if operator.done() and not operator.cancelled():
            operator.result()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.startup(registry=registry)
        async def began(**_: Any) -> None:
            for followed in self._followed:
                self._tell(followed.began)

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            try:
                return await _connection_info(self._kubeconfig)
            except SchedulerError as error:
                # kopf would stay without credentials and log nothing; so it ends, which is logged, and is
                # restarted.
                self._refusal = error
                self._run_ends.set()
                raise kopf.PermanentError(str(error)) from None

        return registry

    def _tell(self, what: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the daemon's loop is closed
            self._loop.call_soon_threadsafe(what, *arguments)


class _Loop(asyncio.SelectorEventLoop):
    """The loop of kopf. It closes its connections, because kopf does not close all of them when it ends."""

    def __init__(self) -> None:
        super().__init__()
        # Strong references: nothing else refers to a connection that kopf forgot and that is not read.
        self._connections: list[asyncio.WriteTransport] = []

    async def create_connection(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        transport, protocol = await super().create_connection(*args, **kwargs)
        self._connections = [each for each in self._connections if not each.is_closing()] + [transport]
        return transport, protocol

    def abort_connections(self) -> None:
        """Close all connections; their sockets are closed in the next iteration of the loop."""
        for transport in self._connections:
            transport.abort()

    def close(self) -> None:
        if not self.is_closed():
            self.abort_connections()  # those of tasks that were cancelled late
            self.run_until_complete(asyncio.sleep(0))
        super().close()


async def _close_all() -> None:
    """Cancel the tasks and close the connections that kopf left behind."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE_SECONDS)
    loop.abort_connections()


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    # Otherwise kopf kills its thread, and the process with it, ten minutes after its end.
    settings.process.ultimate_exiting_timeout = None
    # All watches are open again a second after the server is back.
    settings.networking.error_backoffs = [1.0] * _RETRIES
    settings.networking.connect_timeout = settings.watching.connect_timeout = _CONNECT_SECONDS
    settings.networking.request_timeout = _REQUEST_SECONDS
    return settings


async def _connection_info(kubeconfig: str | None) -> kopf.ConnectionInfo:
    """Read the credentials as the rest of the scheduler does; kopf calls this again when the server rejects them.

    Raises:
        ConfigurationError: something is missing or invalid.
    """
    credentials = Credentials(kubeconfig)
    await credentials.load()
    login = credentials.login
    return _ConnectionInfo(server=login.server, login=login, proxy_url=credentials.proxy or None)


def _is_no_failed_request(record: logging.LogRecord) -> bool:
    """Return whether to log a record: kopf logs each failed request as an error, and then retries or ends."""
    return record.levelno < logging.ERROR


def _note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors of tasks that kopf leaves behind at its end; `_run` logs why it ended."""
    logger.debug(
        "Left behind by kopf", extra={"what": context.get("message")}, exc_info=context.get("exception")
    )


_CONFIG_MAPS: Final = "configmaps"


class ConfigMapWatch:
    """Watches one ConfigMap with kopf.

    Args:
        namespace: namespace of the ConfigMap.
        name: name of the ConfigMap.
        began: called in the daemon's loop when kopf starts or restarts: afterwards kopf shows the object if
            it exists, and nothing if it does not.
        changed: called in the daemon's loop with every version, and with None on deletion.
        seen: called in the daemon's loop: True once kopf has shown the object, False when kopf ended.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        began: Callable[[], None],
        changed: Callable[[ConfigMap | None], None],
        seen: Callable[[bool], None],
    ) -> None:
        self.namespace = namespace
        self.source = f"ConfigMap {namespace}/{name}"
        self.began = began
        self._name = name
        self._changed = changed
        self._seen = seen

    def ended(self) -> None:
        self._seen(False)

    def register(
        self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, tell: Notify
    ) -> None:
        settings.watching.field_selectors[_CONFIG_MAPS] = f"metadata.name={self._name}"

        @kopf.on.event("", "v1", _CONFIG_MAPS, registry=registry, when=self._is_meant)
        async def changed(event: kopf.RawEvent, **_: Any) -> None:
            config_map = None if event["type"] == DELETED else ConfigMap.of(event["object"])
            tell(self._changed, config_map)
            tell(self._seen, True)

    def _is_meant(self, name: str | None, namespace: str | None, **_: Any) -> bool:
        return (namespace, name) == (self.namespace, self._name)


class SchedulerProfileWatch:
    """Watches the SchedulerProfiles of a cluster with kopf.

    Args:
        began: called in the daemon's loop when kopf starts or restarts.
        changed: called in the daemon's loop with every version.
        deleted: called in the daemon's loop with the name of a deleted profile.
        ended: called in the daemon's loop when kopf ended.
    """

    source = "SchedulerProfiles"
    namespace = ""

    def __init__(
        self,
        *,
        began: Callable[[], None],
        changed: Callable[[SchedulerProfile], None],
        deleted: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        self.began = began
        self.ended = ended
        self._changed = changed
        self._deleted = deleted

    def register(
        self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, tell: Notify
    ) -> None:
        @kopf.on.event("custom-scheduler.io", "v1alpha1", "schedulerprofiles", registry=registry)
        async def changed(event: kopf.RawEvent, **_: Any) -> None:
            profile = SchedulerProfile.of(event["object"])
            if event["type"] == DELETED:
                tell(self._deleted, profile.name)
            else:
                tell(self._changed, profile)
