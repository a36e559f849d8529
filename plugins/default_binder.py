"""Binds a pod by posting a Binding to the API server.

Source:
    kube-scheduler v1.36, plugins/defaultbinder/default_binder.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.errors import ApiError
from scheduler.framework import BindPlugin, Needs, Status

if TYPE_CHECKING:
    from scheduler.framework import CycleState, PodBinder
    from scheduler.objects.pod import PodInfo


class DefaultBinder(BindPlugin):
    """Binds pods through the API server."""

    name = "DefaultBinder"
    api_version = 1
    needs = Needs(rights=frozenset({"create v1/pods/binding"}))

    def __init__(self, *, binder: PodBinder) -> None:
        self._binder = binder

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        try:
            await self._binder.bind(pod, node_name)
        except ApiError as error:
            return Status.failed(str(error), error)
        return None
