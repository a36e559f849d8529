"""What is shipped is valid for Kubernetes 1.36 and keeps its promises about security."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from scheduler.configuration.load import parse
from tests.manifests import KUSTOMIZATIONS, MANIFESTS, one, rendered

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "1.36"
CUSTOM = {"monitoring.coreos.com/v1"}  # of the Prometheus operator: no schema of Kubernetes has them
BASE = MANIFESTS / "base"


def title(folder: Path) -> str:
    return str(folder.relative_to(MANIFESTS))


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=title)
def test_every_object_of_a_kustomization_is_valid_and_has_no_unknown_field(folder: Path):
    objects = rendered(folder)

    assert objects
    for obj in objects:
        if obj["apiVersion"] not in CUSTOM:
            kubernetes_validate.validate(obj, VERSION, strict=True)


def test_the_nginx_example_is_valid_and_asks_for_this_scheduler():
    (nginx,) = yaml.safe_load_all((MANIFESTS / "examples" / "nginx.yaml").read_text())

    kubernetes_validate.validate(nginx, VERSION, strict=True)
    assert nginx["spec"]["template"]["spec"]["schedulerName"] == "custom-scheduler"


@pytest.mark.parametrize(
    "folder",
    [folder for folder in KUSTOMIZATIONS if folder.name not in {"monitoring", "extender"}],
    ids=title,
)
def test_the_config_map_holds_a_configuration_that_can_be_read(folder: Path, tmp_path: Path):
    data = one(rendered(folder), "ConfigMap")["data"]
    for name in data.keys() - {"config.yaml"}:
        (tmp_path / name).write_text(data[name])

    read = parse(data["config.yaml"], "config.yaml", tmp_path)

    assert [profile.scheduler_name for profile in read.settings.profiles] == ["custom-scheduler"]


def test_the_bin_packing_example_is_the_one_of_config():
    shipped = (MANIFESTS.parent / "config" / "bin-packing.yaml").read_text()

    assert (MANIFESTS / "examples" / "bin-packing" / "config.yaml").read_text() == shipped


def container() -> dict[str, Any]:
    (found,) = one(rendered(BASE), "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_the_container_has_no_privileges_and_a_file_system_it_only_reads():
    pod = one(rendered(BASE), "Deployment")["spec"]["template"]["spec"]

    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["priorityClassName"] == "system-cluster-critical"


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_probes_ask_over_https(probe: str):
    assert container()["ports"] == [{"name": "https", "containerPort": 10259}]
    assert container()[probe]["httpGet"]["scheme"] == "HTTPS"
    assert container()[probe]["httpGet"]["port"] == "https"


def test_no_rule_of_ours_has_a_wildcard_or_touches_secrets():
    rules = [
        rule for obj in rendered(BASE) if obj["kind"] in {"Role", "ClusterRole"} for rule in obj["rules"]
    ]

    assert rules
    assert "*" not in json.dumps(rules)
    assert not any("secrets" in rule.get("resources", ()) for rule in rules)


def test_what_selects_the_pods_finds_them():
    objects = rendered(BASE)
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()

    selectors = [
        one(objects, "Service")["spec"]["selector"],
        one(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]

    assert all(selector.items() <= labels for selector in selectors)
