"""The requests and limits for a cluster size."""

from __future__ import annotations

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from scheduler.daemon.app.rights import Named
from scheduler.daemon.app.size import ClusterSize, resources_for, size_patch
from scheduler.version import VERSION
from tests.support.manifests import MANIFESTS, one, rendered

MIB = 2**20
DOCUMENT = (Path(__file__).parents[4] / "docs" / "install.md").read_text()
ACCOUNT = Named("kube-system", "custom-scheduler")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5000", ClusterSize(5000, 150_000)), ("100,20", ClusterSize(100, 20)), ("0", ClusterSize(0, 0))],
)
def test_a_size_is_nodes_and_optional_pods(text: str, expected: ClusterSize) -> None:
    assert ClusterSize.parse(text) == expected


@pytest.mark.parametrize("text", ["", "x", "5,", "1,2,3", "-1", "1.5", "٣", "5 ,6"])
def test_any_other_text_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="NODES or NODES,PODS"):
        ClusterSize.parse(text)


ROWS = [
    [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", row)]
    for row in re.findall(r"^\| [\d,]+ \| [\d,]+ \| \d+ MiB \|.*$", DOCUMENT, re.MULTILINE)
]


def test_the_table_of_the_documentation_has_rows() -> None:
    assert len(ROWS) == 5


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} nodes")
def test_documented_sizes_are_those_of_the_command_and_cover_measurements(row: list[int]) -> None:
    nodes, pods, measured, milli, request, limit = row
    needed = resources_for(ClusterSize(nodes, pods))

    assert (needed.milli_cpu, needed.request_bytes // MIB, needed.limit_bytes // MIB) == (
        milli,
        request,
        limit,
    )
    assert needed.request_bytes >= measured * MIB
    assert needed.limit_bytes >= 1.5 * measured * MIB


def test_more_nodes_or_pods_never_take_less() -> None:
    sizes = [ClusterSize(nodes, nodes * 30) for nodes in (0, 1, 100, 1000, 2500, 5000, 15_000, 100_000)]
    found = [resources_for(size) for size in sizes]
    for of in ("milli_cpu", "request_bytes", "limit_bytes"):
        numbers = [getattr(each, of) for each in found]
        assert numbers == sorted(numbers)


def test_the_manifests_fit_the_number_of_nodes_in_the_documentation() -> None:
    (container,) = one(rendered(MANIFESTS / "base"), "Deployment")["spec"]["template"]["spec"]["containers"]
    (nodes,) = re.findall(r"as they are fit\s([\d,]+)\s+nodes", DOCUMENT)
    needed = resources_for(ClusterSize.parse(nodes.replace(",", "")))

    assert container["resources"] == {
        "requests": {"cpu": f"{needed.milli_cpu}m", "memory": "512Mi"},
        "limits": {"memory": "1Gi"},
    }
    assert needed.request_bytes <= 512 * MIB
    assert needed.limit_bytes <= 1024 * MIB


def test_kustomize_accepts_the_patch(tmp_path: Path) -> None:
    (tmp_path / "size.yaml").write_text(size_patch(ClusterSize(15_000, 450_000), ACCOUNT))
    (tmp_path / "base").symlink_to(MANIFESTS / "base")
    kustomization = {"resources": ["base"], "patches": [{"path": "size.yaml"}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))

    deployment = one(rendered(tmp_path), "Deployment")

    kubernetes_validate.validate(deployment, "1.36", strict=True)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    needed = resources_for(ClusterSize(15_000, 450_000))
    assert container["resources"]["limits"] == {"memory": f"{needed.limit_bytes // MIB}Mi"}
    assert container["image"] == f"custom-scheduler:{VERSION}"
