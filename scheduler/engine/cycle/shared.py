"""The objects that event handlers and cycles share: the active profiles, the state, the queue and the event bus."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.engine.cycle.event_bus import EventBus
from scheduler.engine.cycle.time_slices import ClusterFreeze
from scheduler.engine.ports import Time
from scheduler.engine.queue.scheduling_queue import SchedulingQueue
from scheduler.engine.runtime.budget import LoopBudget
from scheduler.engine.runtime.plugin_classes import enforces_quotas
from scheduler.engine.runtime.waiting_pods import WaitingPodsMap
from scheduler.engine.sharding.shards import is_passed_on
from scheduler.engine.state.cache import Cache
from scheduler.engine.state.nominator import Nominator
from scheduler.errors import ObjectError
from scheduler.framework.status import SUCCESS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler.clock import Clock
    from scheduler.engine.cycle.observer import CycleObserver
    from scheduler.engine.runtime.framework import Framework
    from scheduler.engine.sharding.shards import Shards
    from scheduler.extensions.extenders import Extenders
    from scheduler.framework.events import EventWithHint
    from scheduler.framework.group_plugins import PodGroupPlugin
    from scheduler.framework.interface import Plugin
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.objects.pod_group import GroupKey

_NOTHING_REGISTERED: Mapping[str, Sequence[EventWithHint]] = MappingProxyType({})


class Profiles:
    """The profiles by schedulerName, and the extenders; implements `QueuePlugins`.

    There are no profiles before the first `swap`.

    Attributes:
        frameworks: schedulerName -> profile.
        extenders: the extenders for pods of all profiles; None without extenders.
        preempts_for_resizes: whether pods on nodes are tried while their resize is deferred, as with the gate
            InPlacePodVerticalScalingSchedulerPreemption.
        shards: the division of pods and nodes among several replicas that place pods; None if one places all pods.
    """

    def __init__(self) -> None:
        self.frameworks: Mapping[str, Framework] = MappingProxyType({})
        self.extenders: Extenders | None = None
        self.preempts_for_resizes = False
        self.shards: Shards | None = None
        self._with_quotas: frozenset[str] = frozenset()

    def swap(
        self,
        frameworks: Mapping[str, Framework],
        extenders: Extenders | None = None,
        *,
        preempts_for_resizes: bool = False,
    ) -> None:
        """Replace all profiles and extenders at once; must be called between two scheduling cycles."""
        self.frameworks, self.extenders = MappingProxyType(dict(frameworks)), extenders or None
        self.preempts_for_resizes = preempts_for_resizes
        self._with_quotas = frozenset(name for quotas in self.with_quotas() for name in quotas)

    def has_quota(self, pod: PodInfo) -> bool:
        """Return whether the profile of a pod enforces quotas."""
        return pod.scheduler_name in self._with_quotas

    def is_only_bound(self, pod: PodInfo) -> bool:
        """Return whether this one of several replicas only binds a pod to its nominated node: another one decided about it."""
        return self.shards is not None and is_passed_on(pod) and not self.shards.decides(pod)

    def tries_resize_of(self, pod: PodInfo) -> bool:
        """Return whether a pod is on a node and waits in the queue until that has the capacity for its resize."""
        return (
            self.preempts_for_resizes
            and pod.has_deferred_resize
            and pod.scheduler_name in self.frameworks
            and not (pod.is_terminating or pod.is_terminal)
        )

    def __contains__(self, scheduler_name: object) -> bool:
        return scheduler_name in self.frameworks

    def __iter__(self) -> Iterator[str]:
        return iter(self.frameworks)

    def _readers(self, key: GroupKey) -> Iterator[PodGroupPlugin]:
        """Yield the plugins that read groups of a kind, one for each profile that has one."""
        for framework in self.frameworks.values():
            if key.kind in framework.group_readers:
                yield framework.group_readers[key.kind]

    def pod_group(self, key: GroupKey) -> PodGroup | None:
        """Return a group from its object, read by any profile that reads its kind; implements `PodGroupObjects`."""
        for reader in self._readers(key):
            with suppress(ObjectError):
                return reader.pod_group(key)
        return None

    def tree(self, key: GroupKey) -> PodGroup | None:
        """Return a group with all groups below it; implements `PodGroupObjects`."""
        for reader in self._readers(key):
            with suppress(ObjectError):
                return reader.tree(key)
        return None

    def lineage(self, key: GroupKey) -> Sequence[PodGroup]:
        """Return a group and the groups above it; implements `PodGroupObjects`."""
        for reader in self._readers(key):
            with suppress(ObjectError):
                return reader.lineage(key)
        return ()

    def tree_of(self, key: GroupKey) -> Sequence[GroupKey]:
        """Return the groups of pods in a group's tree."""
        for reader in self._readers(key):
            with suppress(ObjectError):
                return reader.leaf_keys(key)
        return (key,)

    def leaves_below(self, key: GroupKey) -> Sequence[GroupKey]:
        """Return the groups of pods below a composite group; or the group itself."""
        tree = self.tree(key)
        return (key,) if tree is None else [leaf.key for leaf in tree.leaves]

    def with_quotas(self) -> Sequence[Mapping[str, Plugin]]:
        """Return the plugins that enforce quotas, by schedulerName, for each class of them."""
        found: dict[type[Plugin], dict[str, Plugin]] = {}
        for name, framework in self.frameworks.items():
            for plugin in framework.plugins.all():
                if enforces_quotas(plugin):
                    found.setdefault(type(plugin), {})[name] = plugin
        return list(found.values())

    # Calls of the queue.

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        return self.frameworks[queued.pod.scheduler_name].sort_key(queued)

    def run_pre_enqueue(self, pod: PodInfo) -> Status:
        if self.shards is not None and self.is_only_bound(pod):
            # The replica that decided let it pass, with the others of its group.
            return SUCCESS
        return self.frameworks[pod.scheduler_name].run_pre_enqueue(pod)

    def group_of(self, pod: PodInfo) -> GroupKey | None:
        key = pod.group
        framework = None if key is None else self.frameworks.get(pod.scheduler_name)
        if key is None or framework is None or key.kind not in framework.groups:
            return None
        # Members on nodes are resized one by one, and those of other replicas are bound one by one.
        is_only_bound = self.shards is not None and self.is_only_bound(pod)
        return None if pod.has_deferred_resize or is_only_bound else key

    def entity_of(self, pod: PodInfo) -> GroupKey | None:
        key = self.group_of(pod)
        is_entity = key is not None and self.frameworks[pod.scheduler_name].groups[key.kind].are_entities
        return self.root_of(pod) if is_entity else None

    def groups_with(self, pod: PodInfo) -> Sequence[GroupKey]:
        key = self.group_of(pod)
        if key is None:
            return ()
        with suppress(ObjectError):
            return self.frameworks[pod.scheduler_name].groups[key.kind].leaf_keys(key)
        return (key,)

    def root_of(self, pod: PodInfo) -> GroupKey | None:
        key = self.group_of(pod)
        if key is None:
            return None
        with suppress(ObjectError):
            return self.frameworks[pod.scheduler_name].groups[key.kind].root_key(key)
        return key

    def events(self, profile: str) -> Mapping[str, Sequence[EventWithHint]]:
        framework = self.frameworks.get(profile)
        return _NOTHING_REGISTERED if framework is None else framework.events


class Shared:
    """One instance of each shared object.

    Attributes:
        clock: the clock for measurements.
        time: the time of decisions.
        observer: receives measurements.
        pods: `namespace/name` -> last version of a pod from the watch, of all schedulers.
        cache: the nodes, and the pods on them.
        nominator: the nominated pods.
        profiles: the active profiles.
        waiting_pods: the pods held at Permit.
        queue: the pending pods of this scheduler; empty if other processes place all pods.
        freeze: active while the state must not change.
        bus: dispatches cluster events.
        budget: how long calls may hold the event loop.
    """

    def __init__(
        self,
        clock: Clock,
        observer: CycleObserver,
        *,
        max_in_unschedulable_seconds: float = 300.0,
        slice_seconds: float = inf,
        time: Time | None = None,
        budget: LoopBudget | None = None,
    ) -> None:
        self.clock = clock
        self.time = time or Time(clock)
        self.observer = observer
        self.pods: dict[str, PodInfo] = {}
        self.cache = Cache(in_slices=slice_seconds < inf)
        self.nominator = Nominator()
        self.profiles = Profiles()
        self.waiting_pods = WaitingPodsMap(observer)
        self.queue = SchedulingQueue(
            plugins=self.profiles,
            nominator=self.nominator,
            groups=self.cache.groups,
            time=self.time,
            observer=observer,
            max_in_unschedulable_seconds=max_in_unschedulable_seconds,
            slice_seconds=slice_seconds,
        )
        self.freeze = ClusterFreeze(self.time)
        self.bus = EventBus(self.queue)
        self.budget = budget or LoopBudget(clock.monotonic)

    def is_ours(self, pod: PodInfo) -> bool:
        """Return whether a pending pod belongs into the queue."""
        return pod.scheduler_name in self.profiles and (
            self.profiles.shards is None or self.profiles.shards.takes(pod)
        )
