"""`custom-scheduler rebalance` with a file: its output, its exit statuses, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner

from scheduler.cli.rebalance import rebalance
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

EXAMPLE = MANIFESTS / "examples" / "rebalance"
INPUT = ("--cluster", EXAMPLE / "cluster.yaml", "--config", EXAMPLE / "scheduler.yaml")


def run(*arguments: object, stdin: str = "") -> Result:
    return CliRunner().invoke(rebalance, [str(each) for each in arguments], input=stdin)


def test_a_plan_has_its_gain_and_for_each_step_both_nodes_and_scores() -> None:
    shown = run(*INPUT)

    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[:3] == [
        "nodes in use: 3 -> 2",
        "pods above maxSkew: 0 -> 0",
        "fragmentation: 21.4% -> 21.4%",
    ]
    assert "1. shop/api-2: node-3 -> node-1 (nodes in use 3 -> 2 with 2 evictions; score " in shown.output
    assert "1: has no controller, so no pod would replace it" in shown.output


def test_json_and_yaml_have_the_same_plan() -> None:
    as_json = json.loads(run(*INPUT, "-o", "json").output)
    as_yaml = yaml.safe_load(run(*INPUT, "-o", "yaml").output)

    assert as_json == as_yaml
    assert (as_json["before"]["nodes"], as_json["after"]["nodes"]) == (3, 2)
    assert [step["fromNode"] for step in as_json["steps"]] == ["node-3", "node-3"]


def test_a_namespace_and_a_selector_limit_the_evictions() -> None:
    assert json.loads(run(*INPUT, "-o", "json", "-n", "shop", "-l", "app=api").output)["steps"]
    assert not json.loads(run(*INPUT, "-o", "json", "-n", "other").output)["steps"]
    assert not json.loads(run(*INPUT, "-o", "json", "-l", "app!=api").output)["steps"]


def test_the_judge_of_a_log_of_the_descheduler_reports_each_eviction() -> None:
    shown = run(*INPUT, "--judge", EXAMPLE / "descheduler.txt", "-o", "json")

    evictions = [
        (each["line"], each["pod"], each["result"]) for each in json.loads(shown.output)["evictions"]
    ]
    assert evictions == [(2, "shop/api-1", "same"), (3, "shop/api-2", "refused")]
    assert shown.exit_code == 3


def test_a_list_of_accepted_evictions_ends_with_success() -> None:
    shown = run(*INPUT, "--judge", "-", stdin="shop/api-1\n")

    assert (shown.exit_code, shown.output.splitlines()[0][:29]) == (0, "line 1: same: shop/api-1: nod")


def test_a_list_with_a_wrong_line_is_refused(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_text("shop/api-1\nnonsense\n")

    shown = run(*INPUT, "--judge", plan)

    assert shown.exit_code == 2
    assert f"error: {plan}: line 2: must be namespace/name" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--cluster c --execute", "--execute needs a live cluster, and no --judge"),
        ("--judge p --execute", "--execute needs a live cluster, and no --judge"),
        ("--cluster c --kubeconfig k", "--kubeconfig and --context have no effect with --cluster"),
        ("--cluster - --judge -", "--cluster and --judge cannot both be standard input"),
        ("--cluster c --patience 1m", "--patience needs --execute"),
        ("--cluster c --judge p --max-evictions 3", "--max-evictions needs no --judge"),
        ("--cluster c --judge p --tries 3", "--tries needs no --judge"),
        ("--cluster c --config f --scheduler-name x", "--scheduler-name is for the default plugins"),
        ("--execute --patience 0s", "--patience: more than 0s is expected, was 0s"),
        ("--cluster c --selector a==b==c", "--selector a==b==c: "),
        ("--cluster no-such-file", "no-such-file: cannot be read"),
        ("--objective cost", "'cost' is not one of 'nodes', 'spread', 'fragmentation'"),
    ],
)
def test_a_flag_that_is_wrong_or_has_no_effect_is_refused(arguments: str, expected: str) -> None:
    shown = run(*arguments.split())

    assert (shown.exit_code, expected in shown.stderr) == (2, True), shown.output
