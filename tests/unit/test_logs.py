"""How much is logged."""

from __future__ import annotations

import logging

import pytest

from scheduler.logs import level_of
from tests.builders import pod
from tests.unit.cycle.cluster import Cluster
from tests.virtually import virtually


@pytest.mark.parametrize(
    ("verbosity", "bound_pods"), [(0, []), (1, []), (2, ["default/web"]), (4, ["default/web"])]
)
def test_bound_pods_are_logged_from_verbosity_2_on(
    verbosity: int, bound_pods: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    @virtually
    async def scenario() -> None:
        cluster = Cluster()
        async with cluster.running():
            cluster.api.create(pod("web"))
            await cluster.until(lambda: cluster.node_of("web") and not cluster.binding.under_way)

    with caplog.at_level(level_of(verbosity)):
        scenario()

    shown = [record for record in caplog.records if record.getMessage() == "Pod bound"]
    assert [record.__dict__["pod"] for record in shown] == bound_pods
    assert level_of(verbosity) <= logging.INFO
