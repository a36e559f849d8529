"""The time of day jumps, and the token expires, while pods wait: nothing is lost, and the lease is kept."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.support.builders import node_object, pod_object
from tests.support.daemon_accounts import Account
from tests.support.daemon_harness import Cluster, cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    import pytest

_SETTLED_SECONDS = 15.0


def create_pods(it: Cluster, prefix: str, count: int) -> list[str]:
    names = [f"{prefix}-{number}" for number in range(count)]
    it.add_pods(*(pod_object(name, cpu="10m") for name in names))
    return names


def are_bound(it: Cluster, names: list[str]) -> bool:
    return all(it.node_of(name) for name in names)


async def test_pods_are_bound_when_the_time_of_day_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = timedelta()
    real = LoopClock.utc_now

    def shifted(clock: LoopClock) -> datetime:
        return real(clock) + shift

    monkeypatch.setattr(LoopClock, "utc_now", shifted)
    async with cluster(tmp_path) as it, it.daemon(leader_elect=True) as daemon:
        it.add_nodes(*(node_object(f"n-{number}") for number in range(5)))
        it.add_pods(pod_object("toobig", cpu="99"))
        for hours in (1, -2, 1):
            shift += timedelta(hours=hours)
            names = create_pods(it, f"at-{hours}-{shift.seconds}", 30)
            await it.until(lambda names=names: are_bound(it, names), seconds=5.0)
            await asyncio.sleep(30.0)

        assert it.condition("toobig")["status"] == "False"
        assert daemon.leadership.is_leading()


async def test_pods_are_bound_when_an_expired_token_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejections = 0

    def rejected(_: Account) -> None:
        nonlocal rejections
        rejections += 1

    monkeypatch.setattr(Account, "rejected", rejected)
    async with cluster(tmp_path) as it, it.daemon(leader_elect=True) as daemon:
        it.add_nodes(*(node_object(f"n-{number}") for number in range(5)))
        before = create_pods(it, "before", 100)
        await it.until(lambda: are_bound(it, before[:3]), seconds=5.0)
        expiry = it.server.faults.refuse(401)
        it.server.faults.drop_watches()
        meanwhile = create_pods(it, "meanwhile", 100)
        await asyncio.sleep(7.0)  # less than the renew deadline
        it.server.faults.remove(expiry)

        assert 0 < rejections < 1000, "requests are not repeated without a pause"
        await it.until(lambda: are_bound(it, before + meanwhile), seconds=_SETTLED_SECONDS)
        assert daemon.leadership.is_leading()
