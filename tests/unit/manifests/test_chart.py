"""The chart equals the kustomization, and its values are valid or refused; by Helm's own engine."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from scheduler.cli.command import _commands
from scheduler.configuration.load import parse
from scheduler.configuration.types import KubeSchedulerConfiguration, Plugins, Profile
from scheduler.daemon.app.rights import Named, rights_of, roles_yaml
from scheduler.daemon.app.size import ClusterSize, resources_for
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.version import VERSION
from tests.support.helm import CHART, NAMES, HelmError, helm, templated
from tests.support.manifests import MANIFESTS, one, rendered

if TYPE_CHECKING:
    from pathlib import Path

    import msgspec

MIB = 2**20
OF_HELM = {"app.kubernetes.io/managed-by", "helm.sh/chart"}
RBAC = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
EXAMPLE = yaml.safe_load((MANIFESTS / "examples" / "chart-values.yaml").read_text())
CONFIG = (MANIFESTS / "base" / "config.yaml").read_text()
WITHOUT_ROLES = {"rbac": {"create": False}}


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return objects by kind and name, without the labels that only Helm's have."""
    for obj in objects:
        labels = obj["metadata"].get("labels", {})
        obj["metadata"]["labels"] = {name: text for name, text in labels.items() if name not in OF_HELM}
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


def container(objects: list[dict[str, Any]], name: str = NAMES[0]) -> dict[str, Any]:
    (found,) = one(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_helm_lint_finds_no_errors() -> None:
    assert helm("lint", str(CHART)).splitlines() == ["[1] Chart.yaml: icon is recommended"]  # 1: information


def test_without_values_the_chart_equals_the_kustomization() -> None:
    assert by_name(templated()) == by_name(rendered(MANIFESTS / "base"))


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


@pytest.mark.parametrize("release", ["gpu-scheduler", "true"])
def test_a_release_of_another_name_is_a_scheduler_of_that_name(release: str) -> None:
    objects = templated(release=release, namespace="sched")

    for obj in objects:
        kubernetes_validate.validate(obj, "1.36", strict=True)
        assert obj["metadata"]["name"].startswith(release)
        assert obj["metadata"].get("namespace", "sched") == "sched"
    assert "custom-scheduler" not in json.dumps([obj["metadata"]["name"] for obj in objects])
    settings = parse(one(objects, "ConfigMap", release)["data"]["config.yaml"]).settings
    assert [profile.scheduler_name for profile in settings.profiles] == [release]
    assert settings.leader_election.resource_name == release
    assert settings.leader_election.resource_namespace == "sched"
    assert f"--config-map=sched/{release}" in container(objects, release)["args"]


EVERYTHING = {
    "image": {"repository": "registry.example.com/it", "tag": "9", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "replicas": 3,
    "profiles": EXAMPLE["profiles"],
    "plugins": EXAMPLE["plugins"],
    "configuration": {"podMaxBackoffSeconds": 1_000_000, "leaderElection": {"leaseDuration": "30s"}},
    "rbac": {"create": False},
    "clusterSize": {"nodes": 5000, "pods": 10_000},
    "resources": {"limits": {"memory": "1Ti"}},
    "args": ["--v=2"],
    "priorityClassName": "mine",
    "board": {"enabled": True},
    "rebalance": {"enabled": True},
    "whatif": {"enabled": True},
    "schedulerProfiles": {"enabled": True},
    "sharding": {"enabled": True},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
    "networkPolicy": {
        "create": True,
        "prometheusNamespace": "metrics",
        "egress": [{"ports": [{"port": 8888, "protocol": "TCP"}]}],
    },
}


def test_every_value_has_a_case_and_a_schema() -> None:
    assert EVERYTHING.keys() == VALUES.keys() == SCHEMA["properties"].keys() - {"global"}
    for name, value in VALUES.items():
        known = SCHEMA["properties"][name].get("properties")
        if known is not None and name != "clusterSize":
            assert value.keys() == known.keys(), name


def test_every_value_is_used() -> None:
    objects = templated(EVERYTHING)
    for obj in objects:
        kubernetes_validate.validate(obj, "1.36", strict=True)

    deployment = one(objects, "Deployment")["spec"]
    pod = deployment["template"]["spec"]
    assert deployment["replicas"] == 3
    for name in ("imagePullSecrets", "priorityClassName", "nodeSelector", "tolerations"):
        assert pod[name] == EVERYTHING[name], name
    assert container(objects)["image"] == "registry.example.com/it:9"
    assert container(objects)["imagePullPolicy"] == "Always"
    assert container(objects)["args"][-4:] == ["--board", "--whatif", "--scheduler-profiles", "--v=2"]
    (ingress,) = one(objects, "NetworkPolicy")["spec"]["ingress"]
    assert ingress["from"][0]["namespaceSelector"] == {
        "matchLabels": {"kubernetes.io/metadata.name": "metrics"}
    }
    assert one(objects, "NetworkPolicy")["spec"]["egress"][1:] == EVERYTHING["networkPolicy"]["egress"]  # type: ignore[index]
    assert not [obj for obj in objects if obj["kind"] in RBAC]
    data = one(objects, "ConfigMap")["data"]
    settings = yaml.safe_load(data.pop("config.yaml"))
    assert data == EXAMPLE["plugins"]
    assert settings["profiles"] == EXAMPLE["profiles"]
    assert settings["podMaxBackoffSeconds"] == 1_000_000
    assert settings["sharding"] == {"enabled": True}
    assert settings["leaderElection"] == {
        "leaderElect": True,
        "leaseDuration": "30s",
        "resourceName": "custom-scheduler",
        "resourceNamespace": "kube-system",
    }


def test_false_and_zero_values_are_used_too() -> None:
    configuration = {"leaderElection": {"leaderElect": False}, "percentageOfNodesToScore": 0}
    objects = templated({"configuration": configuration, "replicas": 0} | WITHOUT_ROLES)

    settings = yaml.safe_load(one(objects, "ConfigMap")["data"]["config.yaml"])
    assert settings["leaderElection"]["leaderElect"] is False
    assert settings["leaderElection"]["resourceName"] == "custom-scheduler"
    assert settings["percentageOfNodesToScore"] == 0
    assert one(objects, "Deployment")["spec"]["replicas"] == 0


def test_the_board_role_permits_reading_the_board_only() -> None:
    role = one(templated({"board": {"enabled": True}}), "ClusterRole", "custom-scheduler-board-reader")

    kubernetes_validate.validate(role, "1.36", strict=True)
    assert role["rules"] == [{"nonResourceURLs": ["/board", "/board/*"], "verbs": ["get"]}]


def test_the_what_if_role_permits_what_if_requests_only() -> None:
    role = one(templated({"whatif": {"enabled": True}}), "ClusterRole", "custom-scheduler-whatif-user")

    kubernetes_validate.validate(role, "1.36", strict=True)
    assert role["rules"] == [
        {"nonResourceURLs": ["/v1/whatif"], "verbs": ["post"]},
        {"nonResourceURLs": ["/v1/whatif/openapi.json"], "verbs": ["get"]},
    ]


def listed(role: dict[str, Any]) -> set[tuple[str, str]]:
    """Return what a role lists: group and resource."""
    rules = [rule for rule in role["rules"] if "list" in rule["verbs"]]
    return {(group, each) for rule in rules for group in rule["apiGroups"] for each in rule["resources"]}


@pytest.mark.parametrize(
    "disabled", [[], [{"name": "DefaultPreemption"}]], ids=["the default plugins", "without preemption"]
)
def test_the_role_of_rebalance_lists_what_the_plugins_read_and_evicts_pods(disabled: list[Any]) -> None:
    plugins = {"multiPoint": {"disabled": disabled}}
    profile = {"schedulerName": "custom-scheduler", "plugins": plugins}
    made = roles(json.dumps({**yaml.safe_load(CONFIG), "profiles": [profile]}), Named(NAMES[1], NAMES[0]))
    objects = templated({"rebalance": {"enabled": True}, "rbac": {"roles": made}})
    role, daemon = (one(objects, "ClusterRole", f"custom-scheduler{end}") for end in ("-rebalance", ""))

    kubernetes_validate.validate(role, "1.36", strict=True)
    assert listed(role) == listed(daemon) | {("policy", "poddisruptionbudgets")}
    assert [rule for rule in role["rules"] if rule["verbs"] != ["list"]] == [
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
    ]


def test_optional_parts_can_be_left_out() -> None:
    bare = {"networkPolicy": {"create": False}, "priorityClassName": "", "tolerations": []}
    objects = templated(bare)

    assert not [obj for obj in objects if obj["kind"] == "NetworkPolicy"]
    assert (
        not {"priorityClassName", "tolerations"}
        & one(objects, "Deployment")["spec"]["template"]["spec"].keys()
    )


def test_the_plugin_of_the_example_is_the_example_file() -> None:
    (text,) = EXAMPLE["plugins"].values()

    assert text == (MANIFESTS / "examples" / "prefer_small_nodes.py").read_text()


@pytest.mark.parametrize(
    "size",
    [
        {"nodes": 0},
        {"nodes": 1},
        {"nodes": 1000},
        {"nodes": 2500},
        {"nodes": 2501},
        {"nodes": 5000},
        {"nodes": 15_000},
        {"nodes": 15_000, "pods": 450_001},
        {"nodes": 50_000, "pods": 500_000},
        {"nodes": 100, "pods": 0},
        {"nodes": 100_000, "pods": 0},
    ],
    ids=str,
)
def test_resources_by_the_size_of_the_cluster_equal_those_of_check(size: dict[str, int]) -> None:
    nodes = size["nodes"]
    needed = resources_for(ClusterSize(nodes, size.get("pods", 30 * nodes)))

    assert container(templated({"clusterSize": size}))["resources"] == {
        "requests": {"cpu": f"{needed.milli_cpu}m", "memory": f"{needed.request_bytes // MIB}Mi"},
        "limits": {"memory": f"{needed.limit_bytes // MIB}Mi"},
    }


def roles(text: str, account: Named) -> str:
    """Return what `check --rbac` prints of a configuration."""
    configuration = parse(text)
    profiles = OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks.values()
    return roles_yaml(rights_of(profiles, configuration.settings, config_map=account), account)


def test_the_roles_of_the_chart_are_generated() -> None:
    names = Named("{{ .Release.Namespace }}", "{{ .Release.Name }}")
    text = (MANIFESTS / "base" / "config.yaml").read_text()
    text = text.replace("resourceNamespace: kube-system", f"resourceNamespace: '{names.namespace}'")
    text = text.replace("resourceName: custom-scheduler", f"resourceName: '{names.name}'")

    assert (CHART / "files" / "roles.yaml").read_text() == roles(text, names)


@pytest.mark.parametrize(("release", "namespace"), [NAMES, ("gpu-scheduler", "sched")])
def test_the_roles_of_a_release_are_those_of_its_configuration(release: str, namespace: str) -> None:
    objects = templated(release=release, namespace=namespace)

    text = one(objects, "ConfigMap", release)["data"]["config.yaml"]
    assert granted(objects) == asked(roles(text, Named(namespace, release)))


def granted(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found = by_name([obj for obj in objects if obj["kind"] in RBAC])
    return {
        key: {**obj, "metadata": {**obj["metadata"], "labels": {}}}
        for key, obj in found.items()
        if not key[1].endswith("-metrics-reader")
    }


def asked(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    return by_name(list(yaml.safe_load_all(text)))


MEASURING = """\
from scheduler.framework import FilterPlugin, Needs


class Measuring(FilterPlugin):
    name = "Measuring"
    api_version = 1
    needs = Needs(kinds=frozenset({"example.com/v1/meters"}))

    def filter_node(self, state, pod, node):
        return None
"""
SETS = {
    "one plugin less": {
        "profiles": [
            {
                "schedulerName": "a",
                "plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}},
            }
        ]
    },
    "one of ours that is not a default": {
        "profiles": [
            {"schedulerName": "a", "plugins": {"multiPoint": {"enabled": [{"name": "NodeLoad"}]}}},
            {"schedulerName": "b"},
        ]
    },
    "a file": {
        "plugins": {"measuring.py": MEASURING},
        "profiles": [{"schedulerName": "a", "plugins": {"filter": {"enabled": [{"name": "measuring.py"}]}}}],
    },
    "in the place of kube-scheduler": {
        "profiles": [{"schedulerName": "default-scheduler"}],
        "configuration": {"leaderElection": {"resourceName": "kube-scheduler"}},
    },
}


@pytest.mark.parametrize("values", SETS.values(), ids=SETS)
def test_other_plugins_have_the_roles_that_check_prints_for_the_config_map(
    values: dict[str, Any], tmp_path: Path
) -> None:
    given, made = tmp_path / "values.yaml", tmp_path / "roles.yaml"
    given.write_text(json.dumps(values))
    words = ("template", *NAMES[:1], str(CHART), "-n", NAMES[1], "-f", str(given))
    config_map = helm(*words, "--set", "rbac.create=false", "--show-only", "templates/config_map.yaml")
    made.write_text(check_rbac(config_map))

    objects = list(yaml.safe_load_all(helm(*words, "--set-file", f"rbac.roles={made}")))

    assert granted([obj for obj in objects if obj]) == asked(made.read_text())
    assert granted([obj for obj in objects if obj]) != granted(templated())
    labels = one([obj for obj in objects if obj], "ClusterRole")["metadata"]["labels"]
    assert labels["app.kubernetes.io/component"] == "scheduler"


def check_rbac(config_map: str) -> str:
    checked = CliRunner().invoke(
        _commands, ["check", "--rbac", "-"], input=config_map, catch_exceptions=False
    )
    assert checked.exit_code == 0, checked.output
    return checked.stdout


def test_the_printed_command_fits_the_release() -> None:
    with pytest.raises(HelmError) as refused:
        templated(EXAMPLE, release="gpu", namespace="sched")

    reported = str(refused.value)
    assert "helm template gpu CHART --namespace sched" in reported
    assert "check --rbac --service-account sched/gpu --config-map sched/gpu -" in reported
    assert "--set-file rbac.roles=roles.yaml" in reported


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"profiles": EXAMPLE["profiles"]}, "which roles the daemon needs"),
        ({"plugins": EXAMPLE["plugins"]}, "which roles the daemon needs"),
        ({"configuration": {"parallelism": 2}}, "which roles the daemon needs"),
        ({"sharding": {"enabled": True}}, "which roles the daemon needs"),
        (
            {"schedulerProfiles": {"enabled": True}},
            "--config-map kube-system/custom-scheduler --scheduler-profiles -",
        ),
        ({"rbac": {"roles": roles_yaml({}, Named("kube-system", "other"))}}, "are for kube-system/other"),
        ({"rbac": {"roles": roles_yaml({}, Named("other", "custom-scheduler"))}}, "are for other/custom-sch"),
        ({"rbac": {"roles": "a: [b"}}, "rbac.roles is not YAML"),
        ({"replica": 3}, "additional properties 'replica' not allowed"),
        ({"replicas": "3"}, "got string, want integer"),
        ({"replicas": -1}, "minimum"),
        ({"image": {"tag": 1.1}}, "got number, want string"),
        ({"image": {"repository": ""}}, "minLength"),
        ({"image": {"pullPolicy": "Sometimes"}}, "'Always', 'IfNotPresent', 'Never'"),
        ({"profiles": [{"plugins": {}}]}, "missing property 'schedulerName'"),
        ({"profiles": [{"schedulerName": "a", "plugins": {"filters": {}}}]}, "filters"),
        ({"profiles": [{"schedulerName": "a", "pluginConfigs": []}]}, "pluginConfigs"),
        ({"profiles": [{"schedulerName": "a", "plugins": {"score": {"enabled": ["X"]}}}]}, "want object"),
        ({"plugins": {"mine": "x = 1"}}, "does not match pattern"),
        ({"plugins": {"../mine.py": "x = 1"}}, "does not match pattern"),
        ({"plugins": {"mine.py": {}}}, "want string"),
        ({"configuration": {"profiles": []}}, "profiles"),
        ({"configuration": {"podMaxBackOffSeconds": 5}}, "podMaxBackOffSeconds"),
        ({"clusterSize": {"pods": 5}}, "properties 'nodes' required"),
        ({"clusterSize": {"nodes": "5k"}}, "want integer"),
        ({"args": "--v=2"}, "want array"),
        ({"args": ["run"]}, "does not match pattern"),
        ({"resources": {"limit": {}}}, "limit"),
    ],
    ids=lambda value: str(value)[:70],
)
def test_invalid_values_are_reported(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(HelmError, match=re.escape(complaint)):
        templated(values)


def test_without_roles_the_chart_grants_nothing() -> None:
    assert granted(templated(EXAMPLE | WITHOUT_ROLES)) == {}


def test_a_release_with_the_name_of_the_default_scheduler_needs_roles() -> None:
    with pytest.raises(HelmError, match="which roles the daemon needs"):
        templated(release="default-scheduler")


def fields(of: type[msgspec.Struct]) -> set[str]:
    return set(of.__struct_encode_fields__)


def test_the_schema_has_the_fields_of_a_configuration() -> None:
    configuration = SCHEMA["properties"]["configuration"]["propertyNames"]["enum"]
    profile = SCHEMA["definitions"]["profile"]["properties"]

    assert {*configuration, "profiles"} == fields(KubeSchedulerConfiguration)
    assert profile.keys() == fields(Profile)
    assert set(profile["plugins"]["propertyNames"]["enum"]) == fields(Plugins)
