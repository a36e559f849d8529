"""What `check` says about autoscalers: the rules that they do not know, and the settings that agree."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
import yaml

from plugins.autoscalers import (
    ARGUMENTS_UNKNOWN_TO_KARPENTER,
    SPREAD_DEFAULTS,
    UNKNOWN_TO_CLUSTER_AUTOSCALER,
    UNKNOWN_TO_KARPENTER,
)
from scheduler.configuration.defaults import UPSTREAM_PLUGINS
from scheduler.configuration.load import parse
from scheduler.configuration.types import API_VERSION, KIND
from scheduler.daemon.app.autoscalers import CLUSTER_AUTOSCALER, KARPENTER, settings_yaml, unknown_rules
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.engine.runtime.framework import Framework

SPREAD = """
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]
"""
QUOTAS = "profiles: [{plugins: {multiPoint: {enabled: [{name: CapacityScheduling}]}}}]"
SCORE_ONLY = "profiles: [{plugins: {score: {disabled: [{name: NodeAffinity}]}}}]"
NO_TAINTS = "profiles: [{plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}}]"
ADDED = """
profiles:
- pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [batch]}]}]
"""
EXTENDER = "extenders: [{urlPrefix: 'http://me:secret@127.0.0.1:9/', filterVerb: filter}, {urlPrefix: 'http://127.0.0.1:8/', prioritizeVerb: p, weight: 1}]"


def built(body: str, folder: Path) -> tuple[Configuration, list[Framework]]:
    text = f"apiVersion: {API_VERSION}\nkind: {KIND}\n{body}"
    configuration = parse(text, folder=folder)
    return configuration, [*OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks.values()]


def noted(autoscaler: str, body: str, folder: Path) -> dict[str, str]:
    return {note.text: note.path for note in unknown_rules(autoscaler, *built(body, folder))}


def settings(autoscaler: str, body: str, folder: Path) -> object:
    return yaml.safe_load(settings_yaml(autoscaler, *built(body, folder)))


def about(notes: dict[str, str], words: str) -> list[str]:
    return [path for text, path in notes.items() if words in text]


@pytest.mark.parametrize("autoscaler", [CLUSTER_AUTOSCALER, KARPENTER])
class TestRulesBeyondKubeScheduler:
    def test_a_plugin_that_kube_scheduler_does_not_have_is_unknown(self, autoscaler: str, tmp_path: Path):
        assert about(noted(autoscaler, QUOTAS, tmp_path), "CapacityScheduling rejects") == ["profiles[0]"]
        assert about(noted(autoscaler, "", tmp_path), " rejects ") == []

    def test_a_plugin_in_a_file_is_unknown_if_it_rejects_nodes(self, autoscaler: str, tmp_path: Path):
        for name, base, method in (
            ("Rejects", "FilterPlugin", "filter_node"),
            ("Scores", "ScorePlugin", "score_node"),
        ):
            (tmp_path / f"{name.lower()}.py").write_text(
                dedent(
                    f"""
                    from scheduler.framework import {base}


                    class {name}({base}):
                        name = "{name}"
                        api_version = 1

                        def {method}(self, state, pod, node):
                            return {0 if base == "ScorePlugin" else None}
                    """
                )
            )
        enabled = "profiles: [{plugins: {multiPoint: {enabled: [{name: rejects.py}, {name: scores.py}]}}}]"

        notes = noted(autoscaler, enabled, tmp_path)

        assert about(notes, "Rejects rejects pods or nodes") == ["profiles[0]"]
        assert about(notes, "Scores") == []

    def test_an_extender_that_filters_is_unknown_and_its_password_is_hidden(
        self, autoscaler: str, tmp_path: Path
    ):
        notes = noted(autoscaler, EXTENDER, tmp_path)

        assert about(notes, "extender http://xxxxx@127.0.0.1:9/ rejects") == ["extenders[0].filterVerb"]
        assert about(notes, "127.0.0.1:8") == []

    def test_profiles_that_need_different_settings_are_reported(self, autoscaler: str, tmp_path: Path):
        two = SPREAD.replace("- pluginConfig", "- schedulerName: a\n  pluginConfig") + "- schedulerName: b\n"
        same = "profiles: [{schedulerName: a}, {schedulerName: b}]"

        assert about(noted(autoscaler, two, tmp_path), "one setting for all pods") == ["profiles"]
        assert about(noted(autoscaler, same, tmp_path), "one setting for all pods") == []
        first, second = (
            SPREAD.replace("- pluginConfig", f"- schedulerName: {name}\n  pluginConfig") for name in "ab"
        )
        alike = first + second.replace("\nprofiles:\n", "")
        assert about(noted(autoscaler, alike, tmp_path), "one setting for all pods") == []


class TestKarpenter:
    def test_it_does_not_know_some_rules_of_kube_scheduler(self, tmp_path: Path):
        notes = noted(KARPENTER, "", tmp_path)

        assert about(notes, "of the rules of DynamicResources") == ["profiles[0]"]
        assert about(notes, "TaintToleration") == []

    def test_it_does_not_know_affinity_that_a_profile_adds(self, tmp_path: Path):
        path = "profiles[0].pluginConfig[0].args.addedAffinity"

        assert about(noted(KARPENTER, ADDED, tmp_path), "changes which nodes fit") == [path]
        assert about(noted(CLUSTER_AUTOSCALER, ADDED, tmp_path), "changes which nodes fit") == []

    def test_its_settings_are_the_default_spread_constraints(self, tmp_path: Path):
        constraint = {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
        }

        assert settings(KARPENTER, SPREAD, tmp_path) == {
            "podTopologySpread": {"defaultConstraints": [constraint]}
        }

    def test_without_default_constraints_it_needs_no_settings(self, tmp_path: Path):
        text = settings_yaml(KARPENTER, *built("", tmp_path))

        assert text == "# Karpenter needs no settings for this profile.\n"


class TestClusterAutoscaler:
    def test_its_file_has_the_arguments_of_plugins_that_reject_nodes(self, tmp_path: Path):
        document = settings(CLUSTER_AUTOSCALER, ADDED, tmp_path)

        [profile] = document["profiles"]
        assert [config["name"] for config in profile["pluginConfig"]] == ["NodeAffinity"]
        assert "plugins" not in profile
        assert parse(yaml.safe_dump(document)), "it is a valid configuration"

    def test_profiles_that_disable_different_plugins_need_different_files(self, tmp_path: Path):
        two = f"profiles: [{{schedulerName: b}}, {{schedulerName: a, {NO_TAINTS.removeprefix('profiles: [{')}"

        assert about(noted(CLUSTER_AUTOSCALER, two, tmp_path), "one setting for all pods") == ["profiles"]
        assert about(noted(KARPENTER, two, tmp_path), "one setting for all pods") == []

    def test_its_file_disables_what_the_profile_disables(self, tmp_path: Path):
        document = settings(CLUSTER_AUTOSCALER, NO_TAINTS, tmp_path)

        assert document["profiles"][0]["plugins"] == {
            "multiPoint": {"disabled": [{"name": "TaintToleration"}]}
        }

    def test_a_plugin_without_its_score_still_rejects_nodes(self, tmp_path: Path):
        assert settings(CLUSTER_AUTOSCALER, SCORE_ONLY, tmp_path) is None

    def test_the_file_leaves_out_plugins_that_kube_scheduler_does_not_have(self, tmp_path: Path):
        assert settings(CLUSTER_AUTOSCALER, QUOTAS, tmp_path) is None


def test_the_tables_name_plugins_of_kube_scheduler():
    named = {*UNKNOWN_TO_CLUSTER_AUTOSCALER, *UNKNOWN_TO_KARPENTER, *ARGUMENTS_UNKNOWN_TO_KARPENTER}

    assert {*named, SPREAD_DEFAULTS[0]} <= UPSTREAM_PLUGINS
