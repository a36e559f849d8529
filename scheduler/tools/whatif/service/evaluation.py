"""Answers what-if requests in the cluster of an offline scheduler."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.configuration.manifests import item_of
from scheduler.engine.cycle.explanation import Explainer
from scheduler.engine.cycle.hypothetical import as_pending
from scheduler.engine.cycle.remedies import one_like
from scheduler.errors import FieldError, ObjectError
from scheduler.objects.decode import STRUCTS, decode_node, decode_object
from scheduler.objects.label_index import some_of
from scheduler.objects.pod import PodInfo
from scheduler.objects.wording import did_you_mean
from scheduler.tools.whatif.documents import decoded_object
from scheduler.tools.whatif.evaluation import Placements
from scheduler.tools.whatif.eviction_budgets import BUDGETS, EvictionBudgets
from scheduler.tools.whatif.planned_pods import Plan, PlanError
from scheduler.tools.whatif.service.wire import (
    Added,
    Answer,
    PodResult,
    RefusedEviction,
    Removed,
    Victim,
    Waiting,
    WhatIfError,
    WorkloadResult,
    has_labels,
)
from scheduler.tools.whatif.start_preview import MOST_PODS, StartPreview, Workload, workload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.tools.whatif.offline import OfflineScheduler
    from scheduler.tools.whatif.service.wire import AddedNodes, RemovedNodes, WhatIf
    from scheduler.tools.whatif.start_preview import Planned, Started, StartOutcome

_CLAIMS: Final = "resource.k8s.io/v1/resourceclaims"
_SLICES: Final = "resource.k8s.io/v1/resourceslices"
_CSI_NODES: Final = "storage.k8s.io/v1/csinodes"
_READ_BY_ADMISSION: Final = (
    "resource.k8s.io/v1/resourceclaimtemplates",
    "scheduling.k8s.io/v1/priorityclasses",
    "storage.k8s.io/v1/storageclasses",
)
_NONE: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
_OF_A_NODE: Final = frozenset({"DaemonSet", "Node"})
"""Controllers of pods that belong to their node: Node is that of static pods."""


def evaluate(scheduler: OfflineScheduler, request: WhatIf) -> Answer:
    """Answer a request; the scheduler has the cluster, and must not be used again.

    Raises:
        WhatIfError: all errors of the request.
    """
    return _Evaluation(scheduler, request).answer()


class _Model(NamedTuple):
    """What an added node has.

    Attributes:
        node: the node that it is a copy of.
        pods: the pods that belong to that node.
        slices: its ResourceSlices, by name.
        csi_node: its CSINode; None without one.
    """

    node: NodeObject
    pods: Sequence[PodInfo] = ()
    slices: Sequence[tuple[str, Mapping[str, Any]]] = ()
    csi_node: Mapping[str, Any] | None = None


@dataclass(slots=True)
class _Evaluation:
    """The evaluation of one request.

    Args:
        scheduler: the scheduler, with the cluster.
        request: the request.
    """

    scheduler: OfflineScheduler
    request: WhatIf
    _faults: list[FieldError] = field(default_factory=list)
    _workloads: list[Workload] = field(default_factory=list)
    _keys: set[str] = field(default_factory=set)
    _placements: Placements = field(init=False)

    def __post_init__(self) -> None:
        self._placements = Placements(self.scheduler)

    def answer(self) -> Answer:
        request = self.request
        model = None if request.add is None else self._model(request.add)
        leaving = [] if request.remove is None else self._names(request.remove)
        self._read_objects(leaving)
        self._read_workloads()
        self._find_pods()
        removed = None if request.remove is None else self._remove(leaving)
        self._check_pods()
        if self._faults:
            raise WhatIfError(self._faults)
        preview = StartPreview(self.scheduler, self._workloads, self._placements)
        added = None
        if model is not None:
            assert request.add is not None
            added = self._enough_nodes(preview, model, request.add)
            self._add_nodes(model, added.helps)
        outcomes = preview.start()
        results = [self._result(outcome) for outcome in outcomes]
        answer = Answer(
            "",
            sum(each.pods for each in results),
            sum(each.starting for each in results),
            results,
            preview.groups,
            removed,
            added,
        )
        answer.verdict = verdict(answer)
        return answer

    # The pods.

    def _read_objects(self, leaving: Collection[str]) -> None:
        """Read the objects of the request: pods, those that create pods, and those that these need.

        Args:
            leaving: the nodes that are removed.
        """
        items = []
        for number, obj in enumerate(self.request.objects):
            where = f"objects[{number}]"
            try:
                items.append(item_of(msgspec.json.encode(obj), where))
            except ValueError as error:
                self._faults.append(FieldError(where, str(error)))
                continue
            if (items[-1].api_version, items[-1].kind) == ("v1", "Node"):
                self._faults.append(FieldError(where, "is a Node: nodes are added by add.template"))
        if self._faults:
            return
        table = self.scheduler.cache.table
        nodes = [node for node in table.nodes if node.name not in leaving]
        existing = {
            kind.rpartition("/")[2]: map(dict, (table.objects(kind) or _NONE).values())
            for kind in _READ_BY_ADMISSION
        }
        plan = Plan(self.request.namespace, existing, nodes, self.request.replicas)
        try:
            made = plan.make(items)
        except PlanError as error:
            self._faults += error.faults
            return
        for (kind, key), obj in plan.others.items():
            self._add_object(kind, key, obj)
        for item, planned in made:
            self._take(planned, item.where)

    def _add_object(self, kind: str, key: str, obj: Mapping[str, Any]) -> None:
        """Add an object that plugins read, unless the cluster has one of that name."""
        if kind not in self.scheduler.needs.kinds or key in self.scheduler.cache.table.watch_kind(kind):
            return
        try:
            self._placements.add_object(kind, key, decoded_object(msgspec.json.encode(obj), kind, key))
        except ObjectError as error:
            path = f"{obj['kind']} {key}: {error.path}" if error.path else f"{obj['kind']} {key}"
            self._faults.append(FieldError(path, error.problem))

    def _read_workloads(self) -> None:
        for number, planned in enumerate(self.request.workloads):
            self._take(planned, f"workloads[{number}]")

    def _take(self, planned: Planned, where: str) -> None:
        """Add the pods of a planned workload."""
        try:
            workload = workload_of(planned, self.scheduler.needs.pod_rules)
        except (ObjectError, ValueError) as error:
            self._faults.append(FieldError(where, str(error)))
            return
        for pod in workload.pods:
            if self.scheduler.queue.get(pod.uid) or self.scheduler.cache.pod(pod.uid):
                self._faults.append(FieldError(where, f"pod {pod.key} exists: name it in pods"))
            elif pod.key in self._keys:
                self._faults.append(FieldError(where, f"pod {pod.key} is in the request twice"))
            self._keys.add(pod.key)
        self._workloads.append(workload)

    def _find_pods(self) -> None:
        """Find the pending pods of the cluster that the request names."""
        request = self.request
        if not (request.pods or request.group or request.pending):
            return
        pending = {queued.pod.key: queued.pod for queued in self.scheduler.queue.pods()}
        found: dict[str, PodInfo] = {}
        for number, key in enumerate(request.pods):
            if key in pending:
                found[key] = pending[key]
            else:
                problem = f"{key} is no pending pod of {some_of(sorted(self.scheduler.frameworks))}"
                self._faults.append(FieldError(f"pods[{number}]", problem))
        if request.group:
            members = {
                pod.key: pod
                for pod in pending.values()
                if (group := self.scheduler.parts.profiles.group_of(pod)) is not None
                and group.key == request.group
            }
            if not members:
                self._faults.append(FieldError("group", f"{request.group} has no pending pods"))
            found |= members
        if request.pending:
            in_order = sorted(
                pending.values(),
                key=lambda pod: (-pod.priority, pod.pod.metadata.creation_timestamp, pod.key),
            )
            found |= {pod.key: pod for pod in islice(in_order, MOST_PODS - len(found))}
        self._workloads += _by_controller(found.values())

    def _check_pods(self) -> None:
        pods = [pod for workload in self._workloads for pod in workload.pods]
        if len(pods) > MOST_PODS:
            self._faults.append(
                FieldError("", f"at most {MOST_PODS} pods are evaluated, there are {len(pods)}")
            )
        served = self.scheduler.frameworks
        for name in sorted({pod.scheduler_name for pod in pods if not pod.node_name} - served.keys()):
            first = next(pod.key for pod in pods if pod.scheduler_name == name)
            hint = did_you_mean(name, served) or f"; its profiles are {some_of(sorted(served))}"
            problem = f"pod {first} has schedulerName {name}, which this scheduler does not serve{hint}"
            self._faults.append(FieldError("", problem))

    # The nodes.

    def _remove(self, names: list[str]) -> Removed:
        """Remove nodes; the pods that their controllers create again are evaluated."""
        cache = self.scheduler.cache
        pods = [
            pod
            for name in names
            if (row := cache.table.row_of(name)) is not None
            for pod in cache.table.pods_on(row).values()
        ]
        removed = Removed(names, 0, [], 0, [], self._refused(pods))
        again: list[PodInfo] = []
        for pod in pods:
            self._placements.evict(pod)
            controller = _controller_of(pod)
            if pod.is_terminating:
                continue
            if controller is None:
                removed.ended.append(pod.key)
            elif controller[0] in _OF_A_NODE:
                removed.daemon_set_pods += 1
            elif pod.scheduler_name not in self.scheduler.frameworks:
                removed.not_evaluated.append(pod.key)
            else:
                again.append(as_pending(pod))
        for name in names:
            cache.remove_node(name)
        self._release_claims({pod.uid for pod in pods})
        removed.pods = len(again)
        self._workloads += _by_controller(again)
        return removed

    def _names(self, wanted: RemovedNodes) -> list[str]:
        table = self.scheduler.cache.table
        names = [name for name in wanted.nodes if table.row_of(name) is not None]
        for number, name in enumerate(wanted.nodes):
            if name not in names:
                self._faults.append(FieldError(f"remove.nodes[{number}]", f"there is no node {name}"))
        if wanted.labels:
            found = [node.name for node in table.nodes if has_labels(node, wanted.labels)]
            if not found:
                self._faults.append(FieldError("remove.labels", "no node has these labels"))
            names += found
        return sorted(set(names))

    def _refused(self, pods: Iterable[PodInfo]) -> list[RefusedEviction] | None:
        """Return the pods whose eviction budgets refuse, if all of them are evicted at once; None if budgets are not read.

        As in a drain, pods that belong to their node are not evicted.
        """
        objects = self.scheduler.cache.table.objects(BUDGETS)
        if objects is None:
            return None
        budgets = EvictionBudgets({key: msgspec.json.encode(each) for key, each in objects.items()})
        found = []
        for pod in pods:
            if pod.is_terminating or (_controller_of(pod) or ("",))[0] in _OF_A_NODE:
                continue
            refused = budgets.refusal(pod)
            if refused is None:
                budgets.note(pod)
            else:
                found.append(RefusedEviction(pod.key, pod.node_name, refused.budgets, refused.why))
        return found

    def _release_claims(self, uids: set[str]) -> None:
        """Release the devices of ResourceClaims that only removed pods use: their pods get new claims."""
        for key, claim in list((self.scheduler.cache.table.objects(_CLAIMS) or _NONE).items()):
            users = {each.get("uid") for each in (claim.get("status") or {}).get("reservedFor") or ()}
            if users and users <= uids:
                self._placements.add_object(_CLAIMS, key, {**claim, "status": {}})

    def _model(self, wanted: AddedNodes) -> _Model | None:
        """Return what the added nodes have; None if there is no such node."""
        table = self.scheduler.cache.table
        if wanted.template is not None:
            named = {"name": "template", **(wanted.template.get("metadata") or {})}
            try:
                return _Model(decode_node(msgspec.json.encode({**wanted.template, "metadata": named})))
            except ObjectError as error:
                self._faults.append(FieldError(f"add.template.{error.path}".rstrip("."), error.problem))
                return None
        if wanted.like:
            pool, problem = (
                [node for node in table.nodes if node.name == wanted.like],
                f"there is no node {wanted.like}",
            )
        else:
            pool, problem = (
                [node for node in table.nodes if has_labels(node, wanted.labels)],
                "no node has these labels",
            )
        if not pool:
            self._faults.append(FieldError("add.like" if wanted.like else "add.labels", problem))
            return None
        node = min(pool, key=lambda node: node.name)
        row = table.row_of(node.name)
        assert row is not None, f"node {node.name} has no row"
        slices, csi_nodes = table.objects(_SLICES), table.objects(_CSI_NODES)
        return _Model(
            node,
            [pod for pod in table.pods_on(row).values() if (_controller_of(pod) or ("",))[0] in _OF_A_NODE],
            [
                (key, each)
                for key, each in (slices or _NONE).items()
                if each["spec"].get("nodeName") == node.name
            ],
            (csi_nodes or _NONE).get(node.name),
        )

    def _add_nodes(self, model: _Model, count: int) -> None:
        """Add copies of a node, each with the devices, the CSI drivers and the pods that belong to a node."""
        for number in range(count):
            copy = f"{model.node.name}-copy-{number}"
            self._placements.add_node(one_like(model.node, copy))
            for pod in model.pods:
                self._placements.add_pod(_copy_of(pod, copy))
            for key, each in model.slices:
                spec = {**each["spec"], "nodeName": copy, "pool": {**each["spec"]["pool"], "name": copy}}
                self._copy_object(_SLICES, each, f"{copy}-{key}", {"spec": spec})
            if model.csi_node is not None:
                self._copy_object(_CSI_NODES, model.csi_node, copy, {})

    def _copy_object(self, kind: str, obj: Mapping[str, Any], name: str, changed: dict[str, Any]) -> None:
        metadata = {**obj["metadata"], "name": name, "uid": name}
        copied = decode_object(msgspec.json.encode({**obj, **changed, "metadata": metadata}), STRUCTS[kind])
        self._placements.add_object(kind, name, copied)

    def _enough_nodes(self, preview: StartPreview, model: _Model, wanted: AddedNodes) -> Added:
        """Find the smallest numbers of nodes that help, by evaluating all pods with each number that is tried."""

        def starting(count: int) -> int:
            before = self._placements.count
            self._add_nodes(model, count)
            outcomes = preview.start(explains=False)
            self._placements.take_back(before)
            return sum(bool(each.node) for outcome in outcomes for each in outcome.started)

        total = sum(len(workload.pods) for workload in self._workloads)
        most = starting(wanted.count)
        helps = smallest(wanted.count, lambda count: starting(count) >= most)
        return Added(model.node.name, wanted.count, helps, helps if most == total else None)

    # The answer.

    def _result(self, outcome: StartOutcome) -> WorkloadResult:
        workload = outcome.workload
        first = outcome.first
        if first is not None and not self.request.nodes:
            first = {key: value for key, value in first.items() if key != "nodes"}
        return WorkloadResult(
            workload.kind,
            workload.namespace,
            workload.name,
            pods=len(workload.pods),
            starting=outcome.nodes.total(),
            nodes=dict(outcome.nodes.most_common()),
            victims=[self._victim(victim, each) for each in outcome.started for victim in each.victims],
            waiting=[Waiting(count, message) for message, count in outcome.waiting.most_common()],
            first_waiting=first,
            problem=workload.problem or None,
            results=[_pod_result(each) for each in outcome.started],
        )

    def _victim(self, victim: PodInfo, started: Started) -> Victim:
        framework = self.scheduler.frameworks.get(victim.scheduler_name)
        protections: list[dict[str, Any]] = []
        if framework is not None:
            explainer = Explainer(framework, self.scheduler.parts.clock, budget=self.scheduler.parts.budget)
            found = explainer.protections(victim, self.scheduler.cache.snapshot())
            protections = found.get("protections", [])
        return Victim(victim.key, started.node, victim.priority, started.pod.key, protections)


def smallest(most: int, is_enough: Callable[[int], bool]) -> int:
    """Return the smallest number from 0 that is enough, if `most` is; every larger number counts as enough too."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


def verdict(answer: Answer) -> str:
    """Return the result in plain words."""
    count, starting = answer.pods, answer.starting
    sentences = []
    if (removed := answer.removed) is not None:
        nodes = some_of(removed.nodes)
        sentences.append(f"Without {nodes}, {_pods(removed.pods)} would be created again.")
        if removed.ended:
            sentences.append(
                f"{_pods(len(removed.ended))} without a controller would be lost: {some_of(removed.ended)}."
            )
        if removed.refused:
            refused = [f"{each.pod} ({', '.join(each.budgets)})" for each in removed.refused]
            sentences.append(
                f"PodDisruptionBudgets refuse the eviction of {_pods(len(refused))} now: {some_of(refused)}."
            )
        if removed.not_evaluated:
            sentences.append(f"{_pods(len(removed.not_evaluated))} of other schedulers were not evaluated.")
    sentences.append(f"{starting} of {_pods(count)} would start now.")
    victims = [victim.pod for workload in answer.workloads for victim in workload.victims]
    if victims:
        sentences.append(f"{_pods(len(victims))} would be evicted: {some_of(victims)}.")
    if (added := answer.added) is not None:
        copies = f"{added.helps} {'node' if added.helps == 1 else 'nodes'} like {added.like}"
        if added.needed is not None:
            sentences.append(f"That takes {copies} more." if added.helps else "That takes no more nodes.")
        elif added.helps:
            sentences.append(f"Only {copies} of {added.count} more would help.")
        else:
            sentences.append(f"More nodes like {added.like} would not help.")
    first = next((each.first_waiting for each in answer.workloads if each.first_waiting), None)
    if first is not None:
        sentences.append(str(first["verdict"]))
    return " ".join(sentences)


def _pods(count: int) -> str:
    return f"{count} {'pod' if count == 1 else 'pods'}"


def _pod_result(started: Started) -> PodResult:
    return PodResult(
        started.pod.key,
        started.node or None,
        [victim.key for victim in started.victims],
        started.pdb_violations,
        started.message or None,
        list(started.causes),
    )


def _controller_of(pod: PodInfo) -> tuple[str, str] | None:
    """Return the kind and the name of a pod's controller; None without one."""
    references = pod.pod.metadata.owner_references
    return next(((each.kind, each.name) for each in references if each.controller), None)


def _by_controller(pods: Iterable[PodInfo]) -> list[Workload]:
    """Group pods by their controllers, in the order of the first pods; a pod without one is alone."""
    groups: defaultdict[tuple[str, str, str], list[PodInfo]] = defaultdict(list)
    for pod in pods:
        kind, name = _controller_of(pod) or ("Pod", pod.name)
        groups[kind, pod.namespace, name].append(pod)
    return [Workload(*key, members) for key, members in groups.items()]


def _copy_of(pod: PodInfo, node_name: str) -> PodInfo:
    """Return a pod that belongs to a node, as another node has it."""
    metadata = msgspec.structs.replace(
        pod.pod.metadata, name=f"{pod.name}-{node_name}", uid=f"{pod.uid}-{node_name}"
    )
    spec = msgspec.structs.replace(pod.pod.spec, node_name=node_name)
    copied = msgspec.structs.replace(pod.pod, metadata=metadata, spec=spec)
    return PodInfo(copied, pod.raw, node_name=node_name, resources=pod.resources)
