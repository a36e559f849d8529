"""The lease, changed by an authorized writer, and the server, flooded by unauthorized clients.

Who may write the lease decides who leads: that is not defended against. What is promised is that whoever does not hold it
binds nothing, that the process does not suffer from what is written there, and that all goes on once it is left alone.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from scheduler.clock import rfc3339_micro
from tests.hostile.api import RefusedError
from tests.hostile.scenario import scenario
from tests.hostile.schedulers import LEASE

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]


@scenario(forges_renewals=True)
async def renewals_in_other_times(it: Stage) -> None:
    """The lease's renewTime is set a year ahead and a year back, and 200 KB of annotations are written, twice a second"""

    async def change(number: int) -> None:
        moment = datetime.now(UTC) + timedelta(days=365 * (1 if number % 2 else -1))
        annotations = {"hostile": str(number % 10) * 200_000}
        await it.api.patch(
            LEASE, {"metadata": {"annotations": annotations}, "spec": {"renewTime": rfc3339_micro(moment)}}
        )

    await it.innocents_while(2 if not it.is_small else 10, change)
    await it.api.patch(LEASE, {"metadata": {"annotations": None}})


@scenario(starts=False)
async def deleted_lease(it: Stage) -> None:
    """The lease is deleted twice a second"""
    await it.start(fresh=True)

    async def delete(_: int) -> None:
        await it.api.ask("DELETE", LEASE)

    await it.innocents_while(2 if not it.is_small else 10, delete)
    await asyncio.sleep(5)  # two tries to renew


@scenario(starts=False, leader_changes=True, logged=frozenset({"Lease is lost", "leaderelection lost"}))
async def another_holder(it: Stage) -> None:
    """Another holder is written into the lease once; the process gives up, is started again, and leads when the lease ends"""
    await it.start(fresh=True, restarts=True)
    await it.api.patch(
        LEASE,
        {
            "spec": {
                "holderIdentity": "hostile",
                "leaseDurationSeconds": 3,
                "renewTime": rfc3339_micro(datetime.now(UTC)),
            }
        },
    )
    await it.until(lambda: it.scheduler.ends, 30)
    it.figure(f"ends {it.scheduler.ends}")
    it.scheduler.ends.clear()  # it has to
    await it.innocents(rate=2)


@scenario()
async def readers_of_pages(it: Stage) -> None:
    """Strangers ask for all pages with tokens of their own, 200 times a second"""
    url = f"https://127.0.0.1:{it.scheduler.port}"
    pages = ("metrics", "configz", "debug/cache", "healthz", "x" * 4000)

    async def ask(number: int) -> None:
        headers = {"Authorization": f"Bearer stranger-{number}"}
        try:
            async with it.api.session.get(f"{url}/{pages[number % len(pages)]}", headers=headers) as answer:
                await answer.read()
        except OSError as error:
            raise RefusedError("GET", url, 0, str(error).encode()) from error

    await it.innocents_while(it.n(200, least=20), ask)
