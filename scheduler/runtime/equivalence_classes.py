"""Pods alike share a whole decision, as far as it depends on one node at a time.

Between two pods of a Deployment one node changes: the one that the first of them went to. So of each class of pods
the combined verdict of the filters and the weighted total of the scores are kept, and judged again where nodes changed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.interface import Plugin
from scheduler.runtime.answers import signature_of
from scheduler.runtime.budget import is_ours
from scheduler.runtime.kept_verdicts import gives_signatures
from scheduler.runtime.points import overrides
from scheduler.runtime.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from scheduler.framework.pod_groups import PodGroup
    from scheduler.objects.pod import PodInfo
    from scheduler.runtime.calls import PluginCalls
    from scheduler.runtime.ranking import Ranking
    from scheduler.snapshot import Snapshot

    _Key = tuple[PodGroup | None, tuple[Hashable, ...]]
    """The group that a pod is tried with, and its signature for each plugin that gives any."""

_MOST_CLASSES = 128
"""Classes kept per profile; the one that had no pod for the longest goes first."""
_MOST_FIRST_PODS = 1024
"""Classes of one pod so far that are remembered, by their hash; the oldest goes first."""
_LARGEST_POD_BYTES = 32 * 1024
"""Of larger pods nothing is kept: what they say would fill memory, and comparing it takes longer than judging anew."""


@dataclass(slots=True)
class Prepared:
    """What plugins said of a class of pods before any node was judged: at PreFilter or PreScore.

    Attributes:
        state: what they wrote.
        keys: plugin -> the keys in the state under which it wrote.
        skipped: the plugins that had nothing to say.
        others: the plugins that have to be asked for each pod.
    """

    state: CycleState
    keys: Mapping[str, frozenset[str]]
    skipped: frozenset[str]
    others: Sequence[Any]


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """Pods that no plugin which gives signatures can tell apart.

    Attributes:
        signatures: plugin -> signature, without those that gave none.
        versions: plugin -> its version; with another the class is made anew.
        group: the group that its pods are tried with; None where they are tried by themselves.
        is_kept: whether it had a pod before: what is said of its first is not worth keeping, it may be the only one.
        was_prepared: whether PreFilter was asked.
        pre_filter: what was said there; None where a plugin rejects or narrows, which it does for each pod anew.
        pre_score: likewise at PreScore; None until it was asked.
        standing: plugins skipped at Filter -> what the filters say of each node.
        rankings: likewise what the scorers say, once they were asked.
    """

    signatures: Mapping[str, Hashable]
    versions: Mapping[str, Hashable]
    group: PodGroup | None = None
    is_kept: bool = False
    was_prepared: bool = False
    pre_filter: Prepared | None = None
    pre_score: Prepared | None = None
    standing: dict[frozenset[str], Standing] = field(default_factory=dict)
    rankings: dict[frozenset[str], Ranking] = field(default_factory=dict)

    def new_state(self) -> CycleState:
        """Return a state in which plugins are asked about all pods of the class."""
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
        # Whose hash is another's as well is only kept one pod too early.
        self._first_pods: dict[int, None] = {}

    def of(self, pod: PodInfo, group: PodGroup | None, snapshot: Snapshot) -> EquivalenceClass | None:
        """Return the class of a pod that is tried with a group, or by itself; None where nothing can be shared.

        A plugin that raises, or gives what is no key, is found out when it is asked by itself.
        """
        if snapshot.changes is None or not self._signing or is_too_large(pod):
            return None
        try:
            key = group, tuple([signature(pod) for _, signature in self._signing])
            known = self._classes.get(key)
            versions = {plugin.name: self._calls.version(plugin) for plugin in self._versioned}
        except Exception:  # noqa: BLE001 - an author's code; it is called again where its failure has a name
            return None
        if known is None or known.versions != versions:
            return self._meet(key, versions)
        self._classes.move_to_end(key)
        return known

    def _meet(self, key: _Key, versions: Mapping[str, Hashable]) -> EquivalenceClass:
        """Return a new class, which is kept if its pod is not the first of its kind."""
        self._classes.pop(key, None)  # of other versions
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
            if len(self._classes) > _MOST_CLASSES:
                self._classes.popitem(last=False)
        else:
            self._first_pods[short] = None
            if len(self._first_pods) > _MOST_FIRST_PODS:
                del self._first_pods[next(iter(self._first_pods))]
        return made

    def forget(self) -> None:
        """Drop everything, as after a change of the configuration."""
        self._classes.clear()
        self._first_pods.clear()


def is_too_large(pod: PodInfo) -> bool:
    """Say whether nothing is kept of a pod because of its size."""
    return pod.raw is not None and len(pod.raw) > _LARGEST_POD_BYTES


_CLASS: Final = "runtime/EquivalenceClass"
_STANDING: Final = "runtime/Standing"


def class_of(state: CycleState) -> EquivalenceClass | None:
    """Return the class of the pod that a state is of, where PreFilter found one."""
    return state.read(_CLASS, EquivalenceClass) if _CLASS in state else None


def signature_in(state: CycleState, plugin: Plugin, pod: PodInfo) -> Hashable | None:
    """Return a plugin's signature of the pod that a state is of.

    Raises:
        TypeError: it cannot be looked up.
    """
    alike = class_of(state)
    if alike is not None:
        return alike.signatures.get(plugin.name)
    return None if is_too_large(pod) else signature_of(plugin, pod)


def standing_of(state: CycleState) -> Standing | None:
    """Return what the filters of the pod's class say, where they were asked in this cycle."""
    return state.read(_STANDING, Standing) if _STANDING in state else None


def remember_class(state: CycleState, alike: EquivalenceClass) -> None:
    """Keep a pod's class for the points that follow."""
    state.write(_CLASS, alike)


def remember_standing(state: CycleState, standing: Standing) -> None:
    """Keep what the filters of the pod's class say for the points that follow."""
    state.write(_STANDING, standing)
