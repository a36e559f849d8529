"""The recorded scenarios of pod groups, and the differences of an outcome from the recorded one."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.feature_gates import DEFAULT_VERSION, stages_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

CASES = Path(__file__).parent / "cases-groups" / "cases.json.gz"
GATES = (
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
)
MOST_CYCLES = 9

State = dict[str, Any]
"""What is observed: `pods`, name -> entry, and `podGroups`, name -> conditions, as a case has them."""


@dataclass(frozen=True)
class Difference:
    """One thing that is not as recorded.

    Attributes:
        what: the moment and the object, as in `end: pod p1`.
        has: how it is.
        recorded: how it may be.
    """

    what: str
    has: str
    recorded: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.what}:\n    recorded {' or '.join(self.recorded)}\n    got      {self.has}"


@dataclass(frozen=True)
class Case:
    """One scenario; see cases-groups/README.md.

    Attributes:
        stored: the scenario.
        args: arguments of GangScheduling.
    """

    stored: Mapping[str, Any]
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.stored["name"])

    @property
    def version(self) -> str:
        return str(self.stored.get("version", DEFAULT_VERSION))

    @property
    def gates(self) -> dict[str, bool]:
        """All gates of workloads that the version has; what the case does not name was off."""
        pairs = (each.split("=") for each in self.stored["featureGates"].split(","))
        known = stages_at(self.version)
        return {gate: False for gate in GATES if gate in known} | {
            name: value == "true" for name, value in pairs
        }

    @property
    def profiles(self) -> list[str]:
        return self.stored.get("profiles", ["default-scheduler"])

    @property
    def configuration(self) -> str:
        """What the daemon is configured with."""
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "emulatedVersion": self.version,
            "featureGates": self.gates,
            "profiles": [
                {
                    "schedulerName": name,
                    "pluginConfig": [{"name": "GangScheduling", "args": self.args}] if self.args else [],
                }
                for name in self.profiles
            ],
        }
        return json.dumps(document)


@cache
def cases() -> dict[str, Case]:
    """Every scenario by its name."""
    return {each["name"]: Case(each) for each in _stored()["cases"]}


@cache
def priority_classes() -> dict[str, dict[str, Any]]:
    """PriorityClass -> what it says beside its name."""
    classes = _stored()["conventions"]["priorityClasses"]
    return {name: said if isinstance(said, dict) else {"value": said} for name, said in classes.items()}


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = msgspec.json.decode(gzip.decompress(CASES.read_bytes()))
    return stored


def state_of(pods: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]) -> State:
    """Return what a case would record of a namespace."""
    return {
        "pods": {pod["metadata"]["name"]: _entry(pod) for pod in pods},
        "podGroups": {
            group["metadata"]["name"]: group.get("status", {}).get("conditions", []) for group in groups
        },
    }


def _entry(pod: Mapping[str, Any]) -> dict[str, Any]:
    status = pod.get("status", {})
    found = {each["type"]: each for each in status.get("conditions", ())}
    entry: dict[str, Any] = {
        kind: found[kind]
        for kind in ("PodScheduled", "DisruptionTarget")
        if kind in found and (kind, found[kind]["status"]) != ("PodScheduled", "True")
    }
    if status.get("nominatedNodeName"):
        entry["nominatedNodeName"] = status["nominatedNodeName"]
    return {"node": pod["spec"].get("nodeName", ""), **entry}


def compare(case: Case, wanted: Mapping[str, Any], state: State) -> list[Difference]:
    """Return everything in which a state differs from what was observed at a moment."""
    made = _Made(case)
    differences = []
    counts = wanted["boundCount"] if isinstance(wanted["boundCount"], list) else [wanted["boundCount"]]
    bound = sum(bool(pod["node"]) for pod in state["pods"].values())
    if bound not in counts:
        differences.append(
            Difference(f"{wanted['at']}: bound pods", str(bound), tuple(map(str, sorted(counts))))
        )
    alike = defaultdict(list)
    for name in sorted({*wanted["pods"], *state["pods"]}):
        alike[made.likeness.get(name, name)].append(name)
    for names in alike.values():
        differences.extend(_compare_pods(made, names, wanted, state))
    for name in sorted({*wanted["podGroups"], *state["podGroups"]}):
        has = _group_words(state["podGroups"].get(name))
        may = {_group_words(each) for each in _alternatives(wanted["podGroups"].get(name))}
        if has not in may:
            differences.append(Difference(f"{wanted['at']}: group {name}", has, tuple(sorted(may))))
    return differences


def compare_end(
    case: Case, evicted: Iterable[str], cycles: float | None, writes: Iterable[str] | None
) -> list[Difference]:
    """Return in what the whole run differs.

    Args:
        case: that was played.
        evicted: names of pods.
        cycles: how often a group was tried; None where that is not known.
        writes: kinds, as `kinds_of_writes` has them; None where they are not known.
    """
    differences = []
    stored = case.stored["evictedByScheduler"]
    runs = stored["perRun"] if isinstance(stored, dict) else [stored]
    made = _Made(case)
    may = {_listed(made.first_alike(run)) for run in runs}
    who = _listed(made.first_alike(evicted))
    if who not in may:
        differences.append(Difference("evicted", who, tuple(sorted(may))))
    if cycles is not None and cycles > MOST_CYCLES:
        differences.append(Difference("group cycles", f"{cycles:.0f}", (f"at most {MOST_CYCLES}",)))
    if writes is not None and "schedulerWritesFirstRun" in case.stored:
        recorded = kinds_of_writes(case.stored["schedulerWritesFirstRun"])
        written = {*writes}
        if written != recorded:
            differences.append(Difference("writes", _listed(written), (_listed(recorded),)))
    return differences


def kinds_of_writes(writes: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the kinds of recorded writes; that a node is nominated alone is none."""
    kinds = set()
    for write in writes:
        condition = write.get("condition")
        match write:
            case {"bind": _}:
                kinds.add("bind")
            case {"delete": _}:
                kinds.add("delete")
            case {"event": _}:
                kinds.add(f"event {write['type']} {write['reason']} {write['action']}")
            case {"podStatus": _} | {"podGroupStatus": _} if condition is not None:
                kinds.add(f"{condition['type']} {condition['status']} {condition['reason']}")
    return kinds


class _Made:
    """What a case creates.

    Attributes:
        likeness: pod -> what those have in common that stand in for each other.
        domains: pod under a topology constraint -> node -> domain.
    """

    def __init__(self, case: Case) -> None:
        self.likeness: dict[str, str] = {}
        self.domains: dict[str, dict[str, str]] = {}
        steps = case.stored["steps"]
        batches = [case.stored["initialNodes"], *(step.get("create", ()) for step in steps)]
        marked = {name for step in steps for name in step.get("setPodStatus", ())}
        labels: dict[str, dict[str, str]] = {}
        keys: dict[str, str] = {}  # group -> the key of its constraint
        groups: dict[str, str] = {}  # pod -> its group
        for number, batch in enumerate(batches):
            for obj in batch:
                name, spec = obj["metadata"]["name"], obj.get("spec", {})
                match obj["kind"]:
                    case "Node":
                        labels[name] = obj["metadata"].get("labels", {})
                    case "PodGroup":
                        for each in spec.get("schedulingConstraints", {}).get("topology", ()):
                            keys[name] = each["key"]
                    case "Pod":
                        groups[name] = spec.get("schedulingGroup", {}).get("podGroupName", "")
                        what = [number, obj["metadata"].get("labels"), spec]
                        self.likeness[name] = name if name in marked else json.dumps(what, sort_keys=True)
        for pod, group in groups.items():
            if group in keys:
                self.domains[pod] = {node: has.get(keys[group], "") for node, has in labels.items()}

    def first_alike(self, names: Iterable[str]) -> Iterator[str]:
        """Yield for each pod the first that is alike and was not yielded: which of those it was is chance."""
        left = sorted(self.likeness)
        for name in names:
            first = next(each for each in left if self.likeness[each] == self.likeness[name])
            left.remove(first)
            yield first

    def words(self, name: str, pod: Mapping[str, Any] | None) -> str:
        """Say what counts of a pod."""
        if pod is None:
            return "gone"
        where = "pending"
        if pod["node"]:
            where = f"bound in {self.domains[name].get(pod['node'])}" if name in self.domains else "bound"
        conditions = [
            _sentence(kind, pod[kind]) for kind in ("PodScheduled", "DisruptionTarget") if kind in pod
        ]
        nominated = ["with a nominated node"] if pod.get("nominatedNodeName") else []
        return ", ".join([where, *conditions, *nominated])


def _compare_pods(
    made: _Made, names: Sequence[str], wanted: Mapping[str, Any], state: State
) -> Iterator[Difference]:
    """Compare pods that are alike: each stands for whichever makes the fewest differences.

    What differs is told under the name of who was recorded so, so that chance among them does not show.
    """
    has = sorted(made.words(name, state["pods"].get(name)) for name in names)
    may = [{made.words(name, each) for each in _alternatives(wanted["pods"].get(name))} for name in names]
    any_of_them = set().union(*may)
    varies = set(wanted.get("varies", ()))
    allowed = [any_of_them if name in varies else each for name, each in zip(names, may, strict=True)]

    def wrong(order: Sequence[str]) -> int:
        return sum(words not in each for words, each in zip(order, allowed, strict=True))

    best = min(itertools.permutations(has), key=wrong)
    for name, words, each in zip(names, best, allowed, strict=True):
        if words not in each:
            yield Difference(f"{wanted['at']}: pod {name}", words, tuple(sorted(each)))


def _alternatives(entry: Any) -> list[Any]:
    return entry["oneOf"] if isinstance(entry, dict) and "oneOf" in entry else [entry]


def _group_words(conditions: Iterable[Mapping[str, Any]] | None) -> str:
    if conditions is None:
        return "gone"
    return "; ".join(_sentence(each["type"], each) for each in conditions) or "without a condition"


def _sentence(kind: str, condition: Mapping[str, Any]) -> str:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    return f"{kind} {condition['status']} {reason}: {message}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
