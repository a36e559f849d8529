"""The schemas of our kinds refuse invalid objects at their fields; the simulated API server evaluates no CEL rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.daemon_harness import cluster
from tests.support.invalid_objects import KINDS, WRONG, Kind, Wrong

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

BY_TYPES = [case for case in WRONG if not case.by_rule]
CRDS = "customresourcedefinitions.apiextensions.k8s.io"


async def define(it: Cluster, kind: Kind) -> str:
    """Define a kind, and return the name of its definition."""
    name = str(kind.definition["metadata"]["name"])
    await it.define(kind.definition)
    return name


@pytest.mark.parametrize("case", BY_TYPES, ids=[case.title for case in BY_TYPES])
async def test_an_invalid_object_is_refused_at_its_field(tmp_path: Path, case: Wrong) -> None:
    async with cluster(tmp_path) as it:
        plural = await define(it, case.kind)
        with pytest.raises(StatusError, match=case.field):
            it.server.store.create(plural, case.kind.with_spec(case.spec))


@pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])
async def test_a_valid_object_is_accepted(tmp_path: Path, kind: Kind) -> None:
    async with cluster(tmp_path) as it:
        plural = await define(it, kind)
        it.server.store.create(plural, kind.with_spec(kind.right))
        assert it.server.store.get(plural, "it", kind.namespace)["spec"].items() >= kind.right.items()
