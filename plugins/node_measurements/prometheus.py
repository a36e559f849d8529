"""What plugins with a Prometheus server share: connection, queries and responses."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode, urlsplit

import msgspec

from plugins.node_measurements.metrics_api import UNREADABLE
from scheduler.errors import FieldError
from scheduler.framework import PluginArgs
from scheduler.objects.wording import Duration
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.framework import HttpGet

_PLACEHOLDER = re.compile(r"\$([a-z]+)")
_SECOND = 1_000_000_000  # nanoseconds
_MILLISECOND = 1_000_000  # nanoseconds
_LONGEST_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, order=True, slots=True)
class TimeRange(Duration):
    """A length of time that may also be written as an integer of seconds."""

    @classmethod
    def parse(cls, value: object) -> TimeRange:
        """Parse either form.

        Raises:
            ValueError: the value has neither form, or exceeds an int64 of nanoseconds.
        """
        if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
            value = f"{int(value)}s"
        return cls(Duration.parse(value).nanoseconds)

    @property
    def in_promql(self) -> str:
        """The duration in PromQL, which has no fractions."""
        if self.nanoseconds % _SECOND == 0:
            return f"{self.nanoseconds // _SECOND}s"
        return f"{self.nanoseconds // _MILLISECOND}ms"


class Tls(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How to verify the server.

    Attributes:
        ca_file: PEM file of the certificate authorities; "" uses those of the system.
        insecure: accept any certificate of the server.
    """

    ca_file: str = ""
    insecure: bool = False


InstanceIs = Literal["Any", "NodeName", "InternalIP"]
"""What the value of a series' instance label is, with or without a port; "Any" tries the names first."""


class PrometheusArgs(PluginArgs, frozen=True):
    """How to connect to a Prometheus server and query it.

    Attributes:
        ip: its base URL; the default scheme is `http://`.
        time_range: the value of `$range` in queries.
        instance_label: the label that identifies the nodes.
        instance_is: the kind of that label's value.
        tls: how to verify the server for an https URL.
        bearer_token_file: the file of the token to send; "" sends none.
        refresh_period: the interval between two queries.
        settle_time: the time until data show the full effect of a new pod; None uses the plugin's default.
    """

    ip: str = "http://localhost:9090"
    time_range: TimeRange = TimeRange(300 * _SECOND)
    instance_label: str = "instance"
    instance_is: InstanceIs = "Any"
    tls: Tls = Tls()
    bearer_token_file: str = ""
    refresh_period: Duration = Duration(15 * _SECOND)
    settle_time: Duration | None = None

    @property
    def base_url(self) -> str:
        url = self.ip if "://" in self.ip else f"http://{self.ip}"
        return url.rstrip("/")

    @property
    def settle_seconds(self) -> float:
        """How long a placement is counted, with decreasing weight."""
        if self.settle_time is not None:
            return self.settle_time.seconds
        return self.time_range.seconds + self.refresh_period.seconds

    def faults(self) -> Iterator[FieldError]:
        problem = _url_problem(self.base_url)
        if problem:
            yield FieldError("ip", f"{problem}, was {shown_url(self.ip)!r}")
        if self.time_range.nanoseconds < _MILLISECOND:
            yield FieldError("timeRange", f"must be at least 1ms, was {self.time_range}")
        if not _is_label(self.instance_label):
            yield FieldError("instanceLabel", f"must be the name of a label, was {self.instance_label!r}")
        if self.tls.insecure and self.tls.ca_file:
            yield FieldError("tls.caFile", "must not be given when tls.insecure is true")
        if self.refresh_period.seconds < 1:
            yield FieldError("refreshPeriod", f"must be at least 1s, was {self.refresh_period}")
        if self.settle_time is not None and self.settle_time.nanoseconds < 0:
            yield FieldError("settleTime", f"must not be negative, was {self.settle_time}")


def _url_problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"must be a URL ({error})"
    if parts.scheme not in {"http", "https"} or not parts.hostname or any(map(str.isspace, url)):
        return "must be a URL as in http://10.0.0.1:9090"
    if parts.username is not None:
        return "must be a URL without a password; use bearerTokenFile"
    return "must be a URL without ? and #" if parts.query or parts.fragment else ""


def _is_label(name: str) -> bool:
    """Return whether it is a valid label name in PromQL, without quotes."""
    return name.isascii() and name.isidentifier()


def filled_in(template: str, values: Mapping[str, str]) -> str:
    """Return a query with each `$name` replaced; other dollars, as in label_replace, stay."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)


def in_string(text: str) -> str:
    """Escape text for a double-quoted string in PromQL."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(msgspec.Struct, rename="camel"):
    result_type: Literal["vector"]
    result: list[_Sample]


class _Answer(msgspec.Struct):
    data: _Vector


_DECODER = msgspec.json.Decoder(_Answer)


class Prometheus:
    """Queries one server."""

    def __init__(self, args: PrometheusArgs, web: HttpGet) -> None:
        self._args = args
        self._web = web

    async def query(self, promql: str) -> dict[str, float]:
        """Return the result of an instant query: value of the instance label -> number.

        Of several series of one instance the largest number counts; a value that is not finite counts as missing.

        Raises:
            OSError: there is no response, or no usable one.
        """
        args = self._args
        body = await self._web.http_get(
            f"{args.base_url}/api/v1/query?{urlencode({'query': promql})}",
            timeout_seconds=min(args.refresh_period.seconds, _LONGEST_TIMEOUT_SECONDS),
            ca_file=args.tls.ca_file,
            insecure=args.tls.insecure,
            bearer_token_file=args.bearer_token_file,
        )
        try:
            samples = _DECODER.decode(body).data.result
        except UNREADABLE as error:
            raise OSError(f"{args.base_url}: not the answer to an instant query: {error}") from error
        if not samples:
            raise OSError(f"{args.base_url}: no series at all for {promql}")
        found: dict[str, float] = {}
        for sample in samples:
            instance, number = sample.metric.get(args.instance_label, ""), _number(sample.value[1])
            if instance and math.isfinite(number):
                found[instance] = max(number, found.get(instance, number))
        if not found:
            raise OSError(
                f"{args.base_url}: no number with the label {args.instance_label} in what {promql} gives"
            )
        return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
