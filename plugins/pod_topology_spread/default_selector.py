"""Selects the pods that belong together with a pod, by its Services and its controller.

Source:
    kube-scheduler v1.36, plugins/helper/spread.go, DefaultSelector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.loop_work import run_to_end
from scheduler.objects.caches import BoundedDict, Remembered
from scheduler.objects.label_index import RuleIndex
from scheduler.objects.meta import ApiStruct
from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorError, read_label_selector
from scheduler.snapshot import Objects

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

SERVICES: Final = "v1/services"
REPLICATION_CONTROLLERS: Final = "v1/replicationcontrollers"
REPLICA_SETS: Final = "apps/v1/replicasets"
STATEFUL_SETS: Final = "apps/v1/statefulsets"
KINDS: Final = frozenset({SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS})

_CONTROLLERS: Final = {
    ("v1", "ReplicationController"): REPLICATION_CONTROLLERS,
    ("apps/v1", "ReplicaSet"): REPLICA_SETS,
    ("apps/v1", "StatefulSet"): STATEFUL_SETS,
}
_CACHE_SIZE = 4096
_NOTHING: Final = Objects()


class _LabelsSpec(ApiStruct, frozen=True):
    selector: dict[str, str] | None = None


class _SelectsByLabels(ApiStruct, frozen=True):
    """The fields of a Service or ReplicationController that are read."""

    spec: _LabelsSpec | None = None


class _SelectorSpec(ApiStruct, frozen=True):
    selector: LabelSelector | None = None


class _SelectsBySelector(ApiStruct, frozen=True):
    """The fields of a ReplicaSet or StatefulSet that are read."""

    spec: _SelectorSpec | None = None


class _Services:
    """The selectors of the Services of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._version = 0
        # Key -> the object, its selector.
        self._known: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {}
        self._index: RuleIndex[str] = RuleIndex()  # keys, by one of the labels of the selector
        # Labels of pods that have many, by identity -> these labels, the result of `rule_for`.
        self._merged: BoundedDict[int, tuple[Mapping[str, str], LabelRule]] = BoundedDict(_LARGE_PODS)

    def unread(self, services: Objects, labels: Mapping[str, str]) -> Generator[None, None, None] | None:
        """Return the work, in steps, before `rule_for` is fast; None if there is none."""
        if services.version(self._namespace) == self._version and not self._is_unmerged(labels):
            return None
        return self._read(services, labels)

    def _read(self, services: Objects, labels: Mapping[str, str]) -> Generator[None, None, None]:
        if services.version(self._namespace) != self._version:
            yield from self._follow(services)
        if self._is_unmerged(labels):
            yield from self._merge(labels)

    def _is_unmerged(self, labels: Mapping[str, str]) -> bool:
        return len(labels) > _MANY_LABELS and id(labels) not in self._merged

    def _follow(self, services: Objects) -> Generator[None, None, None]:
        """Read the changes; Services may change between two steps."""
        version = services.version(self._namespace)
        current = services.in_namespace(self._namespace)
        for key in self._known.keys() - current.keys():
            self._forget(key)
        read = 0
        for key, service in list(current.items()):
            known = self._known.get(key)
            if known is not None and known[0] is service:
                continue
            if known is not None:
                self._forget(key)
            selector = _selected_labels(service)
            self._known[key] = service, selector
            if selector:  # an empty selector adds nothing
                self._index.add(_first_label(selector), key)
            read += 1 + len(selector) // _LABELS_OF_A_SERVICE
            if read >= _READ_A_STEP:
                read = 0
                yield
        self._version = version
        self._merged.clear()

    def _forget(self, key: str) -> None:
        _, selector = self._known.pop(key)
        if selector:
            self._index.remove(_first_label(selector), key)

    def rule_for(self, labels: Mapping[str, str]) -> LabelRule:
        """Return the selectors of all Services that select a pod, merged; they cannot contradict each other."""
        known = self._merged.get(id(labels))
        if known is not None:
            return known[1]
        merged: dict[str, str] = {}
        for key in self._index.candidates(labels):
            _update(merged, self._known[key][1], labels)
        return _rule_of(merged) if merged else _UNSELECTED

    def _merge(self, labels: Mapping[str, str]) -> Generator[None, None, None]:
        """Merge the selectors for a pod with many labels, one by one; Services may change between two steps."""
        version, merged = self._version, dict[str, str]()
        for key in list(self._index.candidates(labels)):
            yield
            if self._version != version or key not in self._known:
                return
            _update(merged, self._known[key][1], labels)
        yield
        rule = _rule_of(merged)
        hash(rule)  # is stored
        if self._version == version:
            self._merged[id(labels)] = labels, rule


def _rule_of(labels: Mapping[str, str]) -> LabelRule:
    return LabelRule((), tuple(sorted(labels.items()))) if labels else _UNSELECTED


def _update(merged: dict[str, str], selector: Mapping[str, str], labels: Mapping[str, str]) -> None:
    if selector.items() <= labels.items():
        merged.update(selector)


_READ_A_STEP: Final = 256
"""The number of Services that one step reads. A step takes about two milliseconds."""
_MANY_LABELS: Final = 1024
"""The selectors for a pod with more labels are merged in steps."""
_LARGE_PODS: Final = 16
"""The number of such pods whose merged selectors are kept."""
_LARGE_CONTROLLERS: Final = 16
"""The number of controllers with selectors of more than about a megabyte whose selectors are kept."""
_LABELS_OF_A_SERVICE: Final = 64
"""The number of labels of a selector that take as long to read as another Service."""


def _first_label(selector: Mapping[str, str]) -> LabelRule:
    return LabelRule((), (next(iter(selector.items())),))


class DefaultSelectors:
    """Finds the pods with which a pod without constraints of its own is spread."""

    def __init__(self) -> None:
        self._objects: dict[str, Objects] = {}  # by kind; they follow the cluster
        self._services: BoundedDict[str, _Services] = BoundedDict(_CACHE_SIZE)  # by namespace
        self._controllers: Remembered[str, tuple[Mapping[str, Any], LabelRule]] = Remembered()
        self._large: BoundedDict[str, tuple[Mapping[str, Any], LabelRule]] = BoundedDict(_LARGE_CONTROLLERS)

    def look_at(self, snapshot: Snapshot) -> None:
        """Set the stores of the objects; unwatched kinds have none."""
        for kind in KINDS:
            found = snapshot.watched_objects(kind)
            if kind == SERVICES and found is not self._objects.get(kind):
                self._services.clear()
            self._objects[kind] = found

    def of(self, pod: PodInfo) -> LabelRule:
        """Return the combined rule of all selectors of the pod; without requirements if there are none.

        Invalid objects select nothing.
        """
        unread = self.unread(pod)
        if unread is not None:
            run_to_end(unread)
        rule = self._services[pod.namespace].rule_for(pod.labels)
        kind, place, controller = self._controller(pod)
        if controller is None:
            return rule
        if kind == REPLICATION_CONTROLLERS:
            return _rule_of({**dict(rule.labels), **_selected_labels(controller)})
        more = self._known(place, controller) or _UNSELECTED
        return LabelRule(more.expressions, (*rule.labels, *more.labels)) if rule.labels else more

    def _controller(self, pod: PodInfo) -> tuple[str, str, Mapping[str, Any] | None]:
        """Return the kind of a pod's controller, its kind and key as one text, and the controller if it exists."""
        for owner in pod.pod.metadata.owner_references:
            kind = _CONTROLLERS.get((owner.api_version, owner.kind)) if owner.controller else None
            if kind is not None:
                key = f"{pod.namespace}/{owner.name}"
                return kind, f"{kind}/{key}", self._objects.get(kind, _NOTHING).get(key)
        return "", "", None

    def unread(self, pod: PodInfo) -> Generator[None, None, None] | None:
        """Return the work, in steps, before the selectors of a pod are known; None if there is none."""
        found = self._services.get(pod.namespace)
        if found is None:
            found = self._services[pod.namespace] = _Services(pod.namespace)
        services = found.unread(self._objects.get(SERVICES, _NOTHING), pod.labels)
        kind, place, controller = self._controller(pod)
        if (
            controller is None
            or kind == REPLICATION_CONTROLLERS
            or self._known(place, controller) is not None
        ):
            return services
        return self._read(services, place, controller)

    def _known(self, place: str, controller: Mapping[str, Any]) -> LabelRule | None:
        """Return the selector of a version of a controller, if it was read."""
        known = self._controllers.get(place) or self._large.get(place)
        return None if known is None or known[0] is not controller else known[1]

    def _read(
        self, services: Generator[None, None, None] | None, place: str, controller: Mapping[str, Any]
    ) -> Generator[None, None, None]:
        if services is not None:
            yield from services
        rule = yield from _selector_of(controller)
        self._controllers.keep(place, (controller, rule), rule.length)
        if self._controllers.get(place) is None:
            self._large[place] = controller, rule


_UNSELECTED: Final = LabelRule(())


def _selected_labels(found: Mapping[str, Any]) -> dict[str, str]:
    try:
        spec = msgspec.convert(found, _SelectsByLabels).spec
    except msgspec.ValidationError:
        return {}
    return {} if spec is None or spec.selector is None else spec.selector


def _selector_of(found: Mapping[str, Any]) -> Generator[None, None, LabelRule]:
    """Return the selector of a ReplicaSet or StatefulSet, in steps; an empty one if it is missing or invalid."""
    try:
        spec = msgspec.convert(found, _SelectsBySelector).spec
        if spec is None or spec.selector is None:
            return _UNSELECTED
        rule = yield from read_label_selector(spec.selector)
    except (msgspec.ValidationError, SelectorError):
        return _UNSELECTED
    return rule if rule.count else _UNSELECTED
