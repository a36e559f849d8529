"""What plugins of groups have in common, for all kinds of group objects.

Source:
    kube-scheduler v1.36, plugins/gangscheduling/gangscheduling.go.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from scheduler.errors import FieldError, ObjectError
from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    PermitPlugin,
    PluginArgs,
    PodGroupPlugin,
    PreEnqueuePlugin,
    QueueingHint,
    Status,
    Wait,
)
from scheduler.objects.pod import PodInfo
from scheduler.objects.pod_group import GroupKey
from scheduler.snapshot import object_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scheduler.framework import CycleState, PodGroup


_RETRY: Final = "Retry"
_RELEASE: Final = "Release"


class GangArgs(PluginArgs, frozen=True):
    """Arguments that kube-scheduler does not have.

    Attributes:
        on_partial_failure: what happens to a gang with some bound pods when too many others cannot be bound: `Retry`
            tries the others again, `Release` deletes the bound pods as well, so that their controller creates all again.
    """

    on_partial_failure: str = _RETRY

    @property
    def releases(self) -> bool:
        return self.on_partial_failure == _RELEASE

    def faults(self) -> Iterator[FieldError]:
        if self.on_partial_failure not in {_RETRY, _RELEASE}:
            problem = f"must be one of {_RETRY}, {_RELEASE}, was {self.on_partial_failure!r}"
            yield FieldError("onPartialFailure", problem)


class Gangs(PreEnqueuePlugin, PermitPlugin, PodGroupPlugin):
    """Holds members of a gang until enough of them exist; members with a node then wait until enough of them fit.

    Attributes:
        group_events: kind of groups -> the actions that may help a member.
    """

    group_events: ClassVar[Mapping[str, ActionType]] = {}

    @abstractmethod
    def refusal(self, pod: PodInfo, key: GroupKey, group: PodGroup | None) -> Status | None:
        """Return why no member of a group may be tried yet; the group is None if its object does not exist.

        Only the pod's name is read.
        """

    @abstractmethod
    def is_enough(self, group: PodGroup) -> bool:
        """Return whether enough members are placed for them to run."""

    @abstractmethod
    def not_found(self, key: GroupKey) -> Status:
        """Return the status of a member whose group's object was deleted during the attempt."""

    @abstractmethod
    def permit_seconds(self, group: PodGroup) -> float:
        """Return how long, in seconds, a member with a node waits for the others."""

    def events(self) -> Sequence[EventWithHint]:
        """Register for pods and objects of the same group, which help once there are enough of its pods."""
        added = ClusterEvent(EventResource.POD, ActionType.ADD)
        return (
            EventWithHint(
                added, partial(self._hint, ""), self.own_group, partial(_event_keys, ""), self._awaited
            ),
            *(
                EventWithHint(
                    ClusterEvent(EventResource.of(kind), action),
                    partial(self._hint, kind),
                    self.own_group,
                    partial(_event_keys, kind),
                    self._awaited,
                )
                for kind, action in self.group_events.items()
            ),
        )

    def _hint(self, kind: str, pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        key = self.own_group(pod)
        helps = key is not None and key in _event_keys(kind, old, new) and self._refusal(pod, key) is None
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _awaited(self, pod: PodInfo) -> tuple[GroupKey, ...]:
        key = self.own_group(pod)
        return () if key is None else (key,)

    def own_group(self, pod: PodInfo) -> GroupKey | None:
        """Return the group of a pod if its kind belongs to this plugin: hints read nothing else of a waiting pod."""
        key = pod.group
        return key if key is not None and key.kind in self.group_kinds else None

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        key = self.own_group(pod)
        return None if key is None else self._refusal(pod, key)

    def _refusal(self, pod: PodInfo, key: GroupKey) -> Status | None:
        try:
            return self.refusal(pod, key, self.pod_group(key))
        except ObjectError as error:
            return Status.failed(f"failed to get pod group {key.key}: {error}", error)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Wait | None:
        key = self.own_group(pod)
        if key is None:
            return None
        group = self.pod_group(key)
        if group is None:
            return self.not_found(key)
        return None if self.is_enough(group) else Wait(self.permit_seconds(group))


def _event_keys(kind: str, old: Any, new: Any) -> tuple[GroupKey, ...]:
    """Return the group of an event: at most one, and none if only a status changed."""
    if isinstance(new, PodInfo):
        return () if new.group is None else (new.group,)
    if old is not None and old.get("spec") == new.get("spec"):
        return ()
    namespace, _, name = object_key(new).partition("/")
    return (GroupKey(kind, namespace, name),)
