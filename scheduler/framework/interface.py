"""The plugin contract: one abstract class per extension point.

A plugin is one class that inherits from its extension points. They run in the order of this file:

    PreEnqueue, QueueSort          whether a pod may be tried, and in which order
    PreFilter, Filter, PostFilter  which nodes can run the pod; preemption if none can
    PreScore, Score                which of them is best
    Reserve, Permit                the node is chosen: record the choice, or hold the pod
    PreBind, Bind, PostBind        the binding

Everything up to Permit is a plain `def`: it runs while nothing else changes, so it neither waits nor does
I/O. PreBind, Bind, PostBind and `refresh` are `async def`, and PostFilter may be. An exception of a plugin
fails the attempt with an error that names the plugin; the daemon continues. An exception stops a plugin that
holds the loop for longer than the attempt's budget.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import msgspec

from scheduler.framework.events import EVERYTHING
from scheduler.objects.resources import DEFAULT_RULES, PodRules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Hashable, Iterable, Mapping, Sequence
    from typing import Self

    from scheduler.errors import FieldError
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis, Outcomes
    from scheduler.framework.events import EventWithHint
    from scheduler.framework.preemption import PreemptionReport, Protected
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.remedies import Change, NodesExplanation
    from scheduler.framework.status import Status
    from scheduler.framework.status_sources import StatusAccess, StatusSource
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot


class QuotaUsage(NamedTuple):
    """The use of one queue or quota, with all queues below it; amounts are milliCPU, bytes or counts by resource.

    Attributes:
        kind: the kind of its object, as in `Needs.kinds`.
        key: the key of its object: `namespace/name`, or the name of an object without a namespace.
        parent: the key of the queue above it; "" for none.
        used: what its pods on nodes request.
        guaranteed: what it gets before others; a missing resource is 0.
        borrowed: the part of `used` that others may take back by preemption.
        limit: the most that it may use; a missing resource has no limit.
        fair_share: its fair share of the cluster now; None if the plugin has no fair shares.
        average_share: the average of the greatest part of the cluster that it used of any resource, in [0, 1]; None if the
            plugin keeps no history.
        waiting: what its pending pods request.
        pending: the number of its pending pods.
        fault: why the object, or a part of it, is not active; "" if it is.
    """

    kind: str
    key: str
    parent: str = ""
    used: Mapping[str, int] = {}
    guaranteed: Mapping[str, int] = {}
    borrowed: Mapping[str, int] = {}
    limit: Mapping[str, int] = {}
    fair_share: Mapping[str, int] | None = None
    average_share: float | None = None
    waiting: Mapping[str, int] = {}
    pending: int = 0
    fault: str = ""


API_VERSION = 1
"""The version of this contract. Removals are announced two minor releases before."""

MAX_NODE_SCORE = 100
"""The best score a node can have from one plugin after `normalize`; the worst is 0."""


_KIND: Final = r"(v1|[^\s/]+/[^\s/]+)/[^\s/]+"
_RIGHT: Final = rf"[^\s/]+ {_KIND}(/[^\s/]+)?"


@dataclass(frozen=True, slots=True)
class Needs:
    """The kinds and fields that a plugin reads beyond the standard objects, and the permissions of its own requests.

    Attributes:
        kinds: API kinds to watch, as `group/version/plural` or `version/plural` ("v1/services"); read them
            with `snapshot.objects(kind)`.
        bound_pod_annotations: keep the annotations of pods on nodes.
        bound_pod_objects: keep whole pods on nodes, for `pod.object`.
        rights: the permissions of its requests by ApiGet and ApiWrite, each as an RBAC verb and a kind, with
            an optional
            subresource: "update v1/persistentvolumes", "patch resource.k8s.io/v1/resourceclaims/status". The
                daemon's roles are generated from them; list and watch of `kinds` are implied.
        pod_rules: what decides how much a pod requests; set for all plugins by the emulated version.
    """

    kinds: frozenset[str] = frozenset()
    bound_pod_annotations: bool = False
    bound_pod_objects: bool = False
    rights: frozenset[str] = frozenset()
    pod_rules: PodRules = DEFAULT_RULES

    def faults(self) -> Iterable[str]:
        """Yield an error for each invalid kind or right."""
        for kind in sorted(self.kinds):
            if not re.fullmatch(_KIND, kind):
                yield f"a kind is version/plural or group/version/plural, was {kind!r}"
        for right in sorted(self.rights):
            if not re.fullmatch(_RIGHT, right):
                yield f"a right is a verb, a space and a kind with an optional /subresource, was {right!r}"


class PluginArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base class of a plugin's arguments: typed fields with defaults, camelCase in the configuration."""

    def faults(self) -> Iterable[FieldError]:
        """Yield errors beyond the types; paths are relative to the arguments, as in `shape[1].score`."""
        return ()


class Plugin(ABC):
    """Base class of all plugins.

    A constructor takes keyword-only arguments: `args`, of the plugin's own `Args`, and the capabilities it
    needs (see `framework.capabilities`); most plugins need none.

    Attributes:
        name: name in profiles, metrics and explanations.
        api_version: version of the contract that the plugin was written for; required, and checked at
            loading.
        Args: the type of its arguments.
        reads_pods: whether its results for a node depend on the pods there. A plugin with a signature that
            does not depend on them is not called again when pods are added or removed. True is never wrong.
        evaluates_resizes: whether it is called for a pod on a node that lacks the capacity for the pod's resize, at
            PreEnqueue, PreFilter, Filter, PostFilter and Permit. Other plugins are skipped for such a pod, which
            keeps its node.
        refreshes_in_simulations: whether `refresh` reads only the cluster and the time, so that simulations call it in their
            time too; others are refreshed once, before a simulation begins.
        needs: what it reads beyond the standard objects.
        reason_codes: reason code -> meaning, of the codes that its rejections have, see `Reason`. Reasons without a code
            have the name of the plugin as their code.
        refresh_seconds: interval between two calls of `refresh`; None never calls it. A constructor may set
            it from the arguments.
    """

    name: ClassVar[str] = ""
    api_version: ClassVar[int] = 0
    Args: ClassVar[type[PluginArgs]] = PluginArgs
    reads_pods: ClassVar[bool] = True
    evaluates_resizes: ClassVar[bool] = False
    refreshes_in_simulations: ClassVar[bool] = False
    needs: ClassVar[Needs] = Needs()
    reason_codes: ClassVar[Mapping[str, str]] = MappingProxyType({})
    refresh_seconds: float | None = None

    def signature(self, pod: PodInfo) -> Hashable | None:
        """Return everything in the pod that the plugin's results depend on, if they depend on one node at a time.

        The results of PreFilter, Filter, PreScore and Score for a node must then follow from the signature,
        that node with its pods, and `version`. They are cached per node for all pods of equal signature, and
        the plugin is called again for changed nodes. Only normalization may compare nodes.

        None, the default, disables caching: the plugin is called with all nodes for every pod.
        """
        return None

    def version(self) -> int:
        """Return a number that changes whenever the plugin's own background data change."""
        return 0

    def events(self) -> Sequence[EventWithHint]:
        """Return the cluster events that may make a pod rejected by this plugin schedulable; by default all events."""
        return EVERYTHING

    def statuses(self, plugins: Sequence[Self], access: StatusAccess) -> Sequence[StatusSource]:
        """Return the sources of the statuses of objects that the plugin reads; the daemon writes them.

        Called after each change of the active configuration, once for all instances of a class.

        Args:
            plugins: the instances of the class in the active profiles, this one included.
            access: what the sources may read and use.
        """
        return ()

    def quota_usages(
        self, plugins: Sequence[Self], pending: Sequence[PodInfo]
    ) -> Generator[None, None, Sequence[QuotaUsage]]:
        """Return the use of each queue or quota that the plugin enforces, parents before their children; by default none.

        Called on request of a user, once for all instances of a class. The work is done in short steps, and other
        tasks run between them. It may read the plugin's own data, and must not change them.

        Args:
            plugins: the instances of the class in the active profiles, this one included.
            pending: the pending pods of these profiles.
        """
        yield from ()
        return ()

    def quota_of(self, pod: PodInfo) -> str:
        """Return the key of the queue or quota that a pod counts in, as in `QuotaUsage`; "" for none, the default.

        Called when pods are preempted for the pod, so that users see which queue or quota gets their capacity.
        """
        return ""

    async def refresh(self) -> None:
        """Fetch background data; called at start and then every `refresh_seconds`, never in a scheduling cycle.

        An exception is logged with the plugin's name and counted, and the next call follows after the same
        time. An OSError is expected in networks: it is logged without a traceback, and only the first of
        several.
        """

    def saved_state(self) -> Any:
        """Return the plugin's own data of the past that its decisions depend on, as new JSON values; None, the default, for none.

        With them, and with the same cluster and queue, another process can continue and decide the same.
        """
        return None

    def resume_state(self, saved: Any) -> None:
        """Continue with what `saved_state` returned; called before any other call, with the same cluster and queue."""

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        """Explain a rejection in more detail than its reason: the conflicting object, and a way to resolve it.

        Called only for explanations, never in a scheduling cycle, and perhaps long after the attempt: the
        explanation is about the current cluster. It may read the plugin's own data, and must not change them.

        Args:
            pod: the rejected pod.
            snapshot: the current cluster.
            node: a rejected node; None if the pod was rejected on all nodes.

        Returns:
            One sentence for each cause, without the node's name, so that nodes with the same cause are
            grouped. Empty if there is no cause any more; None, the default, if there is nothing to add to the
            reason.
        """
        return None

    def why_nodes(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> NodesExplanation | None:
        """Explain the rejection of many nodes together, and name the changes that would end it.

        Called only for explanations, as `why`. The scheduler evaluates each change before it shows it.

        Args:
            pod: the rejected pod.
            snapshot: the current cluster.
            rows: the rejected nodes; all nodes if the pod was rejected on all of them.

        Returns:
            The explanation; None, the default, if there is nothing to add to the reason.
        """
        return None

    def nodes_without_data(self, snapshot: Snapshot) -> int | None:
        """Return the number of nodes without background data, for a metric; None if that does not apply."""
        return None


class PreEnqueuePlugin(Plugin):
    """Keeps pods out of activeQ until they are ready for an attempt."""

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Return a rejection to keep the pod gated, None or a success to admit it.

        A gated pod is neither attempted nor written to; this is called again when one of `events` happens.
        """


class QueueSortPlugin(Plugin):
    """Orders activeQ. A configuration has exactly one, common to all profiles."""

    @abstractmethod
    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        """Return a key; the pod with the smallest key is tried first."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The only nodes that a pod can run on.

    Attributes:
        node_names: node names, of which some may not exist.
    """

    node_names: frozenset[str]


class PreFilterPlugin(Plugin):
    """Evaluates the pod and the cluster once per cycle, before Filter.

    Attributes:
        keeps_rows_apart: whether `add_pods` and `remove_pods` support several rows in one call, where each
            row is then evaluated as if only its own pods had been added or removed. This lets preemption try
            all nodes together. It is implied for a plugin with a signature and without those two methods; any
            other plugin without this attribute is called for one row after another.
    """

    keeps_rows_apart: ClassVar[bool] = False

    @abstractmethod
    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        """Prepare the cycle.

        Returns:
            None: continue with all nodes. PreFilterResult: continue with those nodes only. A SKIP status: do
                not call this plugin's Filter for this pod. A rejection: no node can run the pod.
        """

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Add (row, pod) pairs to the data of `pre_filter`, as if the pods were on those nodes.

        Called on a clone of the state, for nominated pods and for candidates of preemption; `snapshot`
        already counts the pods. Only plugins whose state depends on the pods of nodes implement it. All pairs
        are of one row, unless `keeps_rows_apart`.
        """

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Remove (row, pod) pairs from the data of `pre_filter`; the reverse of `add_pods`."""


class FilterPlugin(Plugin):
    """Rejects nodes that cannot run a pod: either all at once, or node by node.

    Override `filter` for speed, `filter_node` for simplicity, or both: then `filter_node` is called when few
    nodes must be evaluated again. A node that one plugin rejected is not passed to the next one, so the first
    rejection in the profile's order is the one reported.

    Attributes:
        reads_only_nodes: whether its rejections follow from the pod and the node alone: neither from other pods
            nor from other objects. Preemption for a group then leaves out the nodes that it rejects. False is
            never wrong.
        checks_free_capacity: whether it rejects each node that has less free capacity of a resource than the pod
            requests. A group is not tried in a placement with too little free capacity; its pods are then
            requeued by the events of the plugins with this attribute.
    """

    reads_only_nodes: ClassVar[bool] = False
    checks_free_capacity: ClassVar[bool] = False

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        """Return which nodes can run the pod, and why the others cannot. Must not be called unless overridden.

        Args:
            state: the data of `pre_filter`.
            pod: the pod to schedule.
            snapshot: the cluster.
            rows: the remaining nodes; outcomes of other nodes are ignored.
        """
        raise NotImplementedError(f"{self.name} has no filter")

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return a rejection with its reason if the node cannot run the pod, else None.

        Must not be called unless overridden.
        """
        raise NotImplementedError(f"{self.name} has no filter_node")


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The result of PostFilter for a pod that currently fits no node.

    Attributes:
        status: SUCCESS if the pod will fit soon, UNSCHEDULABLE if nothing could be done; its reasons are
            added to the pod's message.
        nominated_node_name: the node where the pod will fit; "" clears an earlier nomination, None leaves it.
    """

    status: Status
    nominated_node_name: str | None = None


class PostFilterPlugin(Plugin):
    """Makes a pod that currently fits no node schedulable, such as by preemption. The first success ends the point."""

    @abstractmethod
    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult | Awaitable[PostFilterResult]:
        """Prepare a node for the pod, or return that this is impossible.

        May be an `async def` that waits only for extenders: the next pod waits as well.
        """

    def remedy(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> Change | None:
        """Return the smallest change of the pod after which `post_filter` would find a node for it.

        Called only for explanations, as `why`, with the arguments of `post_filter`; it changes nothing. None, the default,
        if there is no such change.
        """
        return None

    def preview(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PreemptionReport | None:
        """Return what `post_filter` would find, and evict no pod; None, the default, if it would not search.

        Called only for explanations, as `why`, with the arguments of `post_filter`; it changes nothing.
        """
        return None

    def protections(self, pod: PodInfo, snapshot: Snapshot) -> Mapping[str, Protected]:
        """Return what protects a pod on a node from preemption now: cause of the preemption -> the protection; by default nothing.

        Called only for explanations, as `why`.
        """
        return {}


class PreScorePlugin(Plugin):
    """Evaluates the feasible nodes once, before Score."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        """Prepare scoring; a SKIP status skips this plugin's Score for this pod."""


class ScorePlugin(Plugin):
    """Ranks the nodes that can run a pod: all at once, node by node, or both; as `FilterPlugin`."""

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s | int:
        """Return int64 (n_nodes,), or one number that applies to all nodes; higher is better.

        Values at other rows than `feasible` are ignored. Without `normalize` the feasible ones must be in [0,
        100]. Must not be called unless overridden.
        """
        raise NotImplementedError(f"{self.name} has no score")

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the score of one node. Must not be called unless overridden."""
        raise NotImplementedError(f"{self.name} has no score_node")

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        """Bring scores into [0, 100]; `scores` and the result are (n_nodes,). The default returns them unchanged."""
        return scores


class ReservePlugin(Plugin):
    """Records a chosen node before the binding, so that the next pod's cycle sees it."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Record the chosen node; a rejection or an error reverts it."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo `reserve`; it must not fail.

        Called in the reverse order, also of plugins whose `reserve` was never reached.
        """


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit's result to hold a pod.

    Attributes:
        timeout_seconds: time after which the pod is rejected.
    """

    timeout_seconds: float


class PermitPlugin(Plugin):
    """Permits, rejects or delays the binding of a pod."""

    @abstractmethod
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Wait | None:
        """Return None or a success to continue, a rejection to stop, `Wait` to hold the pod."""


class PreBindPlugin(Plugin):
    """Does the work that must precede the binding, such as attaching a volume."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Return SKIP if there is nothing to do for this pod, so that its nomination need not be written."""
        return None

    @abstractmethod
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Do the work; any result but a success reverts the chosen node."""


class BindPlugin(Plugin):
    """Binds the pod. The first plugin that does not SKIP ends the point."""

    @abstractmethod
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod, or return SKIP to leave it to the next plugin."""


class PostBindPlugin(Plugin):
    """Is notified of bound pods."""

    @abstractmethod
    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Clean up, or notify other systems."""


class TimeLimitError(Exception):
    """A plugin stopped its own code, because it exceeded the plugin's own time limit."""


class SlowPlugin(Plugin):
    """A plugin that may evaluate only a sample of the nodes.

    With a sample, its `filter_node` is called after the other plugins' filters, until the sample has enough
    passing nodes; the remaining nodes are rejected for this attempt. Its `score_node` is called for as many
    of the feasible nodes; the others get the lowest score of those. The next pod's sample begins where this
    one ended, so that all nodes are used in turn.

    Attributes:
        sample: number of nodes that are enough; None for all.
        sample_start: the row where the next sample begins.
    """

    sample: int | None = None
    sample_start: int = 0


class ExtensionPoint(Enum):
    """An extension point; the value is its key under `plugins` in a profile.

    Attributes:
        metric_name: the label of this point in kube-scheduler's metrics, as in `PreFilter`.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/config/v1/types.go, Plugins.
    """

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    POD_GROUP_POST_FILTER = "podGroupPostFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    PLACEMENT_GENERATE = "placementGenerate"
    PLACEMENT_SCORE = "placementScore"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"

    # Each member is one object; Enum's own hash is a Python call, paid for every timed point.
    __hash__ = object.__hash__

    def __init__(self, key: str) -> None:
        self.metric_name = key[0].upper() + key[1:]


class ExtensionCall(Enum):
    """A call of plugins that kube-scheduler measures and reports beside the extension point to which it belongs.

    Attributes:
        metric_name: the label of this call in kube-scheduler's metrics.

    Source:
        kube-scheduler v1.36, pkg/scheduler/metrics/metrics.go.
    """

    ADD_POD = "PreFilterExtensionAddPod"
    REMOVE_POD = "PreFilterExtensionRemovePod"
    NORMALIZE = "ScoreExtensionNormalize"
    NORMALIZE_PLACEMENT = "PlacementScoreExtensionNormalize"
    PRE_BIND_PRE_FLIGHT = "PreBindPreFlight"

    def __init__(self, metric_name: str) -> None:
        self.metric_name = metric_name
