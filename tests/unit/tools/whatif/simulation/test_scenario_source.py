from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import default, parse
from scheduler.errors import ConfigurationError
from scheduler.tools.whatif.simulation.parallel_simulations import simulate
from scheduler.tools.whatif.simulation.scenario_source import is_scenario, read_scenario

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = """
nodes:
- {name: general, count: 3, cpu: "4", memory: 16Gi, zones: [a, b]}
manifests:
- {apiVersion: v1, kind: Pod, metadata: {name: alone}, spec: {containers: [{name: c}]}}
workloads:
- {name: web, replicas: 4, cpu: "1", memory: 1Gi}
- {name: batch, kind: Job, replicas: 2, cpu: "1", runs: 20s, at: 10s, every: 30s, until: 65s}
- {name: train, kind: Job, replicas: 3, cpu: "2", runs: 1m, at: 200s, gang: true, priority: 10}
steps:
- {at: 1m, scale: {name: web, replicas: 6}}
- {at: 100s, addNodes: {name: more, count: 2, cpu: "4"}}
- {at: 110s, drain: general-0}
- {at: 120s, killNode: general-1}
- {at: 130s, scale: {name: web, replicas: 2}}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


def test_a_scenario_has_arrivals_and_events(tmp_path: Path):
    workload = read_scenario(written(tmp_path, SCENARIO))

    assert [node.name for node in workload.cluster.nodes] == ["general-0", "general-1", "general-2"]
    assert [
        (each.pod.name, each.at, each.runs) for each in workload.arrivals if "batch" in each.pod.name
    ] == [
        ("batch-0", 10.0, 20.0),
        ("batch-1", 10.0, 20.0),
        ("batch-2", 40.0, 20.0),
        ("batch-3", 40.0, 20.0),
    ]
    assert [each.at for each in workload.arrivals if "web" in each.pod.name] == [0, 0, 0, 0, 60, 60]
    assert {each.pod.name for each in workload.arrivals if each.at == 0} >= {"alone", "web-0"}


def test_a_scenario_is_played_to_its_end(tmp_path: Path):
    result = simulate(read_scenario(written(tmp_path, SCENARIO)), default("custom-scheduler"), seed=1)

    assert (result.evicted, result.waiting) == (5, 0)
    assert result.arrived == result.placed == 1 + 6 + 4 + 3 + 4, "all but `alone` have an owner"


def test_a_restored_node_takes_pods_again(tmp_path: Path):
    lost = "nodes: [{name: n}]\nworkloads: [{name: web, cpu: 1, at: 1m}]\nsteps: [{at: 1s, killNode: n-0}".replace(
        "cpu: 1", "cpu: '1'"
    )

    gone = simulate(read_scenario(written(tmp_path, lost + "]")), default("custom-scheduler"), seed=1)
    back = simulate(
        read_scenario(written(tmp_path, lost + ", {at: 2m, restoreNode: n-0}]")),
        default("custom-scheduler"),
        seed=1,
    )

    assert (gone.waiting, back.waiting) == (1, 0)


NODE_SETS = """
nodes: [{name: spot, cpu: "8", labels: {capacity: spot}}]
manifests:
- apiVersion: apps/v1
  kind: ReplicaSet
  metadata:
    name: web
    namespace: default
    annotations: {custom-scheduler.io/node-preference: '{"sets": [{"name": "spot", "matchLabels": {"capacity": "spot"}, "maxReplicas": "50%"}]}'}
  spec: {replicas: 2, selector: {matchLabels: {app: web}}}
workloads: [{name: web, replicas: 2, cpu: 100m}]
steps: [{at: 1m, scale: {name: web, replicas: 6}}]
"""


def test_a_scaled_workload_gives_its_controller_the_new_number_of_replicas(tmp_path: Path):
    preferring = parse(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {multiPoint: {enabled: [{name: NodePreference}]}}}]"
    )

    result = simulate(read_scenario(written(tmp_path, NODE_SETS)), preferring, seed=1)

    assert (result.placed, result.waiting) == (3, 3), "half of 6 replicas, not of 2"


RESIZES = """
nodes: [{name: n, cpu: "4"}]
manifests: [{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {priority: 10, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}}]
workloads:
- {name: batch, kind: Job, cpu: "1", runs: 5m}
steps:
- {at: 1m, resize: {name: web, cpu: "4"}}
- {at: 10m, resize: {name: web, cpu: "5"}}
- {at: 20m, resize: {name: web, cpu: "3"}}
- {at: 30m, resize: {name: web, container: c, memory: 1Gi}}
"""


def test_the_resizes_of_a_scenario_are_counted_by_what_became_of_them(tmp_path: Path):
    def counted(n_steps: int) -> dict[str, int]:
        text = "\n".join(RESIZES.splitlines()[: 6 + n_steps])
        return simulate(read_scenario(written(tmp_path, text)), default("custom-scheduler"), seed=1).resizes

    assert counted(1) == {"Completed": 1}, "when the Job has ended"
    assert counted(2) == {"Completed": 1, "Infeasible": 1}
    assert counted(4) == {"Completed": 3}


PROTECTED = """
nodes: [{name: n, cpu: "4"}]
manifests:
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: batch, annotations: {custom-scheduler.io/min-run-time: 30s}}, value: 10}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000, preemptionPolicy: POLICY}
workloads:
- {name: train, cpu: "3", spec: {priorityClassName: batch, terminationGracePeriodSeconds: 0}}
- {name: now, cpu: "3", at: 10s, spec: {priorityClassName: urgent}}
"""
PROTECTING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{pluginConfig: [{name: DefaultPreemption, args: {protection: {}}}]}]
"""


@pytest.mark.parametrize(
    ("configuration", "policy", "evicted", "waited"),
    [
        pytest.param(PROTECTING, "PreemptLowerPriority", 1, 20.0, id="until the protection of the class ends"),
        pytest.param(PROTECTING.replace("{}", "{minRunTime: {preemption: 1h}}"), "PreemptLowerPriority", 1, 20.0, id="the class comes before the profile"),
        pytest.param(PROTECTING.replace("args: {protection: {}}", ""), "PreemptLowerPriority", 1, 0.0, id="not protected"),
        pytest.param(PROTECTING, "Never", 0, 0.0, id="the policy of the class"),
    ],
)  # fmt: skip
def test_pods_of_a_scenario_have_the_priority_and_the_protection_of_their_class(
    tmp_path: Path, configuration: str, policy: str, evicted: int, waited: float
):
    workload = read_scenario(written(tmp_path, PROTECTED.replace("POLICY", policy)))

    result = simulate(workload, parse(configuration), seed=1)

    assert [each.pod.priority for each in workload.arrivals] == [10, 1000]
    assert (result.evicted, round(result.wait_seconds["p100"])) == (evicted, waited)


def test_other_files_are_not_scenarios():
    assert is_scenario(SCENARIO.encode())
    assert not is_scenario(b"kind: List\nitems: []\nnodes: []")
    assert not is_scenario(b"- a\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("workloads: [{name: a, replica: 3}]", "workloads[0].replica: unknown field", id="unknown field"),
        pytest.param("workloads: [{name: a, every: 3s}]", "workloads[0]: must have both every and until", id="no end"),
        pytest.param("workloads: [{name: a, runs: -5s}]", "workloads[0]: runs must not be negative, was -5s", id="negative run"),
        pytest.param("workloads: [{name: a, at: -1s}]", "workloads[0]: at must not be negative, was -1s", id="before the start"),
        pytest.param("nodes: []\nsteps: [{at: 1s, drain: x}]", "steps[0].drain: there is no node x", id="unknown node"),
        pytest.param("nodes: []\nsteps: [{at: 1s, scale: {name: x, replicas: 1}}]", "steps[0].scale: there is no workload deployments default/x", id="unknown workload"),
        pytest.param("workloads: [{name: x}]\nsteps: [{at: 1s, scale: {name: x, namespace: a, replicas: 1}}]", "steps[0].scale: there is no workload deployments a/x", id="another namespace"),
        pytest.param("nodes: []\nsteps: [{at: 1s, fault: {refuse: 429}}]", "steps[0].fault: only the simulated API server can do this", id="a fault of requests"),
        pytest.param("nodes: []\nsteps: [{at: 1s, addNodes: {name: n, cpu: x}}]", "steps[0].addNodes.cpu: must be a quantity", id="no quantity of a step"),
        pytest.param("workloads: [{name: a}, {name: a}]", "workloads[1].name: is the name of another workload", id="one name twice"),
        pytest.param("workloads: [{name: a, gang: true, every: 1s, until: 2s}]", "workloads[0]: gang together with every", id="gangs of one Deployment"),
        pytest.param("nodes: []\nsteps: [{at: 1s}]", "must have exactly one of addNodes, removeNode", id="nothing happens"),
        pytest.param("nodes: []\nsteps: [{at: 1s, resize: {name: x, cpu: 1}}]".replace("1}", "'1'}"), "steps[0].resize.name: there is no pod default/x", id="unknown pod"),
        pytest.param("workloads: [{name: x}]\nsteps: [{at: 1s, resize: {name: x-0, container: c, cpu: '1'}}]", "steps[0].resize.container: pod default/x-0 has no container c", id="unknown container"),
        pytest.param("workloads: [{name: x, spec: {priorityClassName: none}}]", "workloads[0]: no PriorityClass with name none was found", id="unknown priority"),
        pytest.param("nodes: []\nmanifests: [{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: a b}, value: 1}]", "manifests: ", id="an invalid PriorityClass"),
        pytest.param("nodes: [{name: n, cpu: x}]\n", "cpu", id="no quantity"),
        pytest.param("workloads: [{name: a, cpu: x}]", "cpu", id="no quantity of a pod"),
    ],
)  # fmt: skip
def test_an_error_is_reported_with_file_and_field(tmp_path: Path, text: str, message: str):
    with pytest.raises(ConfigurationError) as error:
        read_scenario(written(tmp_path, text))

    assert message in str(error.value)
    assert "scenario.yaml" in str(error.value)
