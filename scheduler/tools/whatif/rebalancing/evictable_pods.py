"""Which pods may be evicted: a controller replaces them, no data is lost, and no budget or protection is violated.

Source:
    cluster-autoscaler 1.36, simulator/drainability/rules, for pods that keep their node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from scheduler.engine.cycle.explanation import Explainer
from scheduler.engine.cycle.verdict import protected_text
from scheduler.objects.meta import ApiStruct
from scheduler.tools.whatif.eviction_budgets import BUDGETS, EvictionBudgets
from scheduler.tools.whatif.simulation.object_versions import controller_of, goes_with_node

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from scheduler.objects.pod import PodInfo
    from scheduler.objects.selectors import LabelRule
    from scheduler.tools.whatif.cluster_file import ClusterFile
    from scheduler.tools.whatif.offline import OfflineScheduler

_MIRROR: Final = "kubernetes.io/config.mirror"
_SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_SAFE_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_NOT_DISRUPTED: Final = "karpenter.sh/do-not-disrupt"
_CRITICAL: Final = 2_000_000_000
"""The lowest priority of the classes system-cluster-critical and system-node-critical."""


class Wanted(NamedTuple):
    """The pods to consider.

    Attributes:
        namespaces: their namespaces; empty for all.
        labels: a selector that they match; None for any labels.
    """

    namespaces: Collection[str] = ()
    labels: LabelRule | None = None

    def includes(self, pod: PodInfo) -> bool:
        """Return whether a pod is one of them."""
        return (not self.namespaces or pod.namespace in self.namespaces) and (
            self.labels is None or self.labels.matches(pod.labels)
        )


def is_of_its_node(pod: PodInfo) -> bool:
    """Return whether a pod belongs to its node: a pod of a DaemonSet, or a static pod."""
    return goes_with_node(pod) or _MIRROR in pod.annotations


class EvictablePods:
    """Says of pods on nodes whether they may be evicted now.

    Attributes:
        budgets: the PodDisruptionBudgets.

    Args:
        scheduler: the scheduler, with the cluster.
        cluster: the same cluster, with whole pods.
        wanted: the pods to consider.

    Raises:
        ObjectError: a PodDisruptionBudget is malformed.
    """

    def __init__(self, scheduler: OfflineScheduler, cluster: ClusterFile, wanted: Wanted) -> None:
        self._scheduler, self._wanted = scheduler, wanted
        self._explainers = {
            name: Explainer(framework, scheduler.parts.clock, budget=scheduler.parts.budget)
            for name, framework in scheduler.frameworks.items()
        }
        self.budgets = EvictionBudgets(cluster.others.get(BUDGETS, {}))

    def why_not(self, pod: PodInfo) -> str:
        """Return why a pod may not be evicted, as the rest of a sentence about it; "" if it may."""
        return (
            self._why_another(pod)
            or self._why_never(pod)
            or self._budget_against(pod)
            or self._protection_of(pod)
        )

    def _why_another(self, pod: PodInfo) -> str:
        """Return why a pod is not one of those to consider; "" if it is."""
        profiles = self._scheduler.frameworks
        if not self._wanted.includes(pod):
            return "is not selected by --namespace and --selector"
        if pod.scheduler_name not in profiles:
            return f"has schedulerName {pod.scheduler_name}; the profiles are {', '.join(profiles)}"
        if self._scheduler.cache.table.row_of(pod.node_name) is None:
            return f"is on node {pod.node_name}, which does not exist"
        return "is being deleted" if pod.is_terminating else ""

    def _why_never(self, pod: PodInfo) -> str:
        """Return why a pod must stay, whatever the budgets and protections are; "" if it need not."""
        if is_of_its_node(pod):
            return "belongs to its node (a pod of a DaemonSet, or a static pod)"
        if controller_of(pod) is None:
            return "has no controller, so no pod would replace it"
        if pod.priority >= _CRITICAL:
            return "is critical for its node or the cluster"
        for annotation, value in ((_SAFE, "false"), (_NOT_DISRUPTED, "true")):
            if pod.annotations.get(annotation) == value:
                return f"has the annotation {annotation}: {value}"
        if self._scheduler.parts.profiles.group_of(pod) is not None:
            return "is a member of a group, whose pods start together"
        return _what_it_loses(pod)

    def _budget_against(self, pod: PodInfo) -> str:
        refused = self.budgets.refusal(pod)
        return "" if refused is None else refused.why

    def _protection_of(self, pod: PodInfo) -> str:
        snapshot = self._scheduler.cache.snapshot()
        found = self._explainers[pod.scheduler_name].protections(pod, snapshot).get("protections", ())
        return next((protected_text(each).removeprefix(f"{pod.key} ") for each in found), "")


class _EmptyDir(ApiStruct, frozen=True):
    medium: str = ""


class _HostPath(ApiStruct, frozen=True):
    pass


class _Volume(ApiStruct, frozen=True):
    name: str = ""
    empty_dir: _EmptyDir | None = None
    host_path: _HostPath | None = None


class _Spec(ApiStruct, frozen=True):
    volumes: tuple[_Volume, ...] | None = None


class _PodVolumes(ApiStruct, frozen=True):
    spec: _Spec = _Spec()


_decode_volumes = msgspec.json.Decoder(_PodVolumes).decode


def _what_it_loses(pod: PodInfo) -> str:
    """Return what the replacement of a pod does not have any more; "" if that is nothing."""
    if pod.pod.spec.resource_claims or any(volume.ephemeral for volume in pod.pod.spec.volumes):
        return "has claims of its own, and its replacement gets new ones"
    local = [] if pod.annotations.get(_SAFE) == "true" else [*_local_volumes(pod)]
    return f"has local storage (volume {', '.join(local)})" if local else ""


def _local_volumes(pod: PodInfo) -> Iterator[str]:
    """Yield the names of volumes whose data stay on the node, without those that an annotation exempts."""
    raw = pod.raw
    assert raw is not None, f"pod {pod.key} is as the API server has it"
    exempt = {name.strip() for name in pod.annotations.get(_SAFE_VOLUMES, "").split(",")}
    try:
        volumes = _decode_volumes(raw).spec.volumes or ()
    except msgspec.ValidationError:
        volumes = (_Volume("of unknown form", host_path=_HostPath()),)
    for volume in volumes:
        empty = volume.empty_dir
        if (volume.host_path or (empty and empty.medium != "Memory")) and volume.name not in exempt:
            yield volume.name
