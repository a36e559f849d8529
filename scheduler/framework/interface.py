"""The plugin contract: one abstract class per extension point.

A plugin is one class that inherits the points it takes part in. The points run in the order of this file:

    PreEnqueue, QueueSort          before a pod may be tried, and which pod comes first
    PreFilter, Filter, PostFilter  which nodes can run the pod; what to do when none can
    PreScore, Score                which of them is best
    Reserve, Permit                the choice is made: note it, or hold it
    PreBind, Bind, PostBind        the choice is carried out

Everything up to Permit is a plain `def`: it runs while nothing else changes, so it neither waits nor does I/O.
PreBind, Bind, PostBind and `refresh` are `async def`, PostFilter may be. A plugin that raises fails that attempt with an error that
names it; the daemon goes on. One that holds the loop for longer than the attempt's budget is stopped by an exception.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from scheduler.framework.events import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Hashable, Iterable, Sequence

    from scheduler.errors import FieldError
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.events import EventWithHint
    from scheduler.framework.outcomes import Outcomes
    from scheduler.framework.queued_pod import QueuedPodInfo
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot

API_VERSION = 1
"""The version of this contract. What is removed is announced two minor releases before."""

MAX_NODE_SCORE = 100
"""The best score a node can have from one plugin after `normalize`; the worst is 0."""


_KIND: Final = r"(v1|[^\s/]+/[^\s/]+)/[^\s/]+"
_RIGHT: Final = rf"[^\s/]+ {_KIND}(/[^\s/]+)?"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a plugin reads beyond the usual, so that it is kept, and what it asks of the API server itself.

    Attributes:
        kinds: API kinds to watch, as `group/version/plural` or `version/plural` ("v1/services"); read with
            `snapshot.objects(kind)`.
        bound_pod_annotations: keep the annotations of pods on nodes.
        bound_pod_objects: keep pods on nodes whole, for `pod.object`.
        rights: what its requests take by ApiGet and ApiWrite, each as a verb of RBAC and a kind, with a subresource
            where it is about one: "update v1/persistentvolumes", "patch resource.k8s.io/v1/resourceclaims/status".
            The daemon's roles are made from them; `kinds` are listed and watched without saying so.
    """

    kinds: frozenset[str] = frozenset()
    bound_pod_annotations: bool = False
    bound_pod_objects: bool = False
    rights: frozenset[str] = frozenset()

    def faults(self) -> Iterable[str]:
        """Yield which of the kinds and rights are written as none is."""
        for kind in sorted(self.kinds):
            if not re.fullmatch(_KIND, kind):
                yield f"a kind is version/plural or group/version/plural, was {kind!r}"
        for right in sorted(self.rights):
            if not re.fullmatch(_RIGHT, right):
                yield f"a right is a verb, a space and a kind, perhaps /subresource, was {right!r}"


class PluginArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of a plugin's arguments: typed fields with defaults, camelCase in the configuration."""

    def faults(self) -> Iterable[FieldError]:
        """Yield what types cannot say is wrong; paths are relative to the arguments, as in `shape[1].score`."""
        return ()


class Plugin(ABC):
    """What all plugins share.

    A constructor takes keyword-only arguments: `args`, of the plugin's own `Args`, and the capabilities it wants
    (see `framework.capabilities`); most plugins need none.

    Attributes:
        name: as in the profile, in metrics and in explanations.
        api_version: the contract the plugin was written for, which every plugin states; checked when it is loaded.
        Args: the type of its arguments.
        reads_pods: whether its verdicts on a node look at the pods there. Of a plugin that gives a signature and does
            not look, nothing is asked again when pods come and go. True is never wrong.
        needs: what it reads beyond the usual.
        refresh_seconds: how long to wait between two calls of `refresh`; None never calls it. A constructor may set it
            from the arguments.
    """

    name: ClassVar[str] = ""
    api_version: ClassVar[int] = 0
    Args: ClassVar[type[PluginArgs]] = PluginArgs
    reads_pods: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs()
    refresh_seconds: float | None = None

    def signature(self, pod: PodInfo) -> Hashable | None:
        """Return all of the pod that the plugin's verdicts depend on, if they depend on one node at a time.

        What PreFilter, Filter, PreScore and Score say of a node must then follow from the signature, that node with
        its pods, and `version`: it is kept per node for all pods of equal signature, and asked again where the node
        changed. Normalisation alone may look across nodes.

        None, the default, promises nothing: the plugin is asked about all nodes for every pod.
        """
        return None

    def version(self) -> int:
        """Return a number that is another whenever the plugin's own background data changed."""
        return 0

    def events(self) -> Sequence[EventWithHint]:
        """Return the cluster events that may help a pod which this plugin rejected; the default is any."""
        return EVERYTHING

    async def refresh(self) -> None:
        """Fetch background data; called at start and then every `refresh_seconds`, never during a cycle.

        One that raises is logged with the plugin's name, counted, and called again after the same time. An OSError is
        what happens to networks: it is logged without a traceback, and only the first of several.
        """

    def why(self, pod: PodInfo, snapshot: Snapshot, node: NodeInfo | None) -> Sequence[str] | None:
        """Tell a person more of a refusal than a reason can: which object is in the way, and what would help.

        Asked only when somebody wants an explanation, never on a pod's way, and perhaps long after the attempt: what is told
        is how things stand by now. It may read what the plugin keeps, and must leave that as if nobody had asked.

        Args:
            pod: which was refused.
            snapshot: the cluster as it is.
            node: a node that was refused; None where the pod was, whatever the node.

        Returns:
            A sentence each, without the name of the node, so that nodes alike are told of together. Empty if nothing is in
            the way any more; None, the default, if there is nothing to add to the reason.
        """
        return None

    def nodes_without_data(self, snapshot: Snapshot) -> int | None:
        """Return of how many nodes the background data say nothing, for a metric; None where that means nothing."""
        return None


class PreEnqueuePlugin(Plugin):
    """Keeps pods out of activeQ until they are ready to be tried at all."""

    @abstractmethod
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Return a rejection to keep the pod gated, None or a success to let it in.

        A gated pod is neither attempted nor written to; it is asked again when one of `events` happens.
        """


class QueueSortPlugin(Plugin):
    """Orders activeQ. A configuration has exactly one, the same in all profiles."""

    @abstractmethod
    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        """Return a key; the pod with the smallest is tried first."""


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The nodes a pod can only go to.

    Attributes:
        node_names: names, of which some may not exist.
    """

    node_names: frozenset[str]


class PreFilterPlugin(Plugin):
    """Looks at the pod and the cluster once per cycle, before any node is judged.

    Attributes:
        keeps_rows_apart: whether `add_pods` and `remove_pods` may be told of several rows at once, each of which
            is then judged as if only its own pods had come or gone. It lets preemption try all nodes together. A
            plugin that gives a signature and has not those two does so by nature; any other that does not say so
            is asked about one row after another.
    """

    keeps_rows_apart: ClassVar[bool] = False

    @abstractmethod
    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        """Prepare the cycle.

        Returns:
            None: go on with all nodes. PreFilterResult: go on with those only. A SKIP status: this plugin's Filter
            has nothing to say of this pod. A rejection: no node can run the pod.
        """

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Take (row, pod) pairs into what `pre_filter` wrote, as if they were on those nodes.

        Called on a clone of the state, for nominated pods and for candidates of preemption; `snapshot` already
        counts the pods. Only plugins whose state depends on the pods of nodes have anything to do. All pairs are
        of one row, unless `keeps_rows_apart`.
        """

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        """Take (row, pod) pairs out of what `pre_filter` wrote; the reverse of `add_pods`."""


class FilterPlugin(Plugin):
    """Refuses nodes that cannot run a pod: either all at once, or node by node.

    Override `filter` for speed, `filter_node` for simplicity, or both: then `filter_node` is asked where few nodes are
    to be judged again. A node that one plugin refused is not asked of the next, so the first refusal in the
    profile's order is the one reported.
    """

    def filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        """Say which nodes can run the pod, and why the others cannot. Must not be called unless overridden.

        Args:
            state: what `pre_filter` wrote.
            pod: the pod to place.
            snapshot: the cluster.
            rows: the nodes still standing; what is said of others is ignored.
        """
        raise NotImplementedError(f"{self.name} has no filter")

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Say whether one node can run the pod: a rejection with its reason, or None.

        Must not be called unless overridden.
        """
        raise NotImplementedError(f"{self.name} has no filter_node")


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What was arranged for a pod that no node can run now.

    Attributes:
        status: SUCCESS if the pod will fit soon, UNSCHEDULABLE if nothing could be done; its reasons are added to
            the pod's message.
        nominated_node_name: where the pod is expected to fit; "" takes an earlier nomination back, None leaves it.
    """

    status: Status
    nominated_node_name: str | None = None


class PostFilterPlugin(Plugin):
    """Tries to make room for a pod that no node can run. The first that succeeds ends the point."""

    @abstractmethod
    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult | Awaitable[PostFilterResult]:
        """Arrange for the pod to fit later, or say that it cannot be done.

        May be an `async def`, which waits for extenders and for nothing else: the next pod waits as well.
        """


class PreScorePlugin(Plugin):
    """Looks at the feasible nodes once, before they are scored."""

    @abstractmethod
    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status | None:
        """Prepare scoring; a SKIP status leaves this plugin's Score out for this pod."""


class ScorePlugin(Plugin):
    """Ranks the nodes that can run a pod: all at once, node by node, or both; as `FilterPlugin`."""

    def score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Int64s | int:
        """Return int64 (n_nodes,), or one number where it is the same for all nodes; higher is better.

        What stands at other rows than `feasible` is ignored. Without `normalize` the feasible ones must be in [0, 100]. Must not be called unless overridden.
        """
        raise NotImplementedError(f"{self.name} has no score")

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the score of one node. Must not be called unless overridden."""
        raise NotImplementedError(f"{self.name} has no score_node")

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        """Bring scores into [0, 100]; `scores` is (n_nodes,), as is the result. The default leaves them."""
        return scores


class ReservePlugin(Plugin):
    """Notes a choice before it is carried out, so that the next pod's cycle sees it."""

    @abstractmethod
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Note the choice; a rejection or an error undoes it."""

    @abstractmethod
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo `reserve`; it must not fail.

        Called in the reverse order, also of plugins whose `reserve` was never reached.
        """


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit's answer to hold a pod.

    Attributes:
        timeout_seconds: after which the pod is rejected.
    """

    timeout_seconds: float


class PermitPlugin(Plugin):
    """Lets a choice go on, stops it, or holds it until something else is ready."""

    @abstractmethod
    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | Wait | None:
        """Return None or a success to go on, a rejection to stop, `Wait` to hold the pod."""


class PreBindPlugin(Plugin):
    """Does what must be done before the pod is bound, such as attaching a volume."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Say SKIP if there is nothing to do for this pod, so that it need not be announced as nominated."""
        return None

    @abstractmethod
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Do it; anything but a success undoes the choice."""


class BindPlugin(Plugin):
    """Binds the pod. The first plugin that does not SKIP ends the point."""

    @abstractmethod
    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        """Bind, or SKIP to leave it to the next."""


class PostBindPlugin(Plugin):
    """Is told that a pod was bound."""

    @abstractmethod
    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Clean up, or tell others."""
