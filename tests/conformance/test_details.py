"""Plugins give details beyond the reasons of kube-scheduler exactly for rejected nodes."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scheduler.configuration.load import default, parse
from scheduler.engine.cycle.explanation import RefusalDetails
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.evaluation import evaluate_each, pods_to_evaluate
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.conformance.corpus import load, paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scheduler.objects.pod import PodInfo

OF_VOLUMES = ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits")
ALWAYS_TELLING = (
    "NodeResourcesFit",
    "TaintToleration",
    "NodeUnschedulable",
    "NodeName",
    "NodeAffinity",
    "NodePorts",
    "NodeDeclaredFeatures",
    "PodTopologySpread",
    "InterPodAffinity",
)
TELLING = (*ALWAYS_TELLING, *OF_VOLUMES, "DynamicResources")
FAMILIES = {
    "resources", "taints", "volumes", "dra", "mixed", "nodeaffinity", "ports", "spread", "interpod", "preemption",
}  # fmt: skip
CASES = [path for path in paths() if path.parent.name in FAMILIES and re.search("-00[0-4]", path.name)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem.partition(".")[0])
def test_rejections_of_plugins_with_details_have_details_and_passes_have_none(path: Path) -> None:
    case = load(path)
    cluster = cluster_file.parse(msgspec.json.encode(case.cluster), case.name)
    configuration = default("default-scheduler") if case.config is None else parse(case.config, case.name)
    scheduler = OfflineScheduler(cluster, configuration, nodes_of_a_kind=5)
    told_of = Counter[str]()
    for judged in evaluate_each(scheduler, pods_to_evaluate(scheduler, cluster.pods)):
        nodes = judged.explanation["nodes"]
        for refusal in _refusals(judged.explanation):
            told_of[refusal["plugin"]] += "details" in refusal
            if "details" in refusal:
                assert refusal["plugin"] in TELLING
                assert refusal["details"], refusal
                assert "returned no valid details" not in refusal["details"][0]
        feasible = [name for name, verdict in nodes.items() if verdict["feasible"]][:5]
        for name in feasible:
            assert list(_said_of(scheduler, judged.pod, name)) == [[]] * len(TELLING), name
    assert all(told_of[plugin] for plugin in told_of.keys() & {*ALWAYS_TELLING})


def test_all_volume_plugins_give_details() -> None:
    case = load(next(path for path in CASES if path.name.startswith("volumes-000")))
    cluster = cluster_file.parse(msgspec.json.encode(case.cluster), case.name)
    scheduler = OfflineScheduler(cluster, default("default-scheduler"))
    reported = {
        refusal["plugin"]
        for judged in evaluate_each(scheduler, pods_to_evaluate(scheduler, cluster.pods))
        for refusal in _refusals(judged.explanation)
        if "details" in refusal
    }
    assert reported >= {*OF_VOLUMES}


def _refusals(explanation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if explanation["preFilter"]:
        yield explanation["preFilter"]
    yield from (verdict for verdict in explanation["nodes"].values() if not verdict["feasible"])


def _said_of(scheduler: OfflineScheduler, pod: PodInfo, node_name: str) -> Iterator[list[str]]:
    """Yield what the plugins would say if each had refused a node."""
    plugins = scheduler.frameworks[pod.scheduler_name].plugins.all()
    for plugin in TELLING:
        refusal = {"feasible": False, "plugin": plugin, "code": "", "reasons": []}
        explanation: dict[str, Any] = {"preFilter": None, "nodes": {node_name: refusal}}
        RefusalDetails(plugins, scheduler.parts.clock).add_to(explanation, pod, scheduler.cache.snapshot())
        yield explanation["nodes"][node_name]["details"]
