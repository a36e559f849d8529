"""The options of `why`, and its output for one node."""

from __future__ import annotations

import json
import tomllib
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from scheduler.cli.why import why
from scheduler.cli.why_output import show_pod
from scheduler.cli.why_planned import _added, _Removed, _without
from scheduler.configuration.manifests import item_of
from scheduler.objects.decode import decode_node
from scheduler.tools.whatif.service.wire import AddedNodes
from tests.support.builders import node_object
from tests.support.manifests import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_the_package_installs_the_kubectl_plugin() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["kubectl-why"].partition(":")

    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param([], "one of POD, --group, --pending, -f FILE and --remove-node is needed", id="nothing"),
        pytest.param(["web", "--pending"], "one of POD, --group, --pending, -f FILE", id="two at once"),
        pytest.param(["web", "--add-nodes", "2:n"], "--add-nodes has no effect here", id="nodes for a pod"),
        pytest.param(["--remove-node", "n", "--add-nodes", "0:n"], "1 to 1000 nodes", id="no node more"),
        pytest.param(["--remove-node", "n", "--add-nodes", "n"], "1 to 1000 nodes", id="no number of nodes"),
        pytest.param(["--remove-node", "n", "--add-nodes", "2"], "must have one Node", id="copies of none"),
        pytest.param(["--remove-node", "n", "--add-nodes", "2:=x"], "KEY=VALUE", id="labels without a key"),
        pytest.param(["web", "--replicas", "2"], "--replicas has no effect here", id="replicas of a pod"),
        pytest.param(["--pending", "--watch"], "--watch has no effect here", id="a watch of all"),
        pytest.param(["-f", "x", "--node", "n"], "--node has no effect here", id="a node of a file"),
        pytest.param(
            ["web", "--lease", "mine"], "NAMESPACE/NAME is expected", id="a lease without namespace"
        ),
    ],
)
def test_conflicting_options_are_refused(arguments: list[str], problem: str) -> None:
    said = CliRunner().invoke(why, arguments)

    assert said.exit_code == 2
    assert problem in said.output


def test_nodes_are_named_as_in_what_if_requests() -> None:
    assert _added("5:n1", []) == AddedNodes(5, like="n1")
    assert _added("5:pool=old", []) == AddedNodes(5, labels={"pool": "old"})
    template = item_of(b'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}', "")
    assert _added("5", [template]) == AddedNodes(5, template={**msgspec.json.decode(template.raw)})
    assert _added(None, []) is None


POOLS = [
    decode_node(json.dumps(node_object(name, labels={"pool": pool, "zone": zone})).encode())
    for name, pool, zone in (("n1", "old", "a"), ("n2", "old", "b"), ("n3", "new", "a"), ("n4", "new", "b"))
]


@pytest.mark.parametrize(
    ("flags", "removed"),
    [
        (["n1"], ["n1"]),
        (["pool=old,zone=a"], ["n1"]),
        (["pool=old", "zone=a"], ["n1", "n2", "n3"]),
        (["zone=a", "zone=b"], ["n1", "n2", "n3", "n4"]),
        (["pool=old", "n1", "n4"], ["n1", "n2", "n4"]),
    ],
)
def test_each_flag_removes_nodes(flags: list[str], removed: list[str]) -> None:
    leaving, staying = _without(POOLS, [_Removed.read(flag) for flag in flags])

    assert [node.name for node in leaving] == removed
    assert {node.name for node in staying} == {"n1", "n2", "n3", "n4"} - {*removed}


@pytest.mark.parametrize("flag", ["n5", "pool=old,zone=c"])
def test_a_flag_that_names_no_node_is_refused(flag: str) -> None:
    with pytest.raises(click.BadParameter, match=flag):
        _without(POOLS, [_Removed.read("n1"), _Removed.read(flag)])


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        pytest.param(
            {"KUBECONFIG": "nowhere"},
            "kubeconfig nowhere of $KUBECONFIG: no such file",
            id="of the environment",
        ),
        pytest.param({"HOME": "home"}, "kubeconfig home/.kube/config: no such file", id="the usual place"),
    ],
)
def test_the_kubeconfig_is_found_as_by_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: dict[str, str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in where.items():
        monkeypatch.setenv(name, value)

    said = CliRunner().invoke(why, ["--pending"])

    assert problem in str(said.exception)


def verdict(total: int, **scores: int) -> dict[str, Any]:
    return {"feasible": True, "scores": scores, "total": total}


NODES = {
    "n1": verdict(9, Fit=4, Taint=5),
    "n2": verdict(7, Fit=2, Taint=5),
    "n3": {
        "feasible": False,
        "plugin": "Fit",
        "code": "Unschedulable",
        "reasons": ["full"],
        "details": ["by a"],
    },
    "n4": {"feasible": True},
}


@pytest.mark.parametrize(
    ("node", "lines"),
    [
        pytest.param(
            "n2", ["n2 fits default/web: rank 2 of 2", "Fit 2 4", "Taint 5 5", "Total 7 9"], id="beside"
        ),
        pytest.param("n1", ["n1 fits default/web: rank 1 of 2", "Fit 4", "Total 9"], id="the best itself"),
        pytest.param(
            "n3",
            ["n3 does not fit default/web: full", "Rejected by Fit (Unschedulable).", "by a"],
            id="refused",
        ),
        pytest.param("n4", ["the feasible nodes were not scored"], id="not ranked"),
        pytest.param("n5", ["n5 was not examined for default/web: there is no such node"], id="no such node"),
    ],
)
def test_a_node_is_compared_with_the_best_one(
    node: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    attempt = {"pod": "default/web", "message": None, "nodes": NODES}
    answer = {
        "pod": "default/web",
        "node": None,
        "decidedBy": "x",
        "lastMessage": "",
        "history": [],
        "place": None,
        "now": None,
        "attempt": attempt,
    }

    show_pod(answer, node=node, as_json=False, all_nodes=False)

    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(line in printed for line in lines), printed
