"""One extender: the pods it is interested in, its four verbs, and its connections.

Source:
    kube-scheduler v1.36, pkg/scheduler/extender.go.
"""

from __future__ import annotations

import ssl
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from scheduler.errors import ConfigurationError, FieldError
from scheduler.extensions.extenders import wire
from scheduler.extensions.extenders.health import ExtenderHealth
from scheduler.extensions.extenders.wire import ExtenderError
from scheduler.files import read_regular
from scheduler.kube.certificates.key_pair import as_file, load_key_pair
from scheduler.kube.certificates.trust import believe_as_go
from scheduler.proxies import is_http, proxy_of
from scheduler.replay_hooks import NO_HOOKS
from scheduler.urls import shown_text, shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import SimpleNamespace

    import aiohttp

    from scheduler.configuration.types import Extender, ExtenderTLS
    from scheduler.extensions.extenders.wire import FilterAnswer, MetaVictims
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.replay_hooks import ReplayHooks

T = TypeVar("T")

_DEFAULT_SECONDS = 5.0
_LONGEST_ANSWER_BYTES = 8 * 1024 * 1024
"""The limit of a response, in addition to the size of the request: names, a reason for each node."""


class HttpExtender:
    """A web service that takes part in scheduling, with a pool of connections that is opened by the first request.

    Every verb raises ExtenderError if the call fails or the response is invalid.

    Args:
        settings: its settings.
        path: their path in the configuration, for messages.
        check_leading: see `Extenders`.
        hooks: see `Extenders`.

    Attributes:
        name: its URL prefix without secrets, as in kube-scheduler's messages.
        ignorable: whether scheduling continues without it when it fails.
        health: statistics of calls.

    Raises:
        ConfigurationError: its certificates cannot be read.
    """

    def __init__(
        self,
        settings: Extender,
        path: str,
        check_leading: Callable[[], None] = lambda: None,
        hooks: ReplayHooks = NO_HOOKS,
    ) -> None:
        self._hooks = hooks
        self.settings = settings
        self._check_leading = check_leading
        self.name = shown_url(settings.url_prefix)
        self.ignorable = settings.ignorable
        self.health = ExtenderHealth()
        self._server_name = (settings.tls_config.server_name if settings.tls_config else "") or None
        # As kube-scheduler's transport, by the environment at the start of the process.
        self._proxy = proxy_of(settings.url_prefix) or None
        self._seconds = settings.http_timeout.nanoseconds / 1e9 or _DEFAULT_SECONDS
        try:
            self._context = _ssl_context(settings)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"cannot be used: {getattr(error, 'strerror', None) or error}"
            raise ConfigurationError([FieldError(f"{path}.tlsConfig", problem)]) from error
        self._session: aiohttp.ClientSession | None = None
        self._managed = frozenset(resource.name for resource in settings.managed_resources)

    def is_interested(self, pod: PodInfo) -> bool:
        """Return whether a pod requests a resource that the extender manages; always True if it manages none."""
        if not self._managed:
            return True
        spec = pod.pod.spec
        return any(
            name in self._managed
            for container in (*spec.containers, *spec.init_containers)
            for written in (container.resources.requests, container.resources.limits)
            for name in written
        )

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeObject]) -> FilterAnswer:
        """Request the nodes that can run a pod."""
        names_only = self.settings.node_cache_capable
        names = [node.name for node in nodes]
        return await self._ask(
            self.settings.filter_verb,
            wire.arguments(pod, nodes, names_only=names_only),
            lambda answer: wire.filter_answer(answer, names, names_only=names_only),
        )

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeObject]) -> Sequence[tuple[str, int]]:
        """Request the scores of nodes: (name, 0 to 10), without the extender's weight."""
        body = wire.arguments(pod, nodes, names_only=self.settings.node_cache_capable)
        return await self._ask(
            self.settings.prioritize_verb, body, lambda answer: wire.priorities_answer(answer, len(nodes))
        )

    async def preempt(
        self, pod: PodInfo, victims: Mapping[str, tuple[Sequence[PodInfo], int]]
    ) -> Mapping[str, MetaVictims]:
        """Request the victims that remain: node name -> victims, and the number of violated disruption budgets."""
        body = wire.preemption_arguments(pod, victims, names_only=self.settings.node_cache_capable)
        return await self._ask(self.settings.preempt_verb, body, wire.preemption_answer)

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Request the binding of a pod."""
        body = wire.binding_arguments(pod, node_name)
        await self._ask(self.settings.bind_verb, body, wire.binding_answer)

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, verb: str, body: bytes, read: Callable[[bytes], T]) -> T:
        began = time.monotonic()
        try:
            url = f"{self.settings.url_prefix.rstrip('/')}/{verb}"
            asking = partial(self._post, url, verb, body)
            answer = read(await self._hooks.external_call(f"POST {shown_url(url)}", asking, bytes))
        except ExtenderError as error:
            self.health.fails(str(error))
            # An owner of the error must not keep the frames that raised it, with the whole request and response.
            raise ExtenderError(f'extender "{self.name}": {error}') from error.with_traceback(None)
        self.health.answered(time.monotonic() - began)
        return answer

    async def _post(self, url: str, verb: str, body: bytes) -> bytes:
        import aiohttp  # few profiles have extenders

        shown = shown_url(url)
        if self._proxy is not None and not is_http(self._proxy):
            raise ExtenderError(f"POST {shown}: the proxy that the environment names is no HTTP proxy")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=self._context),
                # Without compression: the size of decompressed data has no limit that is known beforehand.
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[self._checked()],
                timeout=aiohttp.ClientTimeout(total=self._seconds),
            )
        try:
            async with self._session.post(
                url,
                data=body,
                server_hostname=self._server_name,
                proxy=self._proxy,
                trace_request_ctx=verb,
            ) as answer:
                if answer.status != 200:
                    raise ExtenderError(f"failed {verb} with extender at URL {shown}, code {answer.status}")
                return await _body(answer, len(body) + _LONGEST_ANSWER_BYTES)
        except TimeoutError as error:
            raise ExtenderError(f"POST {shown}: no answer within {self._seconds:g} s") from error
        except aiohttp.ClientHttpProxyError as error:
            # Its message contains the proxy's URL, perhaps with a password; events would show it to users.
            raise ExtenderError(f"POST {shown}: the proxy answered {error.status}") from None
        except (aiohttp.ClientError, UnicodeError) as error:  # UnicodeError: a name that DNS cannot contain
            raise ExtenderError(f"POST {shown}: {shown_text(str(error), url)}") from error

    def _checked(self) -> aiohttp.TraceConfig:
        """Check the right to bind when a connection exists, and immediately before the first byte is written.

        Headers wait for the body; if the body is sent later than the headers, the check runs twice.
        """
        import aiohttp

        async def check(_session: object, context: SimpleNamespace, _sent: object) -> None:
            if context.trace_request_ctx == self.settings.bind_verb:
                self._check_leading()

        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(check)
        trace.on_request_chunk_sent.append(check)
        return trace


async def _body(answer: aiohttp.ClientResponse, longest: int) -> bytes:
    """Read a response.

    Raises:
        ExtenderError: it exceeds the limit.
    """
    pieces, length = [], 0
    async for piece in answer.content.iter_any():
        length += len(piece)
        if length > longest:
            raise ExtenderError(f"answered more than {longest} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _ssl_context(settings: Extender) -> ssl.SSLContext:
    """Return the TLS settings for this extender.

    Source:
        kube-scheduler v1.36, pkg/scheduler/extender.go, makeTransport: with enableHTTPS and no authority given,
        every server is trusted.
    """
    tls = settings.tls_config
    has_authority = tls is not None and bool(tls.ca_file or tls.ca_data)
    if tls is not None and has_authority:
        with as_file(tls.ca_data or read_regular(Path(tls.ca_file))) as authority:
            context = ssl.create_default_context(cafile=authority)
    else:
        context = ssl.create_default_context()
    believe_as_go(context)
    if (settings.enable_https and not has_authority) or (tls is not None and tls.insecure):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls is not None and (tls.cert_file or tls.cert_data):
        load_key_pair(context, _key_pair(tls))
    return context


def _key_pair(tls: ExtenderTLS) -> bytes:
    """Return the client's key and certificate; data take precedence over files."""
    key = tls.key_data or read_regular(Path(tls.key_file))
    certificate = tls.cert_data or read_regular(Path(tls.cert_file))
    return key + b"\n" + certificate
