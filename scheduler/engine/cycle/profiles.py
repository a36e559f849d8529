"""The active profiles, which the cycles, the queue and the watches use."""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from scheduler.errors import ObjectError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler.engine.runtime.framework import Framework
    from scheduler.extensions.extenders.chain import Extenders
    from scheduler.framework.events import EventWithHint
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
    """

    def __init__(self) -> None:
        self.frameworks: Mapping[str, Framework] = MappingProxyType({})
        self.extenders: Extenders | None = None

    def swap(self, frameworks: Mapping[str, Framework], extenders: Extenders | None = None) -> None:
        """Replace all profiles and extenders at once; must be called between two scheduling cycles."""
        self.frameworks, self.extenders = MappingProxyType(dict(frameworks)), extenders or None

    def __contains__(self, scheduler_name: object) -> bool:
        return scheduler_name in self.frameworks

    def __iter__(self) -> Iterator[str]:
        return iter(self.frameworks)

    def pod_group(self, key: GroupKey) -> PodGroup | None:
        """Return a group from its object, read by any profile that reads its kind; implements `PodGroupObjects`."""
        for framework in self.frameworks.values():
            if key.kind in framework.groups:
                with suppress(ObjectError):
                    return framework.groups[key.kind].pod_group(key)
        return None

    # Calls of the queue.

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        return self.frameworks[queued.pod.scheduler_name].sort_key(queued)

    def run_pre_enqueue(self, pod: PodInfo) -> Status:
        return self.frameworks[pod.scheduler_name].run_pre_enqueue(pod)

    def group_of(self, pod: PodInfo) -> GroupKey | None:
        key = pod.group
        framework = None if key is None else self.frameworks.get(pod.scheduler_name)
        return key if key is not None and framework is not None and key.kind in framework.groups else None

    def events(self, profile: str) -> Mapping[str, Sequence[EventWithHint]]:
        framework = self.frameworks.get(profile)
        return _NOTHING_REGISTERED if framework is None else framework.events
