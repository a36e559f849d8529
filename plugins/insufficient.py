"""The reasons for nodes with too little of a resource, as NodeResourcesFit and DynamicResources give them."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import Final

from scheduler.framework import Reason
from scheduler.objects.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, is_hugepage_resource_name

INSUFFICIENT: Final = "Insufficient "
_OF_RESOURCE: Final = {
    CPU: "InsufficientCPU",
    MEMORY: "InsufficientMemory",
    EPHEMERAL_STORAGE: "InsufficientEphemeralStorage",
}
_HUGE_PAGES: Final = "InsufficientHugePages"
_OTHER: Final = "InsufficientExtendedResource"

INSUFFICIENT_CODES: Final = MappingProxyType(
    {
        **{code: f"the node has too little free {name}" for name, code in _OF_RESOURCE.items()},
        _HUGE_PAGES: "the node has too few free huge pages of a size",
        _OTHER: "the node has too little of another resource, such as GPUs; the text of the reason names it",
    }
)
"""Reason code -> meaning."""


@lru_cache(maxsize=1024)
def insufficient(resource: str) -> Reason:
    """Return the reason for a node with too little of a resource."""
    code = _OF_RESOURCE.get(resource) or (_HUGE_PAGES if is_hugepage_resource_name(resource) else _OTHER)
    return Reason(INSUFFICIENT + resource, code)
