"""What-if requests and their answers as JSON; the OpenAPI description is made from these types and their docstrings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from scheduler.configuration.manifests import read_documents, read_items
from scheduler.errors import FieldError, SchedulerError
from scheduler.tools.whatif.start_preview import MOST_PODS, Planned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from scheduler.objects.node import NodeObject

MOST_NODES: Final = 1000
"""The number of nodes that one request adds."""
_MOST_FAULTS: Final = 50


class WhatIfError(SchedulerError):
    """All errors of a request."""

    def __init__(self, faults: Iterable[FieldError]) -> None:
        self.faults = tuple(faults)[:_MOST_FAULTS]
        super().__init__("; ".join(map(str, self.faults)))


class RemovedNodes(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The nodes that are removed, with their pods.

    Attributes:
        nodes: names of nodes.
        labels: also all nodes with all of these labels.
    """

    nodes: list[str] = []
    labels: dict[str, str] = {}


def has_labels(node: NodeObject, labels: Mapping[str, str]) -> bool:
    """Return whether a node has all of some labels."""
    return all(node.labels.get(key) == value for key, value in labels.items())


class AddedNodes(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The nodes that are added; exactly one of `like`, `labels` and `template` is given.

    Attributes:
        count: the largest number of nodes.
        like: the name of a node that they are copies of; DaemonSets run on a copy what they run on that node.
        labels: the labels of a node pool; the nodes are copies of its first node by name.
        template: a Node; nothing runs on it at the beginning.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_NODES)]
    like: str = ""
    labels: dict[str, str] = {}
    template: dict[str, Any] | None = None


class WhatIf(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A request; the pods of all fields are evaluated together.

    Attributes:
        objects: objects that do not exist yet: pods, objects that create pods, and what these need.
        workloads: pods that do not exist yet, as their controllers would create them.
        pods: `namespace/name` of pending pods of the cluster.
        group: `namespace/name` of a group of the cluster, whose pending pods are evaluated.
        pending: whether all pending pods of the scheduler's profiles are evaluated, at most 5000 by priority and age.
        namespace: the namespace of objects that name none.
        replicas: number of pods of each of the objects, instead of its own.
        remove: nodes that are removed.
        add: nodes that are added.
        nodes: whether `firstWaiting` has the result for every node.
    """

    objects: list[dict[str, Any]] = []
    workloads: list[Planned] = []
    pods: list[str] = []
    group: str = ""
    pending: bool = False
    namespace: str = "default"
    replicas: Annotated[int, msgspec.Meta(ge=1, le=MOST_PODS)] | None = None
    remove: RemovedNodes | None = None
    add: AddedNodes | None = None
    nodes: bool = False


class Victim(msgspec.Struct, rename="camel"):
    """A pod that would be evicted.

    Attributes:
        pod: `namespace/name`.
        node: its node.
        priority: its priority.
        preemptor: `namespace/name` of the pod that it would be evicted for.
        protections: what protects it from other preemptions, as in the explanation of a pod.
    """

    pod: str
    node: str
    priority: int
    preemptor: str
    protections: list[dict[str, Any]] = []


class PodResult(msgspec.Struct, rename="camel"):
    """The result of one pod.

    Attributes:
        pod: `namespace/name`.
        node: the node on which it would start; null if it would be pending.
        victims: `namespace/name` of the pods that would be evicted for it.
        pdb_violations: how many of them violate a PodDisruptionBudget.
        message: why it would be pending.
        causes: the same by reason code.
    """

    pod: str
    node: str | None
    victims: list[str] = []
    pdb_violations: int = 0
    message: str | None = None
    causes: list[dict[str, Any]] = []


class Waiting(msgspec.Struct, rename="camel"):
    """Pods that would be pending with one message."""

    pods: int
    message: str


class WorkloadResult(msgspec.Struct, rename="camel"):
    """The result of the pods that have their creator in common.

    Attributes:
        kind: the kind of their creator; `Pod` without one.
        namespace: its namespace.
        name: its name.
        pods: number of pods.
        starting: number of pods that would start now.
        nodes: node -> number of pods that would start there.
        victims: the pods that would be evicted for them.
        waiting: the other pods, by message.
        first_waiting: the explanation of the first pod that would be pending, with its verdict and remedies.
        problem: why there are no pods.
        results: the result of each pod.
    """

    kind: str
    namespace: str
    name: str
    pods: int
    starting: int
    nodes: dict[str, int]
    victims: list[Victim]
    waiting: list[Waiting]
    first_waiting: dict[str, Any] | None
    problem: str | None
    results: list[PodResult]


class RefusedEviction(msgspec.Struct, rename="camel"):
    """A pod whose eviction PodDisruptionBudgets refuse.

    Attributes:
        pod: `namespace/name`.
        node: its node.
        budgets: the names of the budgets, in the namespace of the pod.
        why: the reason, as the rest of a sentence about the pod.
    """

    pod: str
    node: str
    budgets: list[str]
    why: str


class Removed(msgspec.Struct, rename="camel"):
    """What happens to the pods of the removed nodes; those with a controller are among the evaluated pods.

    Attributes:
        nodes: the removed nodes.
        pods: number of pods that their controllers create again.
        ended: `namespace/name` of the pods without a controller, which are lost.
        daemon_set_pods: number of pods that belong to their node, which are not created again.
        not_evaluated: `namespace/name` of the pods of other schedulers.
        refused: the pods whose eviction PodDisruptionBudgets refuse, if all pods are evicted at once; null if no plugin reads
            the budgets.
    """

    nodes: list[str]
    pods: int
    ended: list[str]
    daemon_set_pods: int
    not_evaluated: list[str]
    refused: list[RefusedEviction] | None


class Added(msgspec.Struct, rename="camel"):
    """How many of the added nodes help.

    Attributes:
        like: the node that they are copies of, or the name of the template.
        count: the largest number of nodes.
        helps: the smallest number with which as many pods start as with all of them.
        needed: the smallest number with which all pods start; null if all of the nodes are not enough.
    """

    like: str
    count: int
    helps: int
    needed: int | None


class Answer(msgspec.Struct, rename="camel"):
    """The answer to a request.

    Attributes:
        verdict: the result in plain words.
        pods: number of evaluated pods.
        starting: number of pods that would start now.
        workloads: the results; with added nodes those with `added.helps` nodes more.
        groups: the explanations of the groups of the pods.
        removed: what happens to the pods of the removed nodes.
        added: how many of the added nodes help.
    """

    verdict: str
    pods: int
    starting: int
    workloads: list[WorkloadResult]
    groups: list[dict[str, Any]] = []
    removed: Removed | None = None
    added: Added | None = None


def read_request(body: bytes, query: Mapping[str, Sequence[str]]) -> WhatIf:
    """Read a request: a JSON or YAML document without `kind`, or API objects, as kubectl reads them.

    Args:
        body: the body.
        query: `namespace` and `replicas` of a body of API objects.

    Raises:
        WhatIfError: all errors of the request.
    """
    try:
        return _converted(_given(body, query))
    except msgspec.DecodeError as error:  # also an integer or a character that no text can have
        problem, _, path = str(error).partition(" - at `$")
        raise WhatIfError([FieldError(path.strip("`."), problem)]) from error


def _given(body: bytes, query: Mapping[str, Sequence[str]]) -> Any:
    """Return the fields of a request.

    Raises:
        WhatIfError: all errors of the documents.
        msgspec.DecodeError: a value cannot be represented.
    """
    documents, faults = read_documents(body)
    if faults:
        raise WhatIfError(faults)
    first = msgspec.json.decode(documents[0])
    if len(documents) == 1 and isinstance(first, dict) and "kind" not in first:
        return first
    contents = read_items(body)
    if contents.errors:
        raise WhatIfError(contents.errors)
    given: dict[str, Any] = {name: values[0] for name, values in query.items()}
    if given.get("replicas", "").isdecimal():
        given["replicas"] = int(given["replicas"])
    objects = [
        {**msgspec.json.decode(item.raw), "apiVersion": item.api_version, "kind": item.kind}
        for item in contents.items
    ]
    return {**given, "objects": objects}


def _converted(given: Any) -> WhatIf:
    """Convert a request to its type, and check what types do not express.

    Raises:
        WhatIfError: all errors of the request.
        msgspec.ValidationError: a field has another type.
    """
    request = msgspec.convert(given, WhatIf)
    faults = []
    subjects = (
        request.objects,
        request.workloads,
        request.pods,
        request.group,
        request.pending,
        request.remove,
    )
    if not any(subjects):
        faults.append(FieldError("", "one of objects, workloads, pods, group, pending and remove is needed"))
    if request.remove is not None and not (request.remove.nodes or request.remove.labels):
        faults.append(FieldError("remove", "one of nodes and labels is needed"))
    if request.add is not None:
        added = request.add
        if sum((bool(added.like), bool(added.labels), added.template is not None)) != 1:
            faults.append(FieldError("add", "exactly one of like, labels and template is needed"))
    if faults:
        raise WhatIfError(faults)
    return request
