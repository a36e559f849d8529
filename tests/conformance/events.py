"""The stored cases of events, and the pods that our scheduler requeues for them."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.configuration.load import default, parse
from scheduler.tools.whatif import cluster_file, watch_event
from scheduler.tools.whatif.evaluation import evaluate_each, pods_to_evaluate
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.requeue_preview import with_wakes

if TYPE_CHECKING:
    from scheduler.configuration.load import Configuration
    from scheduler.tools.whatif.cluster_file import ClusterFile
    from scheduler.tools.whatif.evaluation import PodEvaluation

CASES = Path(__file__).parent / "cases-events"

FAMILIES = (
    "resources",
    "taints",
    "nodeaffinity",
    "ports",
    "gates",
    "spread",
    "interpod",
    "volumes",
    "preemption",
    "dra",
    "mixed",
)

_UPSTREAM_NAME = "default-scheduler"


@dataclass(frozen=True)
class EventCase:
    """One cluster, and events that happen to it independently of each other; see cases-events/README.md.

    Attributes:
        rejectors: pod -> the plugins that rejected or gate it.
        gated: the pods that PreEnqueue keeps out.
    """

    name: str
    family: str
    config: str | None
    cluster: dict[str, Any]
    rejectors: dict[str, list[str]]
    gated: frozenset[str]
    events: list[dict[str, Any]]


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    Attributes:
        pod: which.
        what: the event in words, or what is said of the pod before any.
    """

    pod: str
    what: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.pod}, {self.what}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True)
class Finding:
    """What came of one case.

    Attributes:
        judged: how many verdicts there were, one per event and waiting pod.
        wrong_events: the events with a verdict that differs.
        differences: all that differs, before any event too.
    """

    judged: int
    wrong_events: int
    differences: list[Difference]


def paths() -> list[Path]:
    """Every case's file, by family and name."""
    return sorted(CASES.glob("*/*.json.gz"))


def load(path: Path) -> EventCase:
    stored = msgspec.json.decode(gzip.decompress(path.read_bytes()))
    return EventCase(
        name=stored["name"],
        family=path.parent.name,
        config=stored["config"],
        cluster=stored["cluster"],
        rejectors=stored["unschedulable"],
        gated=frozenset(stored["gated"]),
        events=stored["events"],
    )


def judge(case: EventCase) -> Finding:
    """Compare what we say of every event with what happened in kube-scheduler."""
    cluster = cluster_file.parse(msgspec.json.encode(case.cluster), case.name)
    configuration = default(_UPSTREAM_NAME) if case.config is None else parse(case.config, case.name)
    scheduler = OfflineScheduler(cluster, configuration)
    attempts = list(evaluate_each(scheduler, pods_to_evaluate(scheduler, cluster.pods), seconds=0))
    differences = _differences_before(case, attempts)
    judged = wrong_events = 0
    for recorded in case.events:
        # A pod that left the queue was not woken either.
        expected = dict.fromkeys([*recorded["sleeps"], *recorded.get("removed", ())], False)
        expected.update(dict.fromkeys(recorded["wakes"], True))
        found = _wakes(cluster, configuration, attempts, recorded["event"])
        judged += len(expected)
        wrong = sorted(pod for pod in {*expected, *found} if expected.get(pod) != found.get(pod))
        wrong_events += bool(wrong)
        differences += [
            Difference(pod, recorded["what"], _told(expected.get(pod)), _told(found.get(pod)))
            for pod in wrong
        ]
    return Finding(judged, wrong_events, differences)


def _told(wakes: bool | None) -> str:
    return "not a word" if wakes is None else "wakes" if wakes else "sleeps"


def _differences_before(case: EventCase, judged: list[PodEvaluation]) -> list[Difference]:
    """Compare who has to wait, and because of whom."""
    found = {each.pod.key: _rejectors(each) for each in judged if not each.status.is_success}
    gated = {each.pod.key for each in judged if each.explanation["result"] == "gated"}
    differences = [
        Difference(pod, "rejected by", case.rejectors.get(pod), found.get(pod))
        for pod in sorted({*case.rejectors, *found})
        if case.rejectors.get(pod) != found.get(pod)
    ]
    differences += [
        Difference(pod, "gated", pod in case.gated, pod in gated) for pod in sorted(case.gated ^ gated)
    ]
    return differences


def _rejectors(judged: PodEvaluation) -> list[str]:
    if judged.diagnosis is None:
        return [judged.status.plugin]
    return sorted(judged.diagnosis.unschedulable_plugins)


def _wakes(
    cluster: ClusterFile, configuration: Configuration, attempts: list[PodEvaluation], event: dict[str, Any]
) -> dict[str, bool]:
    """Return pod -> whether an event wakes it after these attempts, as `custom-scheduler explain --event` says."""
    happening = watch_event.parse(msgspec.json.encode(event), "event", cluster)
    return {
        each["pod"]: each["requeued"]
        for each in with_wakes(OfflineScheduler(cluster, configuration), attempts, happening)
        if "requeued" in each
    }
