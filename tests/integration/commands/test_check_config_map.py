"""`custom-scheduler check` takes a ConfigMap as kubectl and Helm print it, with the plugin files beside the configuration."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.commands.test_check import check
from tests.support.manifests import MANIFESTS, one, rendered

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def config_map(**data: Any) -> str:
    named = {"namespace": "kube-system", "name": "it"}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data})


def test_check_accepts_the_config_map_of_a_kustomization_with_its_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = one(rendered(MANIFESTS / "examples"), "ConfigMap")
    assert "prefer_small_nodes.py" in found["data"]

    done = check("-", stdin=yaml.safe_dump(found).encode())

    assert (done.code, done.told) == (0, [])
    assert done.out == (
        "ConfigMap kube-system/custom-scheduler, config.yaml: valid, profiles custom-scheduler\n"
    )
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - its names, whatever they are


def test_a_file_may_be_a_config_map(tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text(config_map(**{"a.yaml": f"{HEAD}profiles: [{{schedulerName: mine}}]"}))

    done = check(tmp_path / "map.json")

    assert (done.code, done.out) == (
        0,
        "ConfigMap kube-system/it, a.yaml: valid, profiles mine\n",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            config_map(a=f"{HEAD}paralelism: 3"),
            "ConfigMap kube-system/it, a: paralelism: unknown field",
            id="a fault in it",
        ),
        pytest.param(
            config_map(**{"x.py": "1"}),
            "ConfigMap kube-system/it: one key is expected beside plugin files, it has none; name it as NAME:KEY",
            id="plugins only",
        ),
        pytest.param("kind: ConfigMap", "standard input: metadata: keys with values are expected", id="bare"),
        pytest.param(
            "{kind: ConfigMap, metadata: {name: a, namespace: b}, data: [c]}",
            "standard input: data: keys with values are expected",
            id="data that are none",
        ),
    ],
)
def test_an_error_in_a_config_map_is_reported_with_its_place(text: str, expected: str) -> None:
    done = check("-", stdin=text.encode())

    assert (done.code, done.out) == (2, "")
    assert expected in done.told[0], done.told
