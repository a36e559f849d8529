"""Requests to an extender of any size."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from scheduler.daemon.server.extender import _verbs
from scheduler.extensions import extender_serving_wire
from scheduler.extensions.extender_serving_wire import RequestError
from tests.support import virtual_time
from tests.support.builders import pod_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.extensions.extender_serving_wire import PreemptionRequest
    from scheduler.extensions.extender_wire import MetaVictims


class KeepsAll:
    """Returns that the pod fits on every node."""

    def preempt(self, request: PreemptionRequest) -> Mapping[str, MetaVictims]:
        return request.victims


def victims(nodes: int) -> bytes:
    named = {f"n{number}": {"Pods": [{"UID": str(number)}]} for number in range(nodes)}
    return msgspec.json.encode({"Pod": pod_object("web"), "NodeNameToMetaVictims": named})


@pytest.mark.parametrize(("nodes", "is_aside"), [(10, False), (20_000, True)])
def test_a_large_request_is_decoded_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, nodes: int, is_aside: bool
) -> None:
    readers, read = [], extender_serving_wire.preemption_request

    def noted(body: bytes) -> PreemptionRequest:
        readers.append(threading.current_thread())
        return read(body)

    monkeypatch.setattr(extender_serving_wire, "preemption_request", noted)
    preempt = _verbs(KeepsAll())["preempt"]  # type: ignore[arg-type]  # nothing else is asked

    answer = msgspec.json.decode(asyncio.run(preempt(victims(nodes))))
    assert len(answer["NodeNameToMetaVictims"]) == nodes
    assert [reader is threading.main_thread() for reader in readers] == [not is_aside]


def test_a_large_malformed_request_is_refused_with_the_same_message() -> None:
    preempt = _verbs(KeepsAll())["preempt"]  # type: ignore[arg-type]  # nothing else is asked

    with pytest.raises(RequestError, match="the request is no JSON object"):
        asyncio.run(preempt(b"x" * 2**20))


def test_the_event_loop_continues_between_the_nodes_of_a_request() -> None:
    turns = 0

    class TakesLong(KeepsAll):
        def preempt(self, request: PreemptionRequest) -> Mapping[str, MetaVictims]:
            assert len(request.victims) == 1
            asyncio.get_running_loop()._now += 0.01  # type: ignore[attr-defined]
            return super().preempt(request)

    async def look(request: bytes) -> bytes:
        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        preempt = _verbs(TakesLong())["preempt"]  # type: ignore[arg-type]  # nothing else is asked
        answer = await preempt(request)
        task.cancel()
        return answer

    virtual_time.run(look(victims(20)))
    assert turns >= 20
