"""A Job whose pods are a gang runs to its end on the API server of each version that has PodGroups; time is virtual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.configuration.load import default
from tests.integration.daemon.test_server_upgrade import bindings, condition_types, following
from tests.integration.groups.gangs import placed
from tests.support.builders import node_object
from tests.support.daemon_harness import Cluster, cluster

EXAMPLE = Path(__file__).parents[3] / "manifests/examples/gangs/training.yaml"
KINDS = {
    "Workload": "workloads.scheduling.k8s.io",
    "PodGroup": "podgroups.scheduling.k8s.io",
    "Job": "jobs.batch",
}


def training(version: str) -> list[dict[str, Any]]:
    """Return the Workload, PodGroup and Job of the example, as a server of this version accepts them."""
    workload, group, job = yaml.safe_load_all(EXAMPLE.read_text())
    if version == "1.37":
        workload["apiVersion"] = group["apiVersion"] = "scheduling.k8s.io/v1beta1"
        template = group["spec"].pop("podGroupTemplateRef")["workload"]["podGroupTemplateName"]
        group["spec"]["workloadRef"] = {"workloadName": "train", "templateName": template}
    return [workload, group, job]


def job_conditions(it: Cluster) -> set[str]:
    found = it.server.store.get("jobs.batch", "train", "default").get("status", {}).get("conditions", ())
    return {each["type"] for each in found if each["status"] == "True"}


@pytest.mark.parametrize(
    ("version", "condition_type"), [("1.36", "PodGroupScheduled"), ("1.37", "PodGroupInitiallyScheduled")]
)
async def test_a_job_with_a_workload_and_a_pod_group_runs_to_its_end(
    tmp_path: Path, version: str, condition_type: str
) -> None:
    async with (
        cluster(tmp_path, version=version, kubelet=True, controllers=True) as it,
        it.daemon() as daemon,
        following(it, daemon, default()),
    ):
        it.add_nodes(node_object("small", cpu="3"))
        for obj in training(version):
            it.server.store.create(KINDS[obj["kind"]], obj)
        await it.until(lambda: condition_types(it, "train") == [condition_type])
        assert not placed(it), "three of four pods fit"

        it.add_nodes(node_object("more", cpu="1"))
        await it.until(lambda: "Complete" in job_conditions(it))

        assert len(bindings(it)) == 4
        phases = [pod["status"]["phase"] for pod in it.pods()]
        assert phases == ["Succeeded"] * 4
        found = it.server.store.get(KINDS["PodGroup"], "train", "default")["status"]["conditions"]
        assert [(each["type"], each["status"]) for each in found] == [(condition_type, "True")]
