"""Measurements of nodes: their sources, Prometheus and the metrics API, and the effect of recent placements.

Measurements are delayed: a new pod affects them after a while. Until then each placement is counted with an estimate;
otherwise all pods of a burst would go to the node that was idle a moment ago.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode, urlsplit

import msgspec
import numpy as np

from scheduler.errors import FieldError
from scheduler.framework import PluginArgs
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.wording import Duration
from scheduler.urls import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from scheduler.framework import ApiGet, HttpGet
    from scheduler.objects.quantity import Quantity
    from scheduler.snapshot import Int64s, Rows, Snapshot

    Float64s = NDArray[np.float64]

NODES_PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
NODE_METRICS_RIGHTS = frozenset({"list metrics.k8s.io/v1beta1/nodes"})


UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""The errors of invalid JSON, of too deep nesting, and of undecodable text."""


class _Metadata(msgspec.Struct):
    name: str


class _NodeMetrics(msgspec.Struct):
    metadata: _Metadata
    usage: dict[str, str] = msgspec.field(default_factory=dict)


class _NodeMetricsList(msgspec.Struct):
    items: list[_NodeMetrics]


_METRICS_DECODER = msgspec.json.Decoder(_NodeMetricsList)


async def node_usages(
    api: ApiGet, read: Mapping[str, Callable[[Quantity], float]], *, timeout_seconds: float
) -> dict[str, dict[str, float]]:
    """Return the usage: resource -> node name -> number.

    Each resource of `read` has its own conversion; an invalid or negative quantity counts as missing.

    Raises:
        OSError: there is no response, or no usable one.
    """
    body = await api.api_get(NODES_PATH, timeout_seconds=timeout_seconds)
    try:
        items = _METRICS_DECODER.decode(body).items
    except UNREADABLE as error:
        raise OSError(f"{NODES_PATH}: not a list of node metrics: {error}") from error
    if not items:
        raise OSError(f"{NODES_PATH}: metrics of no node at all")
    found: dict[str, dict[str, float]] = {resource: {} for resource in read}
    for item in items:
        for resource, measure in read.items():
            number = _measured(item.usage.get(resource), measure)
            if number is not None:
                found[resource][item.metadata.name] = number
    return found


def _measured(text: str | None, measure: Callable[[Quantity], float]) -> float | None:
    if text is None:
        return None
    try:
        number = measure(parse_quantity(text))
    except ValueError:
        return None
    return number if number >= 0 else None


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
    """The verification of the server.

    Attributes:
        ca_file: PEM file of the certificate authorities; "" uses those of the system.
        insecure: accept any certificate of the server.
    """

    ca_file: str = ""
    insecure: bool = False


InstanceIs = Literal["Any", "NodeName", "InternalIP"]
"""What the value of a series' instance label is, with or without a port; "Any" tries the names first."""


class PrometheusArgs(PluginArgs, frozen=True):
    """The connection to a Prometheus server, and its queries.

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


_ANSWER_DECODER = msgspec.json.Decoder(_Answer)


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
            samples = _ANSWER_DECODER.decode(body).data.result
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


STALE_AFTER_PERIODS = 3
"""The number of refresh periods after which old data are stale."""


@dataclass(eq=False, slots=True)
class _Placements:
    """The placements between two refreshes, by node, so that a burst of any length needs constant memory.

    Attributes:
        until: when the interval ended; infinite for the current one.
        amounts: node name -> sum of the estimates.
    """

    until: float = math.inf
    amounts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Noted:
    """One counted placement, with what is needed to undo it."""

    node_name: str
    amount: float
    among: _Placements


@dataclass(eq=False, slots=True)
class _Layout:
    """The data by row of snapshots with these nodes.

    Attributes:
        names: the nodes, by row.
        row_of: node name -> row.
        measured: float64 (n_nodes,), NaN without data.
        coming: float64 (n_nodes,), estimates of what the data do not show yet.
    """

    names: tuple[str, ...]
    row_of: Mapping[str, int]
    measured: Float64s
    coming: Float64s


class NodeMeasurement:
    """The data of every node, by name or address, and by row on request.

    Args:
        period_seconds: the expected interval between new data.
        settle_seconds: the time until data show the full effect of a placement.
        instance_is: how instances identify nodes.
    """

    def __init__(
        self, *, period_seconds: float, settle_seconds: float, instance_is: InstanceIs = "NodeName"
    ) -> None:
        self._stale_seconds = STALE_AFTER_PERIODS * period_seconds
        self._settle_seconds = settle_seconds
        self._instance_is = instance_is
        self._values: Mapping[str, float] = {}
        self._measured_at = -math.inf
        self._placements = deque([_Placements()])
        self._layout: _Layout | None = None

    def asking(self, now: float) -> None:
        """Record that data are requested: the response cannot show later placements."""
        self._placements[-1].until = now
        self._placements.append(_Placements())
        forgotten = now - self._settle_seconds - self._stale_seconds
        while self._placements[0].until <= forgotten:
            self._placements.popleft()

    def learn(self, values: Mapping[str, float], asked_at: float) -> None:
        """Store new data: instance -> number, and the time of the request."""
        self._values, self._measured_at = values, asked_at
        self._layout = None

    def is_stale(self, now: float) -> bool:
        """Return whether there are no data, or only stale ones."""
        return now - self._measured_at > self._stale_seconds

    def note(self, node_name: str, amount: float) -> Noted:
        """Count the estimate of a pod placed on a node."""
        noted = Noted(node_name, amount, self._placements[-1])
        self._add(noted, amount)
        return noted

    def take_back(self, noted: Noted) -> None:
        """Undo `note`."""
        self._add(noted, -noted.amount)

    def _add(self, noted: Noted, amount: float) -> None:
        amounts, name = noted.among.amounts, noted.node_name
        amounts[name] = amounts.get(name, 0.0) + amount
        layout = self._layout
        if layout is not None and (row := layout.row_of.get(name)) is not None:
            layout.coming[row] = max(0.0, layout.coming[row] + amount * self._not_shown(noted.among))

    def _not_shown(self, placements: _Placements) -> float:
        """Return the fraction of placements that the data cannot show yet: 1 at first, 0 once they settled."""
        age = self._measured_at - placements.until
        if age < 0 or not math.isfinite(age):
            return 1.0
        return max(0.0, 1.0 - age / self._settle_seconds) if self._settle_seconds else 0.0

    def measured(self, snapshot: Snapshot) -> Float64s:
        """Return float64 (n_nodes,), NaN without data; read-only."""
        return self._by_row(snapshot).measured

    def expected(
        self, snapshot: Snapshot, feasible: Rows, now: float, *, capacity: Int64s | None = None
    ) -> Float64s | None:
        """Return the present and expected value of each node, float64 (n_nodes,); None without any data.

        A node without data counts as the mean of the feasible nodes with data.

        Args:
            snapshot: the cluster.
            feasible: the rows that count.
            now: the time.
            capacity: int64 (n_nodes,), positive; if given, fractions of it are returned, and the mean is one of fractions.
        """
        if self.is_stale(now):
            return None
        layout = self._by_row(snapshot)
        measured, coming = layout.measured, layout.coming
        if capacity is not None:
            measured, coming = measured / capacity, coming / capacity
        unknown = np.isnan(measured)
        known = feasible[~unknown[feasible]]
        if not len(known):
            return None
        return np.where(unknown, measured[known].mean(), measured) + coming

    def nodes_without_data(self, snapshot: Snapshot, now: float) -> int:
        """Return the number of nodes without recent data."""
        if self.is_stale(now):
            return snapshot.n_nodes
        return int(np.isnan(self.measured(snapshot)).sum())

    def _by_row(self, snapshot: Snapshot) -> _Layout:
        layout, names = self._layout, snapshot.names
        if layout is None or (layout.names is not names and layout.names != names):
            layout = self._layout = self._lay_out(snapshot)
        return layout

    def _lay_out(self, snapshot: Snapshot) -> _Layout:
        # This loops over nodes and placements, but only after a refresh and when nodes change.
        names = snapshot.names
        row_of = {name: row for row, name in enumerate(names)}
        rows = row_of if self._instance_is == "NodeName" else self._rows_by_address(snapshot, row_of)
        measured = np.full(len(names), np.nan)
        for instance, number in self._values.items():
            row = rows.get(host_of(instance))
            if row is not None:
                measured[row] = np.fmax(measured[row], number)
        coming = np.zeros(len(names))
        for placements in self._placements:
            share = self._not_shown(placements)
            for name, amount in placements.amounts.items() if share else ():
                row = row_of.get(name)
                if row is not None:
                    coming[row] += amount * share
        return _Layout(names, row_of, measured, np.maximum(coming, 0.0))

    def _rows_by_address(self, snapshot: Snapshot, row_of: Mapping[str, int]) -> dict[str, int]:
        rows = {
            address.address.lower(): row
            for row, node in enumerate(snapshot.nodes)
            for address in node.node.status.addresses
            if address.type == "InternalIP"
        }
        return {**rows, **row_of} if self._instance_is == "Any" else rows


def host_of(instance: str) -> str:
    """Return a name or an address without its port: of `n1:9100`, `10.0.0.1`, `[fd00::1]:9100`, `fd00::1`."""
    if instance.startswith("["):
        return instance[1:].partition("]")[0].lower()
    host, _, port = instance.rpartition(":")
    return (host if host and ":" not in host and port.isdigit() else instance).lower()
