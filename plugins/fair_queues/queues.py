"""Queues: the objects, what is wrong with them, and the tree of those that are in force."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from plugins.capacity_scheduling.quotas import add
from plugins.objects_in_steps import SETTLED_A_STEP, ObjectsInSteps
from scheduler.errors import ObjectError
from scheduler.framework.long_work import at_once
from scheduler.objects.amounts import Amounts, bounded_amount
from scheduler.objects.decode import typed_object
from scheduler.objects.resource_names import CPU
from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorError, parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from typing import Any

    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

GROUP: Final = "custom-scheduler.io"
QUEUES: Final = f"{GROUP}/v1alpha1/queues"
STATUS_RIGHT: Final = f"patch {QUEUES}/status"
"""The daemon tells there how a queue stands."""
QUEUE_NAME: Final = f"{GROUP}/queue-name"
"""The label by which a pod names its queue."""
_MOST_WEIGHT: Final = 2**31 - 1
"""As the schema has it."""
MOST_LEVELS: Final = 32
"""So many queues may be between a pod's and its root, both included; those further down are not in force."""
_NAMED_OF_CYCLE: Final = 4
_LONGEST_TITLE: Final = 256


class Fault(NamedTuple):
    """What is wrong with a queue.

    Attributes:
        field: where.
        text: what.
        reason: in one word.
    """

    field: str
    text: str
    reason: str = "Invalid"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    creation_timestamp: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    parent: str = ""
    weight: int = 1
    min: Amounts | None = None
    max: Amounts | None = None
    namespaces: tuple[str, ...] = ()
    pod_selector: LabelSelector | None = None


class _Queue(msgspec.Struct, frozen=True):
    """The object, as far as it is read."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


@dataclass(frozen=True)
class Queue:
    """One queue; amounts are milliCPU, bytes or counts by resource.

    Attributes:
        name: its name.
        parent: the name of the queue that it is part of; "" of a root.
        weight: its part beside its siblings.
        min: what it is sure of while it wants it; a resource that is missing is 0.
        max: what it never gets more of; of a resource that is missing there is no limit.
        namespaces: whose pods are its.
        rule: of which pods, if not of all there; None for all.
        created: orders queues that claim the same.
    """

    name: str
    parent: str = ""
    weight: int = 1
    min: Mapping[str, int] = field(default_factory=dict)
    max: Mapping[str, int] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    rule: LabelRule | None = None
    created: str = ""

    @property
    def claims(self) -> bool:
        """Whether it says which pods are its."""
        return bool(self.namespaces) or self.rule is not None

    def admits(self, pod: PodInfo) -> bool:
        """Whether the queue takes pods of that namespace."""
        return not self.namespaces or pod.namespace in self.namespaces


class Tree:
    """The queues in force, parents before their children.

    Attributes:
        queues: by place.
        parents: the place of each queue's parent; -1 of a root.
        children: place -> those of its children; -1 has the roots.
        weights_version: another number after every change of a weight.
    """

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        at_once(self.fill(queues))

    def fill(self, queues: Iterable[Queue]) -> Generator[None, None, None]:
        """Let these be the queues, in steps; the tree may be used after the last step."""
        ordered = _parents_first(queues)
        yield
        self.queues: list[Queue] = ordered
        self.weights_version = 0
        self._places = {queue.name: place for place, queue in enumerate(ordered)}
        yield
        self.parents = [self._places[queue.parent] if queue.parent else -1 for queue in ordered]
        yield
        self.children: dict[int, list[int]] = {}
        for place, parent in enumerate(self.parents):
            self.children.setdefault(parent, []).append(place)
        yield
        leaves = [queue for place, queue in enumerate(ordered) if place not in self.children]
        self._leaves = {queue.name: queue for queue in leaves}
        yield
        self._selecting = sorted(
            (queue for queue in leaves if queue.rule is not None), key=lambda each: (each.created, each.name)
        )
        self._by_namespace = {
            namespace: queue.name for queue in leaves if queue.rule is None for namespace in queue.namespaces
        }
        yield
        vars(self).pop("paths", None)
        _ = self.paths

    def __len__(self) -> int:
        return len(self.queues)

    def files_as(self, other: Tree) -> bool:
        """Whether every pod is of the same queue in another tree."""
        mine = self._leaves.keys(), self._selecting, self._by_namespace
        its = other._leaves.keys(), other._selecting, other._by_namespace
        return mine == its and all(
            queue.namespaces == other._leaves[name].namespaces for name, queue in self._leaves.items()
        )

    def weigh(self, name: str, weight: int) -> None:
        """Change a queue's weight; nothing if the queue is not in force."""
        place = self._places.get(name)
        if place is not None:
            self.queues[place] = replace(self.queues[place], weight=weight)
            self.weights_version += 1

    def place(self, name: str) -> int:
        """Return where a queue is."""
        return self._places[name]

    @cached_property
    def paths(self) -> Mapping[str, tuple[int, ...]]:
        """Leaf -> the places from it up to its root."""
        return {name: tuple(self._up(self._places[name])) for name in self._leaves}

    def title(self, place: int) -> str:
        """Return a queue's name behind those of its ancestors, as in `research/nlp`; of a long one, its end."""
        names = [self.queues[each].name for each in reversed(list(self._up(place)))]
        title = "/".join(names)
        return title if len(title) <= _LONGEST_TITLE else f".../{names[-1]}"

    def queue_of(self, pod: PodInfo) -> str:
        """Return the name of a pod's queue; "" if it is in none.

        The queue that its label names comes first, if that takes pods of its namespace; then the oldest that selects
        it, then the one that has its namespace.
        """
        named = self._leaves.get(pod.labels.get(QUEUE_NAME, ""))
        if named is not None and named.admits(pod):
            return named.name
        for queue in self._selecting:
            if queue.admits(pod) and queue.rule is not None and queue.rule.matches(pod.labels):
                return queue.name
        return self._by_namespace.get(pod.namespace, "")

    def _up(self, place: int) -> Iterator[int]:
        while place >= 0:
            yield place
            place = self.parents[place]


def _parents_first(queues: Iterable[Queue]) -> list[Queue]:
    """Return those queues from which parents lead to a root, parents before their children."""
    by_parent: dict[str, list[Queue]] = {}
    for queue in sorted(queues, key=lambda each: each.name):
        by_parent.setdefault(queue.parent, []).append(queue)
    ordered = list(by_parent.get("", ()))
    for queue in ordered:  # grows while it is read
        ordered.extend(by_parent.get(queue.name, ()))
    return ordered


class Queues(ObjectsInSteps):
    """The tree of the queues there are, settled again when one of them changed.

    An object is read when it is new or changed. What is wrong is logged once.

    Attributes:
        tree: another object after every change of a queue, but for one of its weight alone; a status is no change.
        wrong: name -> what is wrong, the gravest of each queue.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree()
        self._read: dict[str, Queue | Fault] = {}
        self.wrong: Mapping[str, Fault] = {}

    def forget(self) -> None:
        self._read = {}

    def read(self, key: str) -> bool:
        obj = self._objects.get(key)
        found = None if obj is None else _read_one(key, obj)
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
                    "Queue is wrong; what is wrong of it is left out",
                    extra={"queue": name, "field": fault.field, "error": fault.text},
                )
        self.tree, self.wrong = tree, wrong


def _other_weight(known: Queue | Fault | None, found: Queue | Fault | None) -> int | None:
    """Return the weight of a queue's new version if it differs in nothing else, else None."""
    if isinstance(known, Queue) and isinstance(found, Queue) and replace(known, weight=found.weight) == found:
        return found.weight
    return None


def faults(queues: Mapping[str, Mapping[str, Any]]) -> dict[str, Fault]:
    """Return what is wrong with queues by name, the gravest of each; `queues` is name -> object."""
    return read(queues)[1]


def read(objects: Mapping[str, Mapping[str, Any]]) -> tuple[Tree, dict[str, Fault]]:
    """Return the tree of the queues that can be in force, and what is wrong with any."""
    return at_once(_settled({name: _read_one(name, obj) for name, obj in objects.items()}))


def _settled(
    found_by_name: Mapping[str, Queue | Fault],
) -> Generator[None, None, tuple[Tree, dict[str, Fault]]]:
    """Return the tree of those queues that can be in force, and what is wrong with any; linear in their number, in steps."""
    wrong: dict[str, Fault] = {}
    known: dict[str, Queue] = {}
    for name, found in found_by_name.items():
        if isinstance(found, Queue):
            known[name] = found
        else:
            wrong[name] = found
    yield
    in_force = yield from _with_parents(known, wrong)
    inner = {queue.parent for queue in in_force.values()}
    for name in sorted(inner & in_force.keys()):
        queue = in_force[name]
        if queue.claims:
            told = "it has children, and only queues without any hold pods: they are left to others"
            path = "spec.namespaces" if queue.namespaces else "spec.podSelector"
            wrong.setdefault(name, Fault(path, told, "HasChildren"))
            in_force[name] = replace(queue, namespaces=(), rule=None)
    yield
    yield from _settle_claims(in_force, wrong)
    yield from _settle_amounts(in_force, wrong)
    tree = Tree()
    yield from tree.fill(in_force.values())
    return tree, wrong


def _read_one(name: str, obj: Mapping[str, Any]) -> Queue | Fault:
    try:
        found = typed_object(obj, _Queue)
    except ObjectError as error:
        return Fault(error.path or "spec", error.problem)
    spec = found.spec
    if spec.weight < 1:
        return Fault("spec.weight", f"at least 1 is expected, was {spec.weight}")
    if spec.weight > _MOST_WEIGHT:
        return Fault("spec.weight", f"at most {_MOST_WEIGHT} is expected, was {spec.weight}")
    amounts: dict[str, dict[str, int]] = {"min": {}, "max": {}}
    for kind, given in (("min", spec.min), ("max", spec.max)):
        for resource, amount in (given or {}).items():
            try:
                amounts[kind][resource] = bounded_amount(resource, amount)
            except ValueError as error:
                return Fault(f"spec.{kind}.{resource}", str(error))
    try:
        rule = None if spec.pod_selector is None else parse_label_selector(spec.pod_selector)
    except SelectorError as error:
        return Fault("spec.podSelector", str(error))
    return Queue(
        name,
        spec.parent,
        spec.weight,
        amounts["min"],
        amounts["max"],
        spec.namespaces,
        rule,
        found.metadata.creation_timestamp,
    )


@dataclass(frozen=True, slots=True)
class _End:
    """Where the parents of a queue lead.

    Attributes:
        levels: from the queue up to its root, both included; 0 without a root.
        last: without a root, the last queue that is there.
        parent: of that, by name.
        cycle: the queues of the cycle that they lead into, if they do.
    """

    levels: int = 0
    last: str = ""
    parent: str = ""
    cycle: Mapping[str, None] = field(default_factory=dict)


@lru_cache(maxsize=MOST_LEVELS)
def _end_with_root(levels: int) -> _End:
    return _End(levels)


def _with_parents(
    known: Mapping[str, Queue], wrong: dict[str, Fault]
) -> Generator[None, None, dict[str, Queue]]:
    """Return the queues from which parents lead to a root; of the others, note what is in the way."""
    in_force: dict[str, Queue] = {}
    ends: dict[str, _End] = {}
    for place, (name, queue) in enumerate(known.items()):
        if place % SETTLED_A_STEP == 0:
            yield
        end = _end_of(name, known, ends)
        if 0 < end.levels <= MOST_LEVELS:
            in_force[name] = queue
        elif end.levels:
            told = f"{end.levels} queues lead from it to its root, at most {MOST_LEVELS} may"
            wrong[name] = Fault("spec.parent", told, "TooDeep")
        elif end.cycle:
            wrong[name] = Fault(
                "spec.parent", f"no root is found: {_told_of(end.cycle, name, known)}", "ParentCycle"
            )
        elif end.last == name:
            is_there = end.parent in wrong
            why = "is wrong itself" if is_there else "does not exist"
            reason = "ParentNotInForce" if is_there else "UnknownParent"
            wrong[name] = Fault("spec.parent", f"queue {end.parent} {why}", reason)
        else:
            told = f"queue {queue.parent} is left out, since of {end.last} the parent is"
            wrong[name] = Fault("spec.parent", told, "ParentNotInForce")
    return in_force


def _end_of(name: str, known: Mapping[str, Queue], ends: dict[str, _End]) -> _End:
    """Return where a queue's parents lead; of all on the way, it is noted in `ends`."""
    line: dict[str, int] = {}  # name -> its place on the way
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
    """Return a cycle in words, from a queue on if it is in it; of a long one, its first few queues."""
    shown = [name if name in cycle else next(iter(cycle))]
    while len(shown) < min(len(cycle), _NAMED_OF_CYCLE):
        shown.append(known[shown[-1]].parent)
    if len(shown) < len(cycle):
        return f"{' is part of '.join(shown)}, and so on, in a cycle of {len(cycle)} queues"
    return " is part of ".join([*shown, shown[0]])


def _settle_claims(in_force: dict[str, Queue], wrong: dict[str, Fault]) -> Generator[None, None, None]:
    """Leave a namespace that several have as a whole to the oldest of them."""
    holders: dict[str, str] = {}
    ordered = sorted(in_force.values(), key=lambda each: (each.created, each.name))
    for place, queue in enumerate(ordered):
        if place % SETTLED_A_STEP == 0:
            yield
        if queue.rule is not None:
            continue
        for number, namespace in enumerate(queue.namespaces):
            holder = holders.setdefault(namespace, queue.name)
            if holder != queue.name:
                told = f"queue {holder} has namespace {namespace} already"
                fault = Fault(f"spec.namespaces[{number}]", told, "NamespaceTaken")
                wrong.setdefault(queue.name, fault)
        left = tuple(each for each in queue.namespaces if holders[each] == queue.name)
        if left != queue.namespaces:
            # Without any it would take pods of every namespace that name it.
            in_force[queue.name] = replace(queue, namespaces=left or ("",))


def _settle_amounts(in_force: dict[str, Queue], wrong: dict[str, Fault]) -> Generator[None, None, None]:
    """Bring min within max, and note where children are sure of more than their parent, which are scaled down later."""
    of_children: dict[str, dict[str, int]] = {}
    for place, queue in enumerate(reversed(_parents_first(in_force.values()))):
        if place % SETTLED_A_STEP == 0:
            yield
        sums = of_children.get(queue.name, {})
        for resource, total in sums.items():
            if resource in queue.min and total > queue.min[resource]:
                sums_up, least = written(resource, total), written(resource, queue.min[resource])
                told = f"its children are sure of {sums_up} together, it of {least}: they get less"
                fault = Fault(f"spec.min.{resource}", told, "ChildrenMinAboveMin")
                wrong.setdefault(queue.name, fault)
        settled = {**sums, **queue.min}
        for resource, amount in settled.items():
            if amount > queue.max.get(resource, amount):
                most = written(resource, queue.max[resource])
                told = f"{written(resource, amount)} is more than its max, {most}: max holds"
                wrong.setdefault(queue.name, Fault(f"spec.min.{resource}", told, "MinAboveMax"))
                settled[resource] = queue.max[resource]
        if settled != queue.min:
            in_force[queue.name] = replace(queue, min=settled)
        if queue.parent:
            add(of_children.setdefault(queue.parent, {}), settled)


def written(resource: str, amount: int) -> str:
    """Return an amount as people write it; `amount` is of milliCPU, bytes or a count."""
    if resource == CPU:
        return f"{amount / 1000:g}"
    for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if amount >= size:
            return f"{amount / size:.4g}{unit}"
    return str(amount)
