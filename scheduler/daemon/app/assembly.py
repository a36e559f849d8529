"""The only assembly of a scheduler: daemon, extender, shadow, offline commands and tests differ in its parts.

`Parts` is the state, with the plugins of a configuration: `build` returns them, `activate` makes all parts use them.
`Cycles` places pods. Each part receives its dependencies when it is built. The object `Profiles` holds everything that a
configuration may change at run time; all users of the configuration read it there.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from scheduler.configuration.feature_gates import features_of
from scheduler.daemon.app.api_access import NO_API_SERVER
from scheduler.daemon.app.capabilities import AsyncioKeyedLock, LoopSleep, LoopTimeSlice, TableObjects
from scheduler.daemon.app.generation import Generation
from scheduler.daemon.app.needs import needs_of, together, trimmed
from scheduler.daemon.app.ports import Ports
from scheduler.engine.cycle.attempt_log import AttemptLog
from scheduler.engine.cycle.binding import BindingCycle
from scheduler.engine.cycle.event_handlers import ObjectHandler, QueueingPodHandler
from scheduler.engine.cycle.failure import FailureHandler
from scheduler.engine.cycle.group_binding import GroupRelease
from scheduler.engine.cycle.group_cycle import PodGroupCycle
from scheduler.engine.cycle.group_explanation import GroupLog
from scheduler.engine.cycle.kubelet_rejections import KubeletRejections
from scheduler.engine.cycle.long_attempts import LongAttempts
from scheduler.engine.cycle.pod_cycle import PodCycle
from scheduler.engine.cycle.preemption import ExtenderReview, NoPreemptions, PreemptionExecutor
from scheduler.engine.cycle.reporting import Reporter
from scheduler.engine.cycle.scheduler import Scheduler
from scheduler.engine.cycle.shared import Shared
from scheduler.engine.cycle.time_slices import TimeSlices
from scheduler.engine.runtime.budget import LoopBudget
from scheduler.engine.runtime.profiles import build_in_steps
from scheduler.engine.runtime.registry import Registry
from scheduler.extensions.wasm.library import GuestLibrary
from scheduler.files import read_regular
from scheduler.framework import (
    AssumedPods,
    Clock,
    ClusterObjects,
    HttpGet,
    KeyedLock,
    PluginMetrics,
    PodActivator,
    PodGroupMembers,
    PodGroupObjects,
    QueuedPods,
    Sleep,
    SlicedWork,
    TimeSlice,
    WaitForEvent,
    WaitingPods,
)
from scheduler.framework.preemption import NominatedPods, Preemptions, VictimReview
from scheduler.framework.sliced_work import WithoutSlices
from scheduler.kube.client.requests import RateLimitedRequests
from scheduler.kube.http.client import HttpClient, HttpError
from scheduler.kube.tls import client_context
from scheduler.loop_work import run_to_end
from scheduler.objects.pod import TOPOLOGY_LABELS
from scheduler.objects.resources import PodRules
from scheduler.urls import shown_url
from scheduler.worker_thread import in_a_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
    from random import Random

    from scheduler.configuration.load import Configuration
    from scheduler.configuration.types import ClientConnection, KubeSchedulerConfiguration
    from scheduler.daemon.app.api_access import ApiAccess, Capabilities
    from scheduler.engine.cycle.observer import CycleObserver
    from scheduler.engine.cycle.preemption import NotedPreemptions, PastPreemption
    from scheduler.engine.cycle.sampling import NodeSampling
    from scheduler.extensions.extenders import Extenders
    from scheduler.framework.interface import Needs, Plugin
    from scheduler.kube.client.requests import Requests
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

T = TypeVar("T")

MAX_BYTES = 8 * 2**20
"""The limit of a response, which is read in less than half a second; 15,000 nodes need a quarter of it."""


class WebClient:
    """Sends requests to web servers; reads tokens and CA files again when they change."""

    def __init__(self) -> None:
        # CA file -> client; "" for the system's authorities, None for servers that are not verified
        self._clients: dict[str | None, HttpClient] = {}
        # CA file -> its modification time, and its content
        self._trust: dict[str, tuple[int, ssl.SSLContext]] = {}
        self._reading: dict[str, asyncio.Task[Any]] = {}  # path -> task that reads it

    async def http_get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = 5.0,
        ca_file: str = "",
        insecure: bool = False,
        bearer_token_file: str = "",
    ) -> bytes:
        if bearer_token_file:
            token = await self._read(bearer_token_file, _token, timeout_seconds)
            headers = {**(headers or {}), "Authorization": f"Bearer {token}"}
        key = None if insecure else ca_file
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = HttpClient(client_context(verifies=False) if insecure else None)
        if ca_file and not insecure:
            client.tls = await self._read(ca_file, self._trusted, timeout_seconds)
        answer = await client.send(
            "GET", url, headers=headers or {}, timeout_seconds=timeout_seconds, most_bytes=MAX_BYTES
        )
        if not 200 <= answer.status <= 299:
            raise HttpError(f"GET {shown_url(url)}: {answer.status}: {answer.body[:256]!r}")
        return answer.body

    async def close(self) -> None:
        """Close all connections, without waiting for files."""
        for reading in self._reading.values():
            reading.cancel()
        for client in self._clients.values():
            await client.close()

    async def _read(self, path: str, read: Callable[[str], T], timeout_seconds: float) -> T:
        """Read a file once for all requests that wait for it.

        Raises:
            OSError: it cannot be read, or not in time.
        """
        reading = self._reading.get(path)
        if reading is None:
            ask = in_a_thread(partial(read, path), f"reading {path}", gives_up=False)
            reading = self._reading[path] = asyncio.create_task(ask, name=f"reading {path}")
            reading.add_done_callback(lambda _: self._reading.pop(path))
        done, _ = await asyncio.wait({reading}, timeout=timeout_seconds)
        if not done:
            raise OSError(f"{path}: not read within {timeout_seconds:g} seconds")
        result: T = reading.result()
        return result

    def _trusted(self, ca_file: str) -> ssl.SSLContext:
        """Return the TLS settings for a CA file; the file is read again after a change."""
        written = Path(ca_file).stat().st_mtime_ns
        known = self._trust.get(ca_file)
        if known is None or known[0] != written:
            try:
                context = client_context(read_regular(Path(ca_file)))
            except ssl.SSLError as error:
                raise OSError(f"{ca_file}: not certificates in PEM: {error}") from error
            known = self._trust[ca_file] = (written, context)
        return known[1]


def _token(path: str) -> str:
    try:
        token = read_regular(Path(path)).decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise OSError(f"{path}: not a bearer token") from error
    if not token or any(not character.isprintable() for character in token):
        raise OSError(f"{path}: not a bearer token")  # without its content
    return token


_NONE: Capabilities = MappingProxyType({})


class Parts(Shared):
    """`Shared`, and what plugins are built with. That suffices to evaluate pods that another scheduler places.

    Attributes:
        ports: the connections of the engine.
        web: the HTTP client of plugins; must be closed.
        guests: the compiled WebAssembly guests.
        features: the features of the active configuration; before, those of the default version.
    """

    def __init__(
        self,
        clock: Clock,
        observer: CycleObserver,
        in_tree: Mapping[str, type[Plugin]],
        *,
        max_in_unschedulable_seconds: float = 300.0,
        slice_seconds: float = math.inf,
        ports: Ports | None = None,
        budget: LoopBudget | None = None,
    ) -> None:
        self.ports = ports = ports or Ports(clock)
        super().__init__(
            clock,
            observer,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
            slice_seconds=slice_seconds,
            time=ports.time,
            budget=budget or LoopBudget(clock.monotonic, stopped=ports.stopped),
        )
        self._slice_seconds = slice_seconds
        self.web = WebClient()
        self.guests = GuestLibrary()
        self.features = features_of({})
        self._in_tree = in_tree

    def build(
        self,
        configuration: Configuration,
        api: ApiAccess = NO_API_SERVER,
        own: Capabilities = _NONE,
        extenders: Extenders | None = None,
    ) -> Generation:
        """Build every profile as `build_in_steps`, without pauses."""
        return run_to_end(self.build_in_steps(configuration, self.registry(), api, own, extenders))

    def build_in_steps(
        self,
        configuration: Configuration,
        registry: Registry,
        api: ApiAccess,
        own: Capabilities,
        extenders: Extenders | None,
    ) -> Generator[None, None, Generation]:
        """Build every profile of a configuration, plugins included, without activating it.

        Each step takes a few milliseconds at most, except for the steps of slow plugins.

        Args:
            configuration: the configuration.
            registry: holds what was already imported.
            api: the access to the API server.
            own: capabilities that replace those of `capabilities`.
            extenders: the extenders of all profiles; None if extenders must not be called.

        Raises:
            ConfigurationError: a plugin is unknown, broken, or has bad arguments.
        """
        common = self.capabilities()
        frameworks = yield from build_in_steps(
            configuration,
            registry,
            lambda profile: {**common, **api.capabilities(profile), **own},
            self.observer,
            self.budget,
        )
        needs = needs_of(frameworks.values())
        if extenders is not None:
            needs = together([needs, extenders.needs])
        needs = replace(needs, pod_rules=PodRules.of(configuration.features.enabled))
        return Generation(configuration, frameworks, needs, extenders, self.clock, registry, self.time)

    def activate(self, generation: Generation) -> None:
        """Use the profiles, the extenders and the times of a configuration; must be called between two cycles."""
        self.profiles.swap(
            generation.frameworks,
            generation.extenders,
            preempts_for_resizes=generation.preempts_for_resizes,
        )
        self.configure(generation.configuration.settings)

    def registry(self) -> Registry:
        """Return a new registry: a registry keeps the code it has read, and a plugin file may have changed."""
        return Registry(self._in_tree, self.guests)

    def capabilities(self) -> Capabilities:
        """Return the capabilities of plugins that are the same in every command."""
        return {
            AssumedPods: self.cache,
            Clock: self.time,
            ClusterObjects: TableObjects(self.cache.table),
            HttpGet: self.ports.http_get(self.web),
            SlicedWork: WithoutSlices(),
            NominatedPods: self.nominator,
            PluginMetrics: self.observer,
            PodActivator: self.bus,
            PodGroupMembers: self.cache.groups,
            PodGroupObjects: self.profiles,
            Preemptions: NoPreemptions(),
            QueuedPods: self.queue,
            Sleep: LoopSleep(),
            KeyedLock: AsyncioKeyedLock(),
            TimeSlice: LoopTimeSlice(self.time, self._slice_seconds),
            VictimReview: ExtenderReview(self.profiles),
            WaitForEvent: self.bus,
            WaitingPods: self.waiting_pods,
        }

    def fill(
        self,
        needs: Needs,
        *,
        nodes: Iterable[NodeObject] = (),
        bound_pods: Iterable[PodInfo] = (),
        others: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Add the objects of a known cluster; `others` is kind -> `namespace/name` -> object."""
        for kind in needs.kinds:
            self.cache.table.watch_kind(kind).update(others.get(kind, {}))
        for node in nodes:
            self.cache.add_node(node)
        for pod in bound_pods:
            self.cache.add_pod(trimmed(pod.under(needs.pod_rules), needs))

    def configure(self, settings: KubeSchedulerConfiguration) -> None:
        """Apply a configuration's times for pods and nodes, and evaluate every pod of the queue again."""
        self.budget.seconds = settings.attempt_budget.seconds
        self.budget.forget()
        self.features = features_of(settings.feature_gates, settings.emulated_version)
        self.observer.follow(self.features)
        self.queue.reload(
            initial_backoff_seconds=settings.pod_initial_backoff_seconds,
            max_backoff_seconds=settings.pod_max_backoff_seconds,
            pops_from_backoff=self.features.enabled("SchedulerPopFromBackoffQ"),
        )
        self.cache.copied_labels = TOPOLOGY_LABELS if self.features.enabled("PodTopologyLabels") else ()
        self.cache.pauses.configure(
            initial_seconds=settings.node_pause_initial_seconds,
            max_seconds=settings.node_pause_max_seconds,
        )

    def object_handler(self, kind: str) -> ObjectHandler:
        """Return the handler of objects of a kind; the kind is kept from then on.

        Raises:
            ValueError: the kind has another format.
        """
        return ObjectHandler(self, kind)


class Cycles:
    """Schedules the pods of a queue: from the decision to the Binding, with the handling of failures.

    Args:
        api: the access to the API server.
        is_leading: whether writes are allowed now.
        random: breaks ties between nodes.
        preemptions: receives the preemptions; None for the executor, which evicts pods.
    """

    def __init__(
        self,
        parts: Parts,
        api: ApiAccess,
        *,
        is_leading: Callable[[], bool],
        random: Random,
        sampling: NodeSampling,
        preemptions: NotedPreemptions | None = None,
    ) -> None:
        random = parts.time.random(random)
        engine_is_leading = parts.ports.is_leading(is_leading)

        def spawn(work: Coroutine[Any, Any, None], name: str) -> object:
            return api.spawn(parts.time.task(work, name), name)

        self.sampling = sampling
        self.attempts = AttemptLog()
        self.group_attempts = GroupLog(parts.clock)
        self.reporter = Reporter(api.recorders, api.writer, is_leading=is_leading, newest=parts.pods.get)
        self.failures = FailureHandler(parts, self.reporter)
        self.binding = BindingCycle(
            parts, self.reporter, self.failures, api.reader, is_leading=engine_is_leading
        )
        executor = PreemptionExecutor(
            parts, binding=self.binding, writer=api.writer, reporter=self.reporter, spawn=spawn
        )
        self.preemptions = preemptions or executor
        self.past_preemptions: Sequence[PastPreemption] = executor.past
        self.rejections = KubeletRejections(
            parts, reader=api.reader, reporter=self.reporter, is_leading=engine_is_leading
        )
        self.pod_handler = QueueingPodHandler(parts, self.reporter, self.rejections.left)
        self.long = LongAttempts(parts, self.failures)
        self.pods = PodCycle(
            parts,
            binding=self.binding,
            failures=self.failures,
            reporter=self.reporter,
            random=random,
            sampling=sampling,
            attempts=self.attempts,
            long=self.long,
        )
        self.groups = PodGroupCycle(
            parts,
            pods=self.pods,
            binding=self.binding,
            failures=self.failures,
            preemptions=self.preemptions,
            random=random,
            release=GroupRelease(api.writer, self.reporter, spawn),
            attempts=self.group_attempts,
        )
        executor.let_go = self.groups.let_go
        self.scheduler = Scheduler(
            parts,
            pods=self.pods,
            groups=self.groups,
            binding=self.binding,
            long=self.long,
            counted_late=self.reporter.counted_late,
        )
        self._parts = parts

    def capabilities(self) -> Capabilities:
        """Return the capabilities of plugins whose pods these cycles place on a running event loop."""
        parts = self._parts
        return {
            SlicedWork: TimeSlices(parts.freeze, parts.time),
            Preemptions: self.preemptions,
        }


def limited(requests: Requests, settings: ClientConnection) -> Requests:
    """Return requests limited to the configured rate, if there is one."""
    if settings.qps <= 0:
        return requests
    return RateLimitedRequests(requests, qps=settings.qps, burst=settings.burst or math.ceil(settings.qps))
