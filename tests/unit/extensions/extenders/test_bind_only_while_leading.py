"""The right to bind is checked until the first byte of the request, and for bindings only."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.types import Extender
from scheduler.errors import NotLeadingError
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.extensions.extenders import Extenders
from tests.support.builders import pod
from tests.support.extender_server import scripted_extender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.extender_server import ScriptedExtender

POD = pod("web")


class Heard:
    def extender_failed(self, *_: object, **__: object) -> None:
        return


class Right:
    """Leads for the given number of checks."""

    def __init__(self, holds_for: int) -> None:
        self.left = holds_for

    def check(self) -> None:
        if not self.left:
            raise NotLeadingError("kube-system/custom-scheduler")
        self.left -= 1


@asynccontextmanager
async def binding(right: Right) -> AsyncIterator[tuple[Extenders, ScriptedExtender]]:
    async with scripted_extender({"bind": {}, "rank": [{"Host": "n1", "Score": 1}]}) as server:
        settings = Extender(
            url_prefix=server.url, bind_verb="bind", prioritize_verb="rank", weight=1, node_cache_capable=True
        )
        chain = Extenders([settings], Heard(), right.check)
        try:
            yield chain, server
        finally:
            await chain.close()


async def test_a_leader_sends_a_bind_to_the_extender() -> None:
    async with binding(Right(2)) as (chain, server):
        assert await chain.bind(POD, "n1")
        assert [verb for verb, _ in server.asked] == ["bind"]


@pytest.mark.parametrize("holds_for", [0, 1], ids=["until a connection is there", "until headers are ready"])
async def test_a_former_leader_sends_no_bind(holds_for: int) -> None:
    async with binding(Right(holds_for)) as (chain, server):
        with pytest.raises((NotLeadingError, ExtenderError)):
            await chain.bind(POD, "n1")
        assert not server.asked
