"""The arguments of DynamicResources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.errors import FieldError
from scheduler.framework import PluginArgs
from scheduler.objects.durations import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECOND = 1_000_000_000


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Arguments of DynamicResources.

    Attributes:
        filter_timeout: time limit of the search for the devices of one pod over all nodes; 0 means no limit.
        binding_timeout: how long a pod waits until its devices are ready.

    Source:
        kube-scheduler v1.36, apis/config/validation/validation_pluginargs.go, ValidateDynamicResourcesArgs.
    """

    filter_timeout: Duration = Duration(10 * _SECOND)
    binding_timeout: Duration = Duration(600 * _SECOND)

    def faults(self) -> Iterator[FieldError]:
        if self.filter_timeout < Duration(0):
            yield FieldError("filterTimeout", f"must be zero or positive, was {self.filter_timeout}")
        if self.binding_timeout < Duration(_SECOND):
            yield FieldError("bindingTimeout", f"must be at least 1 second, was {self.binding_timeout}")
