"""kopf in a thread and an event loop of its own, begun again whenever it ends.

In a shared loop kopf would replace the daemon's signal handlers and cancel its tasks when it ends. Here it writes
nothing, anywhere: no finalizers, no annotations, no events, no peering; it lists and watches what is followed, and tells
the daemon's loop of it in plain values.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self
from weakref import WeakSet

import kopf

from scheduler.client.connect import Credentials
from scheduler.errors import SchedulerError
from scheduler.urls import shown_text

if TYPE_CHECKING:
    import ssl

    from scheduler.client.login import Login

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 5.0
_RETRIES = 8
"""Of a request, one a second; then kopf ends, which is told, and is begun anew."""
_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 30.0
_STEADY_SECONDS = 60.0
"""A run that lived this long was no failure to start."""
_ANY = "default"
_GRACE_SECONDS = 1.0
"""How long kopf has to end by itself, and again when it is cancelled; a fraction of it is usual."""
_END_SECONDS = 5.0
"""How long is waited for its end."""
DELETED = "DELETED"
"""The type of an event after which there is no object."""

Tell = Callable[..., None]
"""Called in the thread: has something called in the daemon's loop with arguments, as plain values."""


@dataclass(frozen=True, kw_only=True)
class _ConnectionInfo(kopf.ConnectionInfo):
    """Whom the rest of the scheduler believes and how it says who it is; kopf has rules of its own, and knows no tls-server-name."""

    login: Login

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


class Followed(Protocol):
    """What is followed of one kind, and who hears of it.

    Attributes:
        source: for messages.
        namespace: where the objects are; "" for a kind that is in none.
    """

    source: str
    namespace: str

    def register(self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, tell: Tell) -> None:
        """Say what kopf is to watch; called in the thread, each time that kopf is begun."""
        ...

    def began(self) -> None:
        """Hear, in the daemon's loop, that kopf begins, perhaps again: of what was deleted meanwhile it says nothing."""
        ...

    def ended(self) -> None:
        """Hear there that it ended, and will be begun again."""
        ...


class KopfThread:
    """Follows objects while the block runs; an async context manager, entered once.

    Args:
        kubeconfig: how to reach the API server; None as a pod.
    """

    def __init__(self, kubeconfig: str | None) -> None:
        self._followed: list[Followed] = []
        self._kubeconfig = kubeconfig
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._stopping = threading.Event()
        self._run_ends = threading.Event()
        self._refusal: SchedulerError | None = None  # why the run under way has to end
        # A daemon thread: whatever kopf does, the process can end.
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def follow(self, followed: Followed) -> None:
        """Follow something too; to be said before the beginning."""
        self._followed.append(followed)

    async def __aenter__(self) -> Self:
        # What it says of its own course is of no use here; that it ended, and why, is said below.
        logging.getLogger("kopf").setLevel(logging.WARNING)
        for name in ("kopf.activities", "kopf._core.reactor.running", "kopf._cogs.clients"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger("kopf._core.reactor.observation").addFilter(_is_no_failed_request)
        self._thread.start()
        return self

    def begin_again(self) -> None:
        """Have kopf look anew at which kinds there are: it does so only when it begins."""
        self._run_ends.set()

    async def __aexit__(self, *_: object) -> None:
        """End, and wait for it a little."""
        self._stopping.set()
        self._run_ends.set()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            logger.warning("kopf did not end in time", extra={"seconds": _END_SECONDS})
        else:
            self._thread.join(_GRACE_SECONDS)  # telling was the last it had to do

    def _run(self) -> None:
        """Run kopf again whenever it ends, until the end; in the thread."""
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
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs no more than what is followed
                why = shown_text(f"{type(error).__name__}: {error}")
            if self._stopping.is_set():
                break
            for followed in self._followed:
                self._tell(followed.ended)
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            logger.warning(
                "Configuration is not followed at the moment; the scheduler goes on with what it has",
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
        """Run kopf once, until it ends or is to.

        Raises:
            Exception: what it ended with.
        """
        self._run_ends, self._refusal = threading.Event(), None
        if self._stopping.is_set():
            return
        asyncio.get_running_loop().set_exception_handler(_note)
        # Begun before kopf, which takes every task that is not there yet for one of its own.
        ending = asyncio.create_task(asyncio.to_thread(self._run_ends.wait), name="end of kopf")
        registry, settings = self._registry(), _settings()
        for followed in self._followed:
            followed.register(registry, settings, self._tell)
        operator = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=settings,
                standalone=True,
                # Without a namespace kopf would take the kinds that are in one from everywhere.
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
            # Threads wait for it; the loop would wait for those threads for ever.
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
                # kopf would sit there without credentials, in silence; so it ends, which shows, and is begun again.
                self._refusal = error
                self._run_ends.set()
                raise kopf.PermanentError(str(error)) from None

        return registry

    def _tell(self, what: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the daemon's loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(what, *arguments)


class _Loop(asyncio.SelectorEventLoop):
    """The loop that kopf runs in. It knows its connections, because kopf does not close all of them when it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def create_connection(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        transport, protocol = await super().create_connection(*args, **kwargs)
        self.connections.add(transport)
        return transport, protocol


async def _close_all() -> None:
    """Cancel the tasks and close the connections that kopf left behind."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _Loop)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE_SECONDS)
    for transport in list(loop.connections):
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
    await asyncio.sleep(0)  # the loop closes the sockets in its next turn


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    # Otherwise it kills its thread, and the process with it, ten minutes after it died.
    settings.process.ultimate_exiting_timeout = None
    # Once the server is back, all is followed again a second later.
    settings.networking.error_backoffs = [1.0] * _RETRIES
    settings.networking.connect_timeout = settings.watching.connect_timeout = _CONNECT_SECONDS
    settings.networking.request_timeout = _REQUEST_SECONDS
    return settings


async def _connection_info(kubeconfig: str | None) -> kopf.ConnectionInfo:
    """Read the credentials that the rest of the scheduler uses; kopf asks again when the server rejects them.

    Raises:
        ConfigurationError: something is missing or makes no sense.
    """
    credentials = Credentials(kubeconfig)
    await credentials.load()
    login = credentials.login
    scheme, _, token = (login.authorization or "").partition(" ")
    return _ConnectionInfo(
        server=login.server,
        login=login,
        scheme=scheme if token else None,
        token=token or None,
        proxy_url=credentials.proxy or None,
    )


def _is_no_failed_request(record: logging.LogRecord) -> bool:
    """Whether to log it: of a request that fails kopf speaks as an error each time, and asks again or ends."""
    return record.levelno < logging.ERROR


def _note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Take in what kopf's tasks leave behind when it ends; why it ended is said once, above."""
    logger.debug(
        "Left behind by kopf", extra={"what": context.get("message")}, exc_info=context.get("exception")
    )
