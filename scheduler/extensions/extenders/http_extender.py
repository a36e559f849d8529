"""One extender: the pods it is interested in, its four verbs, its connections, and its statistics.

Source:
    kube-scheduler v1.36, pkg/scheduler/extender.go.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from scheduler.errors import ConfigurationError, FieldError
from scheduler.extensions.extenders import wire
from scheduler.extensions.extenders.wire import ExtenderError
from scheduler.files import read_regular
from scheduler.kube.certificates.trust import client_context, load_key_pair
from scheduler.kube.http.client import HttpClient, HttpError
from scheduler.urls import shown_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.configuration.types import Extender
    from scheduler.extensions.extenders.wire import FilterAnswer, MetaVictims
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo


@dataclass(slots=True)
class ExtenderHealth:
    """Statistics since the extender's configuration became active.

    Attributes:
        asked: number of calls.
        failed: number of failed calls.
        seconds: duration of the last successful call.
        answered_at: time of the last successful call, in Unix seconds; None before the first.
        failed_at: time of the last failed call, in Unix seconds; None before the first.
        error: the last failure; "" if there is none.
    """

    asked: int = 0
    failed: int = 0
    seconds: float = 0.0
    answered_at: float | None = None
    failed_at: float | None = None
    error: str = ""

    def answered(self, seconds: float) -> None:
        """Record a successful call."""
        self.asked += 1
        self.seconds = seconds
        self.answered_at = time.time()

    def fails(self, error: str) -> None:
        """Record a failed call."""
        self.asked += 1
        self.failed += 1
        self.failed_at = time.time()
        self.error = error


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
    ) -> None:
        self.settings = settings
        self._check_leading = check_leading
        self.name = shown_url(settings.url_prefix)
        self.ignorable = settings.ignorable
        self.health = ExtenderHealth()
        self._seconds = settings.http_timeout.nanoseconds / 1e9 or _DEFAULT_SECONDS
        try:
            context = _ssl_context(settings)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"cannot be used: {getattr(error, 'strerror', None) or error}"
            raise ConfigurationError([FieldError(f"{path}.tlsConfig", problem)]) from error
        server_name = settings.tls_config.server_name if settings.tls_config else ""
        self._client = HttpClient(context, server_name or None)
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
        await self._client.close()

    async def _ask(self, verb: str, body: bytes, read: Callable[[bytes], T]) -> T:
        began = time.monotonic()
        try:
            url = f"{self.settings.url_prefix.rstrip('/')}/{verb}"
            answer = read(await self._post(url, verb, body))
        except ExtenderError as error:
            self.health.fails(str(error))
            # An owner of the error must not keep the frames that raised it, with the whole request and response.
            raise ExtenderError(f'extender "{self.name}": {error}') from error.with_traceback(None)
        self.health.answered(time.monotonic() - began)
        return answer

    async def _post(self, url: str, verb: str, body: bytes) -> bytes:
        is_bind = verb == self.settings.bind_verb
        try:
            answer = await self._client.send(
                "POST",
                url,
                body=body,
                timeout_seconds=self._seconds,
                most_bytes=len(body) + _LONGEST_ANSWER_BYTES,
                check=self._check_leading if is_bind else None,
            )
        except HttpError as error:
            raise ExtenderError(str(error)) from error
        if answer.status != 200:
            raise ExtenderError(f"failed {verb} with extender at URL {shown_url(url)}, code {answer.status}")
        return answer.body


def _ssl_context(settings: Extender) -> ssl.SSLContext:
    """Return the TLS settings for this extender.

    Source:
        kube-scheduler v1.36, pkg/scheduler/extender.go, makeTransport: with enableHTTPS and no authority given,
        every server is trusted.
    """
    tls = settings.tls_config
    has_authority = tls is not None and bool(tls.ca_file or tls.ca_data)
    is_insecure = (settings.enable_https and not has_authority) or (tls is not None and tls.insecure)
    authority = _content(tls.ca_data, tls.ca_file) if tls is not None and has_authority else None
    context = client_context(authority, verifies=not is_insecure)
    if tls is not None and (tls.cert_file or tls.cert_data):
        certificate, key = _content(tls.cert_data, tls.cert_file), _content(tls.key_data, tls.key_file)
        load_key_pair(context, certificate, key)
    return context


def _content(data: bytes, file: str) -> bytes:
    """Return PEM text; data take precedence over a file."""
    return data or read_regular(Path(file))
