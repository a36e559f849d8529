"""The shipped manifests are valid for Kubernetes 1.36 and keep their promises about security."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from scheduler.configuration.load import parse
from tests.support.manifests import KUSTOMIZATIONS, MANIFESTS, one, rendered

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


def test_the_nginx_example_is_valid_and_uses_this_scheduler():
    (nginx,) = yaml.safe_load_all((MANIFESTS / "examples" / "nginx.yaml").read_text())

    kubernetes_validate.validate(nginx, VERSION, strict=True)
    assert nginx["spec"]["template"]["spec"]["schedulerName"] == "custom-scheduler"


@pytest.mark.parametrize(
    "folder",
    [folder for folder in KUSTOMIZATIONS if folder.name not in {"monitoring", "extender", "why"}],
    ids=title,
)
def test_the_config_map_holds_a_valid_configuration(folder: Path, tmp_path: Path):
    data = one(rendered(folder), "ConfigMap")["data"]
    for name in data.keys() - {"config.yaml"}:
        (tmp_path / name).write_text(data[name])

    read = parse(data["config.yaml"], "config.yaml", tmp_path)

    assert [profile.scheduler_name for profile in read.settings.profiles] == ["custom-scheduler"]


def test_the_bin_packing_example_equals_the_shipped_configuration():
    shipped = (MANIFESTS.parent / "config" / "bin-packing.yaml").read_text()

    assert (MANIFESTS / "examples" / "bin-packing" / "config.yaml").read_text() == shipped


def container() -> dict[str, Any]:
    (found,) = one(rendered(BASE), "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


DEPLOYED = sorted(
    (folder for folder in KUSTOMIZATIONS if any(path.name == "deployment.yaml" for path in folder.iterdir())),
    key=title,
)
PLAIN_VOLUMES = {"configMap", "emptyDir", "projected", "secret"}


def test_every_folder_with_a_deployment_is_tested():
    assert BASE in DEPLOYED


@pytest.mark.parametrize("folder", DEPLOYED, ids=title)
def test_pods_meet_the_restricted_standard_and_have_a_read_only_file_system(folder: Path):
    deployments = [obj for obj in rendered(folder) if obj["kind"] == "Deployment"]

    assert deployments
    for deployment in deployments:
        pod = deployment["spec"]["template"]["spec"]
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"}
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert all(volume.keys() - {"name"} <= PLAIN_VOLUMES for volume in pod["volumes"])
        for each in pod["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any(port.get("hostPort") for port in each["ports"])
            assert each["resources"]["limits"].keys() == {"memory"}
            mounted = {mount["name"] for mount in each["volumeMounts"] if not mount.get("readOnly")}
            assert all("emptyDir" in volume for volume in pod["volumes"] if volume["name"] in mounted)


@pytest.mark.parametrize("folder", DEPLOYED, ids=title)
def test_a_token_is_mounted_only_where_a_pod_requests_it(folder: Path):
    objects = rendered(folder)
    accounts = {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == "ServiceAccount"}

    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
    for deployment in (obj for obj in objects if obj["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] in accounts
        assert pod["automountServiceAccountToken"] is True
        assert pod["enableServiceLinks"] is False


def test_the_writable_volume_is_small_and_in_memory():
    (volume,) = one(rendered(BASE), "Deployment")["spec"]["template"]["spec"]["volumes"]

    assert volume == {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
    assert [mount["mountPath"] for mount in container()["volumeMounts"]] == ["/tmp"]


def test_it_has_the_priority_of_critical_cluster_components():
    assert (
        one(rendered(BASE), "Deployment")["spec"]["template"]["spec"]["priorityClassName"]
        == "system-cluster-critical"
    )


def test_only_prometheus_can_connect_and_only_the_api_server_is_reached():
    policy = one(rendered(BASE), "NetworkPolicy")["spec"]

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (ingress,) = policy["ingress"]
    prometheus = {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert ingress["from"] == [{"namespaceSelector": monitoring, "podSelector": prometheus}]
    assert [port["port"] for port in ingress["ports"]] == [container()["ports"][0]["containerPort"]]
    (egress,) = policy["egress"]
    assert [(port["port"], port["protocol"]) for port in egress["ports"]] == [(443, "TCP"), (6443, "TCP")]


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_probes_use_https(probe: str):
    assert container()["ports"] == [{"name": "https", "containerPort": 10259}]
    assert container()[probe]["httpGet"]["scheme"] == "HTTPS"
    assert container()[probe]["httpGet"]["port"] == "https"


def test_no_rule_has_a_wildcard_or_permits_secrets():
    rules = [
        rule for obj in rendered(BASE) if obj["kind"] in {"Role", "ClusterRole"} for rule in obj["rules"]
    ]

    assert rules
    assert "*" not in json.dumps(rules)
    assert not any("secrets" in rule.get("resources", ()) for rule in rules)


def test_the_selectors_match_the_pods():
    objects = rendered(BASE)
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()

    selectors = [
        one(objects, "Service")["spec"]["selector"],
        one(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]

    assert all(selector.items() <= labels for selector in selectors)
