from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from plugins.default_binder import DefaultBinder
from scheduler.errors import ApiError
from scheduler.framework import Code, CycleState
from tests.support.builders import pod

if TYPE_CHECKING:
    from scheduler.framework import Status
    from scheduler.objects.pod import PodInfo


class Binder:
    """Records bindings, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.bound: list[tuple[str, str]] = []
        self._error = error

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        if self._error:
            raise self._error
        self.bound.append((pod.key, node_name))


def bind(binder: Binder) -> Status | None:
    return asyncio.run(DefaultBinder(binder=binder).bind(CycleState(), pod("p"), "n"))


def test_a_pod_is_bound_to_its_node():
    binder = Binder()

    assert bind(binder) is None
    assert binder.bound == [("default/p", "n")]


@pytest.mark.parametrize(
    "error",
    [ApiError(409, "Conflict", "pod p is already assigned to node m"), ApiError(0, "", "no answer")],
    ids=["refused", "without an answer"],
)
def test_an_api_error_becomes_an_error_status(error: ApiError):
    status = bind(Binder(error))

    assert status.code is Code.ERROR
    assert status.message == str(error)
    assert status.error is error


def test_an_internal_error_is_raised():
    with pytest.raises(ZeroDivisionError):
        bind(Binder(ZeroDivisionError()))
