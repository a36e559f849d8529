"""The manifests as they are shipped, rendered as `kubectl apply -k` renders them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.binaries import needed_binary

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
KUSTOMIZATIONS = sorted(path.parent for path in MANIFESTS.rglob("kustomization.yaml"))


def rendered(folder: Path) -> list[dict[str, Any]]:
    """Return the objects of a kustomization."""
    kubectl = needed_binary("kubectl", "Kubernetes' releases")
    said = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(said.stdout))


def one(objects: list[dict[str, Any]], kind: str, name: str = "custom-scheduler") -> dict[str, Any]:
    """Return the only object of a kind and name."""
    (found,) = [obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    return found
