"""Follows one ConfigMap with kopf, in a thread and an event loop of its own.

In a shared loop kopf would replace the daemon's signal handlers and cancel its tasks when it ends. Here it writes
nothing, anywhere: no finalizers, no annotations, no events, no peering; it lists and watches that one object.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kopf

from scheduler.client.connect import Credentials
from scheduler.controllers.config_map import ConfigMap
from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.client.login import Pem

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 5.0
_RETRIES = 8
"""Of a request, one a second; then kopf ends, which is told, and is begun anew."""
_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 30.0
_STEADY_SECONDS = 60.0
"""A run that lived this long was no failure to start."""
_GRACE_SECONDS = 1.0
"""How long kopf has to end by itself, and again when it is cancelled; a fraction of it is usual."""
_END_SECONDS = 5.0
"""How long `stop` waits."""
_DELETED = "DELETED"


class ConfigMapWatch:
    """One ConfigMap, followed for as long as the daemon runs.

    Args:
        kubeconfig: how to reach the API server; None as a pod.
        began: called in the daemon's loop when kopf begins, or begins again: what it shows then is what there is,
            and that there is nothing it does not show.
        changed: called there with every version, and with None when it is deleted.
        seen: called there too: True once kopf has shown the object, False when it ended.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        kubeconfig: str | None,
        began: Callable[[], None],
        changed: Callable[[ConfigMap | None], None],
        seen: Callable[[bool], None],
    ) -> None:
        self._namespace = namespace
        self._name = name
        self._kubeconfig = kubeconfig
        self._began = began
        self._changed = changed
        self._seen = seen
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._stopping = threading.Event()
        self._run_ends = threading.Event()
        self._refusal: SchedulerError | None = None  # why the run under way has to end
        # A daemon thread: whatever kopf does, the process can end.
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """Begin."""
        # What it says of its own course is of no use here; that it ended, and why, is said below.
        logging.getLogger("kopf").setLevel(logging.WARNING)
        for name in ("kopf.activities", "kopf._core.reactor.running", "kopf._cogs.clients"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger("kopf._core.reactor.observation").addFilter(_is_no_failed_request)
        self._thread.start()

    async def stop(self) -> None:
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
        """Run kopf again whenever it ends, until `stop`; in the thread."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            why = "it ended"
            try:
                asyncio.run(self._operate())
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs reload only
                why = f"{type(error).__name__}: {error}"
            if self._stopping.is_set():
                break
            self._tell(self._seen, False)
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            logger.warning(
                "Configuration is not followed at the moment; the scheduler goes on with what it has",
                extra={"config_map": self._key, "error": why, "retry_seconds": pause},
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
        operator = asyncio.create_task(
            kopf.operator(
                registry=self._registry(),
                settings=self._settings(),
                standalone=True,
                namespaces=[self._namespace],
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
            self._tell(self._began)

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            try:
                return await _connection_info(self._kubeconfig)
            except SchedulerError as error:
                # kopf would sit there without credentials, in silence; so it ends, which shows, and is begun again.
                self._refusal = error
                self._run_ends.set()
                raise kopf.PermanentError(str(error)) from None

        @kopf.on.event("", "v1", "configmaps", registry=registry, when=self._is_meant)
        async def changed(event: kopf.RawEvent, **_: Any) -> None:
            config_map = None if event["type"] == _DELETED else ConfigMap.of(event["object"])
            self._tell(self._changed, config_map)
            self._tell(self._seen, True)

        return registry

    def _is_meant(self, name: str | None, namespace: str | None, **_: Any) -> bool:
        return (namespace, name) == (self._namespace, self._name)

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True
        # Otherwise it kills its thread, and the process with it, ten minutes after it died.
        settings.process.ultimate_exiting_timeout = None
        # Once the server is back, the configuration is followed again a second later.
        settings.networking.error_backoffs = [1.0] * _RETRIES
        settings.networking.connect_timeout = settings.watching.connect_timeout = _CONNECT_SECONDS
        settings.networking.request_timeout = _REQUEST_SECONDS
        settings.watching.field_selectors["configmaps"] = f"metadata.name={self._name}"
        return settings

    @property
    def _key(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _tell(self, what: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the daemon's loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(what, *arguments)


async def _connection_info(kubeconfig: str | None) -> kopf.ConnectionInfo:
    """Read the credentials that the rest of the scheduler uses; kopf asks again when the server rejects them.

    Raises:
        ConfigurationError: something is missing or makes no sense.
    """
    credentials = Credentials(kubeconfig)
    await credentials.load()
    login = credentials.login
    scheme, _, token = (login.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=login.server,
        insecure=not login.verifies,
        **_pem("ca", login.authority),
        **_pem("certificate", login.certificate),
        **_pem("private_key", login.key),
        scheme=scheme if token else None,
        token=token or None,
        proxy_url=credentials.proxy or None,
    )


def _pem(what: str, pem: Pem | None) -> dict[str, Any]:
    """Return what kopf calls a file, or what stands in none, which it wants in base64."""
    if pem is None:
        return {}
    return {f"{what}_path": pem} if isinstance(pem, Path) else {f"{what}_data": base64.b64encode(pem)}


def _is_no_failed_request(record: logging.LogRecord) -> bool:
    """Whether to log it: of a request that fails kopf speaks as an error each time, and asks again or ends."""
    return record.levelno < logging.ERROR


def _note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Take in what kopf's tasks leave behind when it ends; why it ended is said once, above."""
    logger.debug(
        "Left behind by kopf", extra={"what": context.get("message")}, exc_info=context.get("exception")
    )
