"""An API server accepts every shipped manifest, and refuses unknown fields."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.server import ApiServer
from tests.support.kubectl import Kubectl
from tests.support.manifests import KUSTOMIZATIONS, MANIFESTS
from tests.support.monitoring_kinds import DEFINITIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

GENERATIONS = 'jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.generation}{"\\n"}{end}'
STRICTLY = ("--validate=strict", "--filename", "-")


@asynccontextmanager
async def administrator(folder: Path) -> AsyncIterator[Kubectl]:
    """kubectl beside a server that knows the kinds of the Prometheus operator too."""
    async with ApiServer(tls=True, rbac=True, controllers=True) as server:
        kubectl = Kubectl(server.write_kubeconfig(folder / "admin"), folder)
        for definition in DEFINITIONS:
            await kubectl("create", "-f", "-", stdin=json.dumps(definition))
        names = [definition["metadata"]["name"] for definition in DEFINITIONS]
        await kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in names))
        yield kubectl


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=lambda folder: str(folder.relative_to(MANIFESTS)))
async def test_a_kustomization_is_accepted_and_applying_it_again_changes_nothing(
    folder: Path, tmp_path: Path
):
    async with administrator(tmp_path) as kubectl:
        first = await kubectl.run("apply", "-k", str(folder), "--validate=strict")
        assert (first.code, first.err) == (0, "")
        assert all(line.endswith(" created") for line in first.out.splitlines())
        before = await kubectl("get", "-k", str(folder), "-o", GENERATIONS)

        again = await kubectl.run("apply", "-k", str(folder), "--validate=strict")
        assert (again.code, again.err) == (0, "")
        assert "created" not in again.out
        assert await kubectl("get", "-k", str(folder), "-o", GENERATIONS) == before


@pytest.mark.parametrize(
    ("file", "right", "wrong", "complaint"),
    [
        ("base/network_policy.yaml", "podSelector", "podSelecter", 'unknown field "spec.podSelecter"'),
        ("base/deployment.yaml", "runAsNonRoot", "runAsNonroot", "runAsNonroot"),
        ("monitoring/pod_monitor.yaml", "insecureSkipVerify", "skipVerify", "skipVerify"),
        ("monitoring/pod_monitor.yaml", "interval: 30s", "interval: 30 s", "interval"),
        ("monitoring/alerts.yaml", "annotations: {summary", "annotation: {summary", "annotation"),
    ],
)
async def test_an_unknown_field_of_a_manifest_is_found(
    file: str, right: str, wrong: str, complaint: str, tmp_path: Path
):
    shipped = (MANIFESTS / file).read_text()
    assert right in shipped

    async with administrator(tmp_path) as kubectl:
        assert complaint in await kubectl.refused("apply", *STRICTLY, stdin=shipped.replace(right, wrong))
