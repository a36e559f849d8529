"""The RBAC rights that a configuration needs, and the roles that grant them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from scheduler.configuration.load import default, parse
from scheduler.daemon.app.rights import (
    Named,
    Right,
    rights_of,
    rights_of_needs,
    rights_of_shadow,
    roles_yaml,
    rules_yaml,
)
from scheduler.framework import Needs
from scheduler.tools.simulator.access.rbac import permissions
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.support.manifests import MANIFESTS

ACCOUNT = Named("kube-system", "custom-scheduler")
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def rights(text: str = "", *, config_map: Named | None = ACCOUNT) -> dict[Right, str]:
    configuration = parse(HEAD + text) if text else default()
    profiles = OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks.values()
    return rights_of(profiles, configuration.settings, config_map=config_map)


def without(plugin: str) -> str:
    return f"profiles: [{{plugins: {{multiPoint: {{disabled: [{{name: {plugin}}}]}}}}}}]"


def test_the_shipped_roles_are_those_of_the_default_configuration() -> None:
    assert roles_yaml(rights(), ACCOUNT) == (MANIFESTS / "base" / "rbac.yaml").read_text()


def test_composite_groups_are_read_with_their_gate_only() -> None:
    wanted = {Right(verb, "scheduling.k8s.io", "compositepodgroups") for verb in ("list", "watch")}
    gate = "emulatedVersion: '1.37'\nfeatureGates: {CompositePodGroup: true}\n"

    assert wanted <= rights(gate).keys()
    assert not wanted & rights("emulatedVersion: '1.37'\n").keys()


def test_roles_give_exactly_the_rights() -> None:
    found = rights()
    given = {
        Right(one.verb, one.group, one.resource, obj["metadata"].get("namespace", ""), one.name)
        for obj in yaml.safe_load_all(roles_yaml(found, ACCOUNT))
        for rule in obj.get("rules", ())
        for one in permissions(rule)
    }
    assert given == found.keys()


@pytest.mark.parametrize(
    ("plugin", "gone"),
    [
        ("DefaultPreemption", {Right("delete", "", "pods"), Right("list", "policy", "poddisruptionbudgets")}),
        ("VolumeBinding", {Right("update", "", "persistentvolumes"), Right("list", "storage.k8s.io", "csidrivers")}),
        ("DynamicResources", {Right("create", "resource.k8s.io", "resourceclaims")}),
        ("PodTopologySpread", {Right("watch", "apps", "replicasets")}),
        ("InterPodAffinity", {Right("list", "", "namespaces")}),
    ],
)  # fmt: skip
def test_rights_of_a_disabled_plugin_are_not_granted(plugin: str, gone: set[Right]) -> None:
    assert gone <= rights().keys()
    assert not gone & rights(without(plugin)).keys()


def test_rights_of_several_plugins_name_all_of_them() -> None:
    right = Right("list", "", "persistentvolumeclaims")
    assert rights()[right] == "VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone"
    assert rights(without("VolumeBinding"))[right] == "VolumeRestrictions, NodeVolumeLimits, VolumeZone"


NODE_LOAD = "profiles: [{plugins: {multiPoint: {enabled: [{name: NodeLoad}]}}"


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        pytest.param(f"{NODE_LOAD}}}]", True, id="metrics API"),
        pytest.param(
            f"{NODE_LOAD}, pluginConfig: [{{name: NodeLoad, args: {{source: Prometheus, ip: 'http://p'}}}}]}}]",
            False,
            id="Prometheus",
        ),
    ],
)
def test_the_rights_of_a_plugin_follow_its_arguments(text: str, takes: bool) -> None:
    assert (Right("list", "metrics.k8s.io", "nodes") in rights(text)) == takes


def test_rights_on_a_lease_follow_the_leader_election_settings() -> None:
    elsewhere = rights("leaderElection: {resourceNamespace: sys, resourceName: mine}")
    assert {right.namespace for right in elsewhere if right.resource == "leases"} == {"sys"}
    assert Right("update", "coordination.k8s.io", "leases", "sys", "mine") in elsewhere
    assert not [
        right for right in rights("leaderElection: {leaderElect: false}") if right.resource == "leases"
    ]


def test_sharding_needs_all_leases_of_the_namespace_and_the_one_assignment() -> None:
    found = {
        right: reason
        for right, reason in rights(
            "sharding: {enabled: true}\nleaderElection: {resourceNamespace: sys, resourceName: mine}"
        ).items()
        if right.resource in {"leases", "shardassignments"}
    }

    assert {(right.verb, right.namespace, right.name) for right in found if right.resource == "leases"} == {
        (verb, "sys", "") for verb in ("get", "list", "watch", "create", "update", "delete")
    }
    assert {(right.verb, right.name) for right in found if right.resource == "shardassignments"} == {
        ("create", ""),
        *((verb, "mine") for verb in ("get", "list", "watch", "update")),
    }


def test_a_configuration_in_a_file_needs_no_rights_on_config_maps() -> None:
    assert not [right for right in rights(config_map=None) if right.resource == "configmaps"]


def test_the_name_of_kube_scheduler_needs_a_right_on_its_lease() -> None:
    right = Right("get", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler")
    assert right in rights("profiles: [{schedulerName: default-scheduler}]")
    assert right not in rights()


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("get v1/secrets", Right("get", "", "secrets")),
        ("create v1/pods/binding", Right("create", "", "pods/binding")),
        ("patch example.com/v2/things", Right("patch", "example.com", "things")),
        ("patch example.com/v2/things/status", Right("patch", "example.com", "things/status")),
    ],
)
def test_a_right_is_a_verb_and_a_kind(text: str, right: Right) -> None:
    assert rights_of_needs(Needs(rights=frozenset({text}))) == {right}


@pytest.mark.parametrize(
    "text", ["", "get", "get pods", "v1/pods", "get v1/", "get a/b/c/d/e", "get  v1/pods"]
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a right is a verb and") as refused:
        rights_of_needs(Needs(rights=frozenset({text})))
    assert repr(text) in str(refused.value)


def test_kinds_are_listed_and_watched() -> None:
    found = rights_of_needs(Needs(kinds=frozenset({"v1/configmaps"})))
    assert found == {Right("list", "", "configmaps"), Right("watch", "", "configmaps")}


def test_odd_names_are_quoted() -> None:
    odd: dict[Right, str] = {Right("get", "no", "yes: [x]"): "Mine"}
    (rule,) = yaml.safe_load(rules_yaml(odd))
    assert rule == {"apiGroups": ["no"], "resources": ["yes: [x]"], "verbs": ["get"]}


def test_a_right_reads_like_kubectl() -> None:
    right: Any = Right("get", "coordination.k8s.io", "leases", "kube-system", "mine")
    assert str(right) == 'get leases.coordination.k8s.io "mine" in kube-system'
    assert (
        str(Right("patch", "resource.k8s.io", "resourceclaims/status"))
        == "patch resourceclaims.resource.k8s.io/status"
    )


def test_a_shadow_has_only_read_rights_for_its_profiles() -> None:
    profiles = OfflineScheduler(ClusterFile(), default(), refresh=False).frameworks.values()
    found = rights_of_shadow(profiles)
    reading = {right for right in rights() if right.verb in {"get", "list", "watch"} and not right.namespace}
    assignment = Right("get", "custom-scheduler.io", "shardassignments", name="custom-scheduler")

    assert {right.resource for right in found if right.verb == "watch"} > {"nodes", "pods", "services"}
    assert found.keys() == reading - {Right("get", "", "pods"), assignment}
