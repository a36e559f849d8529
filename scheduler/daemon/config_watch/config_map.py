"""A ConfigMap that holds a configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """One version of a ConfigMap.

    Attributes:
        data: key -> text.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    data: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Self:
        """Read an object of the API server."""
        metadata = obj["metadata"]
        return cls(
            metadata["namespace"],
            metadata["name"],
            metadata.get("uid", ""),
            metadata.get("resourceVersion", ""),
            dict(obj.get("data") or {}),
        )
