"""Equivalence classes: identical pods share the parts of a decision that depend on one node at a time.

Between two pods of a Deployment only one node changes: the node of the first pod. So the combined filter results and
the weighted total scores are cached for each class of pods, and only changed nodes are evaluated again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from scheduler.engine.runtime.budget import is_ours
from scheduler.engine.runtime.cached_verdicts import drop_oldest, gives_signatures
from scheduler.engine.runtime.calls import signature_of
from scheduler.engine.runtime.plugin_classes import overrides
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.interface import Plugin
from scheduler.objects.caches import BoundedDict

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from typing import Self

    from scheduler.engine.runtime.cached_scores import CachedScores
    from scheduler.engine.runtime.cached_verdicts import CachedFilterResult
    from scheduler.engine.runtime.calls import PluginCalls
    from scheduler.framework.interface import PreFilterPlugin, PreScorePlugin
    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot

    _Key = tuple[PodGroup | None, tuple[Hashable, ...]]
    """The group of the attempt, and the pod's signature for each plugin that implements `signature`."""

P = TypeVar("P", bound=Plugin)

_MOST_FIRST_PODS = 1024
"""Maximum number of remembered hashes of classes with one pod so far; the oldest hash is dropped first."""
_LARGEST_POD_BYTES = 32 * 1024
"""Larger pods are not cached: their signatures fill memory, and comparing them takes longer than an evaluation."""


@dataclass(slots=True)
class Prepared(Generic[P]):
    """The results of PreFilter or PreScore for a class of pods.

    Attributes:
        state: the data that the plugins wrote.
        keys: plugin -> the keys of its data in the state.
        skipped: the names of the plugins that returned Skip.
        others: the plugins that must be called for each pod.
    """

    state: CycleState
    keys: Mapping[str, frozenset[str]]
    skipped: frozenset[str]
    others: Sequence[P]


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Pods with equal signatures for all plugins that implement `signature`.

    Attributes:
        signatures: plugin -> signature, without plugins that returned None.
        versions: plugin -> version of its data; another version replaces the class.
        group: the group of the attempts at its pods; None for pods without a group.
        is_kept: whether results are cached: from the second pod on, because the first may be the only one.
        was_prepared: whether PreFilter ran.
        pre_filter: the results of PreFilter; None if a plugin rejects or narrows, which it repeats for each pod.
        pre_score: the results of PreScore; None until it ran.
        filter_result: plugins skipped at Filter -> the filter results of each node.
        nominated_result: plugins skipped at Filter -> the filter results of the nodes with nominated pods, with these
            pods on their nodes.
        rankings: plugins skipped at Filter -> the scores of each node.
    """

    signatures: Mapping[str, Hashable]
    versions: Mapping[str, Hashable]
    group: PodGroup | None = None
    is_kept: bool = False
    was_prepared: bool = False
    pre_filter: Prepared[PreFilterPlugin] | None = None
    pre_score: Prepared[PreScorePlugin] | None = None
    filter_result: dict[frozenset[str], CachedFilterResult] = field(default_factory=dict)
    nominated_result: dict[frozenset[str], CachedFilterResult] = field(default_factory=dict)
    rankings: dict[frozenset[str], CachedScores] = field(default_factory=dict)

    def new_state(self) -> CycleState:
        """Return a new state for calls that concern all pods of the class."""
        state = CycleState()
        state.group = self.group
        return state


class EquivalenceClasses:
    """The classes of one profile's pods."""

    def __init__(self, plugins: Iterable[Plugin], calls: PluginCalls) -> None:
        giving = [plugin for plugin in plugins if gives_signatures(plugin)]
        self._calls = calls
        self._signing = [
            (plugin.name, plugin.signature if is_ours(plugin) else partial(calls.signature, plugin))
            for plugin in giving
        ]
        self._versioned = [plugin for plugin in giving if overrides(plugin, Plugin, "version")]
        self._classes: OrderedDict[Hashable, EquivalenceClass] = OrderedDict()
        # A hash collision only caches a class one pod too early.
        self._first_pods: BoundedDict[int, None] = BoundedDict(_MOST_FIRST_PODS)

    def of(self, pod: PodInfo, group: PodGroup | None, snapshot: Snapshot) -> EquivalenceClass | None:
        """Return the class of a pod and the group of its attempt, or None if nothing can be shared.

        Exceptions and invalid signatures give None here; a later call of the plugin reports them.
        """
        if snapshot.changes is None or not self._signing or is_too_large(pod):
            return None
        try:
            key = group, tuple([signature(pod) for _, signature in self._signing])
            known = self._classes.get(key)
            versions = {plugin.name: self._calls.version(plugin) for plugin in self._versioned}
        except Exception:  # noqa: BLE001 - a later call of the plugin reports its failure
            return None
        if known is None or known.versions != versions:
            return self._meet(key, versions, snapshot.n_nodes)
        self._classes.move_to_end(key)
        return known

    def _meet(self, key: _Key, versions: Mapping[str, Hashable], n_nodes: int) -> EquivalenceClass:
        """Return a new class; it is cached if a pod of this class was seen before."""
        self._classes.pop(key, None)  # its versions differ
        short = hash(key)
        group, signatures = key
        names = (name for name, _ in self._signing)
        given = {
            name: signature
            for name, signature in zip(names, signatures, strict=True)
            if signature is not None
        }
        made = EquivalenceClass(given, versions, group, is_kept=short in self._first_pods)
        if made.is_kept:
            del self._first_pods[short]
            self._classes[key] = made
            drop_oldest(self._classes, n_nodes)
        else:
            self._first_pods[short] = None
        return made

    def forget(self) -> None:
        """Drop all classes, for example after a change of the configuration."""
        self._classes.clear()
        self._first_pods.clear()


def is_too_large(pod: PodInfo) -> bool:
    """Return whether a pod is too large for caching."""
    return pod.raw_size > _LARGEST_POD_BYTES


class AttemptState(CycleState):
    """The cycle state of one attempt at one pod, with the data that the runtime keeps; plugins do not read these.

    Attributes:
        pod_class: the class of the pod; None if PreFilter found no class.
        filter_result: the filter results of the class; None if the class was not used in this cycle.
        skipped_filters: plugins whose PreFilter returned SKIP, so that their Filter is not called.
        skipped_scores: plugins whose PreScore returned SKIP, so that their Score is not called.
    """

    __slots__ = ("filter_result", "pod_class", "skipped_filters", "skipped_scores")

    def __init__(
        self, nominated: Mapping[int, Sequence[PodInfo]] | None = None, *, exhaustive: bool = False
    ) -> None:
        super().__init__(nominated, exhaustive=exhaustive)
        self.pod_class: EquivalenceClass | None = None
        self.filter_result: CachedFilterResult | None = None
        self.skipped_filters: frozenset[str] = frozenset()
        self.skipped_scores: frozenset[str] = frozenset()

    def clone(self) -> Self:
        twin = super().clone()
        twin.pod_class, twin.filter_result = self.pod_class, self.filter_result
        twin.skipped_filters, twin.skipped_scores = self.skipped_filters, self.skipped_scores
        return twin

    def signature(self, plugin: Plugin, pod: PodInfo) -> Hashable | None:
        """Return a plugin's signature of the pod.

        Raises:
            TypeError: the signature is not hashable.
        """
        if self.pod_class is not None:
            return self.pod_class.signatures.get(plugin.name)
        return None if is_too_large(pod) else signature_of(plugin, pod)
