"""Queues: the objects, their faults, and the tree of the active queues."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np

from plugins.preemption.protection import AnnotationFaults, min_run_times
from plugins.quotas.elastic_quotas import add
from plugins.work_in_steps import SETTLED_A_STEP, ObjectsInSteps
from scheduler.errors import FieldError, ObjectError
from scheduler.loop_work import run_to_end
from scheduler.objects.decode import typed_object
from scheduler.objects.quantity import Amounts, bounded_amount, readable_amounts
from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorError, parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from typing import Any

    from plugins.preemption.protection import Cause
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s

logger = logging.getLogger(__name__)

D = TypeVar("D", bound=np.generic)

GROUP: Final = "custom-scheduler.io"
QUEUES: Final = f"{GROUP}/v1alpha1/queues"
STATUS_RIGHT: Final = f"patch {QUEUES}/status"
"""The daemon writes the state of a queue there."""
QUEUE_NAME: Final = f"{GROUP}/queue-name"
"""The label by which a pod names its queue."""
_MOST_WEIGHT: Final = 2**31 - 1
"""The limit of the schema."""
MOST_LEVELS: Final = 32
"""The maximum depth of a queue, counting its root and itself; deeper queues are not active."""
_NAMED_OF_CYCLE: Final = 4
_LONGEST_TITLE: Final = 256


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    creation_timestamp: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    parent: str = ""
    weight: int = 1
    min: Amounts | None = None
    max: Amounts | None = None
    namespaces: tuple[str, ...] = ()
    pod_selector: LabelSelector | None = None


class _Queue(msgspec.Struct, frozen=True):
    """The fields of the object that are read."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


@dataclass(frozen=True)
class Queue:
    """One queue; amounts are milliCPU, bytes or counts by resource.

    Attributes:
        name: its name.
        parent: the name of its parent queue; "" for a root.
        weight: its weight among its siblings.
        min: what it is guaranteed as far as it wants it; a missing resource is 0.
        max: the most that it may use; a missing resource has no limit.
        namespaces: the namespaces of its pods.
        rule: selects pods in these namespaces; None for all.
        created: orders queues that claim the same pods.
        min_run_times: cause of a preemption -> how many seconds its pods, and those of queues below, run at least before it.
    """

    name: str
    parent: str = ""
    weight: int = 1
    min: Mapping[str, int] = field(default_factory=dict)
    max: Mapping[str, int] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    rule: LabelRule | None = None
    created: str = ""
    min_run_times: Mapping[Cause, float] = field(default_factory=dict)

    @property
    def claims(self) -> bool:
        """Return whether it claims pods."""
        return bool(self.namespaces) or self.rule is not None

    def admits(self, pod: PodInfo) -> bool:
        """Return whether the queue admits pods of the pod's namespace."""
        return not self.namespaces or pod.namespace in self.namespaces


class Tree:
    """The active queues, parents before their children.

    Attributes:
        queues: the queues by index.
        parents: the index of each queue's parent; -1 for a root.
        children: index -> the indexes of its children; -1 has the roots.
        weights_version: changes with every change of a weight.
        minimums: resource -> the indexes of the queues with a min of it, and their min.
        maximums: resource -> the indexes of the queues with a max of it, and their max.
    """

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        run_to_end(self.fill(run_to_end(_parents_first(queues))))

    def fill(self, ordered: list[Queue]) -> Generator[None, None, None]:
        """Set the queues, parents before their children, in steps; the tree may be used after the last step."""
        self.queues: list[Queue] = ordered
        self.weights_version = 0
        self._places: dict[str, int] = {}
        self.parents: list[int] = []
        self.children: dict[int, list[int]] = {}
        minimums, maximums = _Columns(), _Columns()
        paths: list[tuple[int, ...]] = []
        for place, queue in enumerate(ordered):
            if place % SETTLED_A_STEP == 0:
                yield
            self._places[queue.name] = place
            parent = self._places[queue.parent] if queue.parent else -1
            self.parents.append(parent)
            self.children.setdefault(parent, []).append(place)
            paths.append((place, *paths[parent]) if queue.parent else (place,))
            minimums.put(place, queue.min)
            maximums.put(place, queue.max)
        yield
        self.minimums = minimums.arrays(np.float64)  # sums of min may exceed 64 bits
        self.maximums = maximums.arrays(np.int64)
        self._leaves: dict[str, Queue] = {}
        self._namespaces: dict[str, tuple[str, ...]] = {}  # leaf -> the namespaces that it names
        self._by_namespace: dict[str, str] = {}
        self.paths: dict[str, tuple[int, ...]] = {}
        """Leaf -> the indexes from it up to its root."""
        selecting = []
        for place, queue in enumerate(ordered):
            if place % SETTLED_A_STEP == 0:
                yield
            if place in self.children:
                continue
            self._leaves[queue.name], self._namespaces[queue.name] = queue, queue.namespaces
            self.paths[queue.name] = paths[place]
            if queue.rule is not None:
                selecting.append(queue)
            else:
                self._by_namespace.update(dict.fromkeys(queue.namespaces, queue.name))
        yield
        self._selecting = sorted(selecting, key=attrgetter("created", "name"))

    def __len__(self) -> int:
        return len(self.queues)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def files_as(self, other: Tree) -> bool:
        """Return whether another tree assigns every pod to the same queue."""
        mine = self._namespaces, self._selecting, self._by_namespace
        return mine == (other._namespaces, other._selecting, other._by_namespace)

    def weigh(self, name: str, weight: int) -> None:
        """Change a queue's weight; do nothing if the queue is not active."""
        place = self._places.get(name)
        if place is not None:
            self.queues[place] = replace(self.queues[place], weight=weight)
            self.weights_version += 1

    def place(self, name: str) -> int:
        """Return the index of a queue."""
        return self._places[name]

    def title(self, place: int) -> str:
        """Return a queue's name after those of its ancestors, as in `research/nlp`; if that is too long, its end."""
        names = [self.queues[each].name for each in reversed(list(self._up(place)))]
        title = "/".join(names)
        return title if len(title) <= _LONGEST_TITLE else f".../{names[-1]}"

    def queue_of(self, pod: PodInfo) -> str:
        """Return the name of a pod's queue; "" if it has none.

        The queue in its label comes first, if that admits the pod's namespace; then the oldest that selects the pod; then
        the one that has its namespace.
        """
        named = self._leaves.get(pod.labels.get(QUEUE_NAME, ""))
        if named is not None and named.admits(pod):
            return named.name
        for queue in self._selecting:
            if queue.admits(pod) and queue.rule is not None and queue.rule.matches(pod.labels):
                return queue.name
        return self._by_namespace.get(pod.namespace, "")

    def min_run_time(self, pod: PodInfo, cause: Cause) -> tuple[float, str] | None:
        """Return the minimum run time of a pod, by its queue or the nearest one above, and the title of that queue."""
        for place in self.paths.get(self.queue_of(pod), ()):
            seconds = self.queues[place].min_run_times.get(cause)
            if seconds is not None:
                return seconds, f"queue {self.title(place)}"
        return None

    def _up(self, place: int) -> Iterator[int]:
        while place >= 0:
            yield place
            place = self.parents[place]


class _Columns:
    """Amounts of queues by resource."""

    def __init__(self) -> None:
        self._by_resource: dict[str, tuple[list[int], list[int]]] = {}

    def put(self, place: int, amounts: Mapping[str, int]) -> None:
        for name, amount in amounts.items():
            places, its = self._by_resource.setdefault(name, ([], []))
            places.append(place)
            its.append(amount)

    def arrays(self, dtype: type[D]) -> dict[str, tuple[Int64s, np.ndarray[tuple[int, ...], np.dtype[D]]]]:
        """Return resource -> indexes of queues, and their amounts."""
        return {
            name: (np.array(places, dtype=np.int64), np.array(amounts, dtype=dtype))
            for name, (places, amounts) in self._by_resource.items()
        }


def _parents_first(queues: Iterable[Queue]) -> Generator[None, None, list[Queue]]:
    """Return the queues whose ancestors lead to a root, parents before their children; in steps."""
    by_parent: dict[str, list[Queue]] = {}
    for place, queue in enumerate(sorted(queues, key=attrgetter("name"))):
        if place % SETTLED_A_STEP == 0:
            yield
        by_parent.setdefault(queue.parent, []).append(queue)
    ordered = list(by_parent.get("", ()))
    for place, queue in enumerate(ordered):  # grows while it is read
        if place % SETTLED_A_STEP == 0:
            yield
        ordered.extend(by_parent.get(queue.name, ()))
    return ordered


class Queues(ObjectsInSteps):
    """The tree of the existing queues, rebuilt when one of them changes.

    An object is read when it is new or changed. Faults are logged once.

    Attributes:
        tree: a new object after every change of a queue, except of its weight alone; a status is no change.
        wrong: name -> the most serious fault of each queue.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree()
        self._read: dict[str, Queue | FieldError] = {}
        self.wrong: Mapping[str, FieldError] = {}
        self._annotations = AnnotationFaults("queue")

    def forget(self) -> None:
        self._read = {}

    def read(self, key: str) -> bool:
        obj = self._objects.get(key)
        found = None if obj is None else _read_one(key, obj)
        if obj is not None and isinstance(found, Queue):
            self._annotations.note(key, obj["metadata"].get("annotations") or {})
        else:
            self._annotations.note(key, {})
        known = self._read.get(key)
        if found == known:
            return False
        if found is None:
            del self._read[key]
        else:
            self._read[key] = found
        weight = _other_weight(known, found)
        if weight is None or self._round is not None:
            return True
        self.tree.weigh(key, weight)
        return False

    def settle(self) -> Generator[None, None, None]:
        tree, wrong = yield from _settled(self._read)
        for place, (name, fault) in enumerate(wrong.items()):
            if place % SETTLED_A_STEP == 0:
                yield
            if self.wrong.get(name) != fault:
                logger.warning(
                    "Queue is invalid; its invalid part is ignored",
                    extra={"queue": name, "field": fault.path, "error": fault.problem},
                )
        self.tree, self.wrong = tree, wrong


def _other_weight(known: Queue | FieldError | None, found: Queue | FieldError | None) -> int | None:
    """Return the weight of a queue's new version if it differs in nothing else, else None."""
    if isinstance(known, Queue) and isinstance(found, Queue) and replace(known, weight=found.weight) == found:
        return found.weight
    return None


def faults(queues: Mapping[str, Mapping[str, Any]]) -> dict[str, FieldError]:
    """Return the most serious fault of each queue by name; `queues` is name -> object."""
    return read(queues)[1]


def read(objects: Mapping[str, Mapping[str, Any]]) -> tuple[Tree, dict[str, FieldError]]:
    """Return the tree of the valid queues, and the faults."""
    return run_to_end(_settled({name: _read_one(name, obj) for name, obj in objects.items()}))


def _settled(
    found_by_name: Mapping[str, Queue | FieldError],
) -> Generator[None, None, tuple[Tree, dict[str, FieldError]]]:
    """Return the tree of the valid queues, and the faults; linear in their number, in steps."""
    wrong: dict[str, FieldError] = {}
    known: dict[str, Queue] = {}
    for name, found in found_by_name.items():
        if isinstance(found, Queue):
            known[name] = found
        else:
            wrong[name] = found
    yield
    active = yield from _with_parents(known, wrong)
    inner = {queue.parent for queue in active.values()}
    for name in sorted(inner & active.keys()):
        queue = active[name]
        if queue.claims:
            message = "it has children, and only queues without children hold pods: its pods are left to other queues"
            path = "spec.namespaces" if queue.namespaces else "spec.podSelector"
            wrong.setdefault(name, FieldError(path, message, reason="HasChildren"))
            active[name] = replace(queue, namespaces=(), rule=None)
    yield
    yield from _settle_claims(active, wrong)
    ordered = yield from _parents_first(active.values())
    yield from _settle_amounts(ordered, wrong)
    tree = Tree()
    yield from tree.fill(ordered)
    return tree, wrong


def _read_one(name: str, obj: Mapping[str, Any]) -> Queue | FieldError:
    try:
        found = typed_object(obj, _Queue)
    except ObjectError as error:
        return FieldError(error.path or "spec", error.problem)
    spec = found.spec
    if spec.weight < 1:
        return FieldError("spec.weight", f"at least 1 is expected, was {spec.weight}")
    if spec.weight > _MOST_WEIGHT:
        return FieldError("spec.weight", f"at most {_MOST_WEIGHT} is expected, was {spec.weight}")
    amounts: dict[str, dict[str, int]] = {"min": {}, "max": {}}
    for kind, given in (("min", spec.min), ("max", spec.max)):
        for resource, amount in (given or {}).items():
            try:
                amounts[kind][resource] = bounded_amount(resource, amount)
            except ValueError as error:
                return FieldError(f"spec.{kind}.{resource}", str(error))
    try:
        rule = None if spec.pod_selector is None else parse_label_selector(spec.pod_selector)
    except SelectorError as error:
        return FieldError("spec.podSelector", str(error))
    return Queue(
        name,
        spec.parent,
        spec.weight,
        amounts["min"],
        amounts["max"],
        spec.namespaces,
        rule,
        found.metadata.creation_timestamp,
        min_run_times(found.metadata.annotations or {}),
    )


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a queue's line of ancestors.

    Attributes:
        levels: the number of queues up to the root, both included; 0 without a root.
        last: without a root, the last existing queue.
        parent: the name of that queue's parent.
        cycle: the queues of the cycle that the line ends in, if any.
    """

    levels: int = 0
    last: str = ""
    parent: str = ""
    cycle: Mapping[str, None] = field(default_factory=dict)


@lru_cache(maxsize=MOST_LEVELS)
def _end_with_root(levels: int) -> _End:
    return _End(levels)


def _with_parents(
    known: Mapping[str, Queue], wrong: dict[str, FieldError]
) -> Generator[None, None, dict[str, Queue]]:
    """Return the queues whose ancestors lead to a root, and record the faults of the others."""
    active: dict[str, Queue] = {}
    ends: dict[str, _End] = {}
    for place, (name, queue) in enumerate(known.items()):
        if place % SETTLED_A_STEP == 0:
            yield
        end = _end_of(name, known, ends)
        if 0 < end.levels <= MOST_LEVELS:
            active[name] = queue
        elif end.levels:
            message = f"{end.levels} queues lead from it to its root, at most {MOST_LEVELS} may"
            wrong[name] = FieldError("spec.parent", message, reason="TooDeep")
        elif end.cycle:
            wrong[name] = FieldError(
                "spec.parent", f"no root is found: {_told_of(end.cycle, name, known)}", reason="ParentCycle"
            )
        elif end.last == name:
            is_there = end.parent in wrong
            why = "is invalid itself" if is_there else "does not exist"
            reason = "ParentNotActive" if is_there else "UnknownParent"
            wrong[name] = FieldError("spec.parent", f"queue {end.parent} {why}", reason=reason)
        else:
            message = f"queue {queue.parent} is left out, since of {end.last} the parent is"
            wrong[name] = FieldError("spec.parent", message, reason="ParentNotActive")
    return active


def _end_of(name: str, known: Mapping[str, Queue], ends: dict[str, _End]) -> _End:
    """Return the end of a queue's line of ancestors, and record it in `ends` for all queues of the line."""
    line: dict[str, int] = {}  # name -> its position
    at = name
    while at in known and at not in ends and at not in line:
        line[at] = len(line)
        at = known[at].parent
    way = list(line)
    if at in ends:
        end = ends[at]
    elif at in line:
        end = _End(cycle=dict.fromkeys(way[line[at] :]))
    elif at:
        end = _End(last=way[-1], parent=at)
    else:
        end = _End()
    has_root = bool(end.levels) or not (end.cycle or end.last)
    for levels, each in enumerate(reversed(way), end.levels + 1):
        ends[each] = _end_with_root(levels) if has_root else end
    return ends[name]


def _told_of(cycle: Mapping[str, None], name: str, known: Mapping[str, Queue]) -> str:
    """Return the text of a cycle, starting at the queue if it is part of it; of a long one, its first few queues."""
    shown = [name if name in cycle else next(iter(cycle))]
    while len(shown) < min(len(cycle), _NAMED_OF_CYCLE):
        shown.append(known[shown[-1]].parent)
    if len(shown) < len(cycle):
        return f"{' is part of '.join(shown)}, and so on, in a cycle of {len(cycle)} queues"
    return " is part of ".join([*shown, shown[0]])


def _settle_claims(active: dict[str, Queue], wrong: dict[str, FieldError]) -> Generator[None, None, None]:
    """Give a namespace that several queues claim as a whole to the oldest of them."""
    holders: dict[str, str] = {}
    ordered = sorted(active.values(), key=attrgetter("name"))
    yield  # two short sorts instead of a long one
    ordered.sort(key=attrgetter("created"))
    for place, queue in enumerate(ordered):
        if place % SETTLED_A_STEP == 0:
            yield
        if queue.rule is not None:
            continue
        for number, namespace in enumerate(queue.namespaces):
            holder = holders.setdefault(namespace, queue.name)
            if holder != queue.name:
                message = f"queue {holder} has namespace {namespace} already"
                fault = FieldError(f"spec.namespaces[{number}]", message, reason="NamespaceTaken")
                wrong.setdefault(queue.name, fault)
        left = tuple(each for each in queue.namespaces if holders[each] == queue.name)
        if left != queue.namespaces:
            # A queue without namespaces would admit pods of every namespace that name it.
            active[queue.name] = replace(queue, namespaces=left or ("",))


def _settle_amounts(ordered: list[Queue], wrong: dict[str, FieldError]) -> Generator[None, None, None]:
    """Limit min to max, and record queues whose children are guaranteed more than their parent; those are scaled down later.

    Args:
        ordered: the queues, parents before their children; replaced where their min changes.
        wrong: gets the faults.
    """
    of_children: dict[str, dict[str, int]] = {}
    for place in range(len(ordered) - 1, -1, -1):
        if place % SETTLED_A_STEP == 0:
            yield
        queue = ordered[place]
        sums = of_children.get(queue.name, {})
        for resource, total in sums.items():
            if resource in queue.min and total > queue.min[resource]:
                sums_up, least = readable_amounts(resource, total, queue.min[resource])
                message = (
                    f"its children are guaranteed {sums_up} together, but it only {least}: they get less"
                )
                fault = FieldError(f"spec.min.{resource}", message, reason="ChildrenMinAboveMin")
                wrong.setdefault(queue.name, fault)
        settled = {**sums, **queue.min}
        for resource, amount in settled.items():
            if amount > queue.max.get(resource, amount):
                least, most = readable_amounts(resource, amount, queue.max[resource])
                message = f"{least} is more than its max, {most}: max counts"
                wrong.setdefault(
                    queue.name, FieldError(f"spec.min.{resource}", message, reason="MinAboveMax")
                )
                settled[resource] = queue.max[resource]
        if settled != queue.min:
            ordered[place] = replace(queue, min=settled)
        if queue.parent:
            add(of_children.setdefault(queue.parent, {}), settled)
