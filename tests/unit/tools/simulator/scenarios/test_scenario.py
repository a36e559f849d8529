"""Scenario files: their fields, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduler.errors import ConfigurationError
from scheduler.tools.simulator.scenarios.scenario import NodeGroup, Step, WorkloadPart, load_scenario
from scheduler.tools.whatif.simulation.scenario_source import read_scenario
from tests.unit.tools.simulator.a_store import AStore

if TYPE_CHECKING:
    import msgspec

WORKLOADS = "workloads.scheduling.k8s.io"
ROOT = Path(__file__).parents[5]
EXAMPLE = ROOT / "manifests" / "examples" / "scenario.yaml"
SECTION = (
    (ROOT / "docs" / "simulate.md").read_text().partition("## Scenario files\n")[2].partition("\n## ")[0]
)


def faults(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_scenario(tmp_path / "s.yaml")
    return [str(error) for error in caught.value.errors]


def test_the_example_is_valid():
    scenario = load_scenario(EXAMPLE)

    names = [node["metadata"]["name"] for node in scenario.node_objects()]
    assert names == ["general-0", "general-1", "general-2", "general-3", "gpu-0"]
    assert [obj["kind"] for obj in scenario.objects] == ["Namespace", "Deployment", "PodDisruptionBudget"]
    times = [step.at.seconds for step, _ in scenario.steps]
    assert times == sorted(times)


@pytest.mark.parametrize("part", [NodeGroup, WorkloadPart, Step])
def test_the_documentation_names_every_field(part: type[msgspec.Struct]):
    assert [
        name for name in part.__struct_encode_fields__ if f"`{name}`" not in SECTION and name != "gang"
    ] == []


def test_both_readers_accept_the_documented_scenario(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(SECTION.partition("```yaml\n")[2].partition("```")[0])

    assert len(load_scenario(tmp_path / "s.yaml").workloads) == 3
    assert len(read_scenario(tmp_path / "s.yaml").cluster.nodes) == 20


def test_a_group_sets_the_fields_of_its_nodes(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(
        "nodes:\n- {name: g, count: 2, cpu: 8, memory: 1Gi, pods: 5, zones: [a, b],\n"
        "   resources: {nvidia.com/gpu: '2'}, labels: {x: y}, taints: [{key: t, effect: NoExecute}]}\n".replace(
            "cpu: 8", "cpu: '8'"
        )
    )
    first, second = load_scenario(tmp_path / "s.yaml").node_objects()

    assert first["status"]["capacity"] == {"cpu": "8", "memory": "1Gi", "pods": "5", "nvidia.com/gpu": "2"}
    assert first["metadata"]["labels"]["x"] == "y"
    assert [one["metadata"]["labels"]["topology.kubernetes.io/zone"] for one in (first, second)] == ["a", "b"]
    assert (first["spec"]["taints"][0]["key"], first["spec"]["taints"][0]["effect"]) == ("t", "NoExecute")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("nods: []", 'nods: unknown field, did you mean "nodes"?', id="misspelt field"),
        pytest.param("steps:\n- {at: 5x, cordon: n}", 'steps[0].at: must be a duration as in 15s or 1m30s, was "5x"', id="no duration"),
        pytest.param("steps:\n- {at: 5s, scal: {}}", 'steps[0].scal: unknown field, did you mean "scale"?', id="misspelt action"),
        pytest.param("steps:\n- {at: -5s, cordon: n}", "steps[0]: at must not be before the start", id="before the start"),
        pytest.param("steps:\n- {at: 5s, scale: {name: web}}", "steps[0].scale.replicas: is missing", id="missing field"),
        pytest.param("steps:\n- {at: 5s, resize: {name: p}}", "steps[0].resize: must have cpu, memory or both", id="a resize of nothing"),
        pytest.param("steps:\n- {at: 5s, resize: {name: p, cpu: lots}}", "steps[0].resize: cpu must be a quantity, was 'lots'", id="no quantity of a resize"),
        pytest.param("steps:\n- {at: 5s, apply: gone.yaml}", "steps[0].apply: gone.yaml: cannot be read: ", id="missing file"),
        pytest.param("steps:\n- {at: 5s, fault: {refuse: 418}}", "steps[0].fault.refuse: ", id="an unsupported status"),
        pytest.param("manifests:\n- {kind: Pod, metadata: {name: p}}", "manifests[0].apiVersion: is missing", id="no apiVersion"),
        pytest.param("manifests:\n- {apiVersion: v1, kind: Pod, metadata: {}}", "manifests[0].metadata.name: is missing", id="no name"),
        pytest.param("nodes:\n- {name: g, cpu: lots}", 'nodes[0].cpu: must be a quantity, was "lots"', id="no quantity"),
        pytest.param("nodes:\n- {name: g, devices: [{driver: d, capacity: {m: lots}}]}", 'nodes[0].devices[0].capacity.m: must be a quantity, was "lots"', id="no quantity of a device"),
        pytest.param("nodes:\n- {name: g, drivers: [{limit: 1}]}", "nodes[0].drivers[0].name: is missing", id="a driver without a name"),
        pytest.param("steps:\n- {at: 5s, failVolumes: {times: 0}}", "steps[0].failVolumes.times: ", id="a failure that hits nothing"),
        pytest.param("steps:\n- {at: 5s, withdrawDevices: {}}", "steps[0].withdrawDevices.node: is missing", id="devices of no node"),
        pytest.param("nodes:\n- {name: g}\n- {name: g}", 'nodes[1].name: is the name of another group, was "g"', id="one name twice"),
        pytest.param("- a", "must be a mapping, was a list", id="no mapping"),
    ],
)  # fmt: skip
def test_an_error_is_reported_with_its_path(tmp_path: Path, text: str, expected: str):
    assert any(fault.startswith(expected) for fault in faults(tmp_path, text)), faults(tmp_path, text)


@pytest.mark.parametrize(
    "step", ["{at: 5s}", "{at: 5s, cordon: a, uncordon: b}"], ids=["nothing", "two actions"]
)
def test_a_step_has_exactly_one_action(tmp_path: Path, step: str):
    (reported,) = faults(tmp_path, f"steps:\n- {step}")

    assert reported.startswith("steps[0]: must have exactly one of addNodes, removeNode, drain,")


def test_all_errors_are_reported_at_once(tmp_path: Path):
    assert len(faults(tmp_path, "nods: []\nsteps:\n- {at: x, cordon: n}\n- {at: 1s, scal: 1}")) >= 3


def test_a_group_may_have_drivers_and_devices(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(
        "nodes:\n- name: g\n  count: 2\n  drivers: [{name: disk.example.com, limit: 0}, {name: other.example.com}]\n"
        "  devices:\n  - {driver: gpu.example.com, name: gpu, count: 2, capacity: {memory: 1Gi},\n"
        "     attributes: {model: a, index: 1, fast: true, v: {version: 1.0.0}}}\n"
        "provisioners: {disk.example.com: 1m}\n"
    )
    scenario = load_scenario(tmp_path / "s.yaml")

    first, second = scenario.nodes[0].csi_nodes()
    assert [one["metadata"]["name"] for one in (first, second)] == ["g-0", "g-1"]
    zone = ["topology.kubernetes.io/zone"]
    assert first["spec"]["drivers"] == [
        {"name": "disk.example.com", "nodeID": "g-0", "topologyKeys": zone, "allocatable": {"count": 0}},
        {"name": "other.example.com", "nodeID": "g-0", "topologyKeys": zone},
    ]
    (group,) = scenario.nodes
    one, two = group.devices_by_driver["gpu.example.com"]
    assert (one["name"], two["name"]) == ("gpu-0", "gpu-1")
    assert one["capacity"] == {"memory": {"value": "1Gi"}}
    assert one["attributes"] == {
        "model": {"string": "a"},
        "index": {"int": 1},
        "fast": {"bool": True},
        "v": {"version": "1.0.0"},
    }
    assert scenario.provisioners["disk.example.com"].seconds == 60


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "scheduling.k8s.io/v1alpha2"),
        ("kubernetesVersion: '1.37'\n", "scheduling.k8s.io/v1beta1"),
    ],
)
def test_a_gang_has_a_pod_group_of_the_version_that_the_scenario_names(
    tmp_path: Path, line: str, expected: str
):
    (tmp_path / "s.yaml").write_text(f"{line}workloads:\n- {{name: train, kind: Job, gang: true}}\n")

    scenario = load_scenario(tmp_path / "s.yaml")
    (part,) = scenario.workloads

    versions = {obj["kind"]: obj["apiVersion"] for obj in part.objects(0, scenario.kubernetes_version)}
    assert versions["PodGroup"] == expected


def test_a_gang_of_1_35_is_a_part_of_a_workload(tmp_path: Path):
    (tmp_path / "s.yaml").write_text(
        "kubernetesVersion: '1.35'\nworkloads:\n- {name: train, kind: Job, replicas: 3, gang: true}\n"
    )
    scenario = load_scenario(tmp_path / "s.yaml")
    (part,) = scenario.workloads

    store = AStore(version="1.35")
    for obj in part.objects(0, "1.35"):
        store.create({"Workload": WORKLOADS, "Job": "jobs"}[obj["kind"]], obj)

    workload, job = store.get(WORKLOADS, "train-0"), store.get("jobs", "train")
    (group,) = workload["spec"]["podGroups"]
    assert group["policy"] == {"gang": {"minCount": 3}}
    reference = {"name": "train-0", "podGroup": group["name"]}
    assert job["spec"]["template"]["spec"]["workloadRef"] == reference


def test_a_gang_needs_a_version_with_groups(tmp_path: Path):
    text = "kubernetesVersion: '1.34'\nworkloads:\n- {name: a, kind: Job, gang: true}\n"

    assert faults(tmp_path, text) == ["workloads[0].gang: Kubernetes 1.34 has no groups of pods"]
