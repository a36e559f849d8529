"""The objects of the cluster that hold configuration: a ConfigMap, and SchedulerProfiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

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


ACTIVE: Final = "Active"


class ProfileVersion(NamedTuple):
    """The spec of an object in one generation.

    Attributes:
        generation: number of the spec's version.
        spec: a profile as in KubeSchedulerConfiguration.
    """

    generation: int
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SchedulerProfile:
    """One SchedulerProfile object.

    Attributes:
        created: creation time, RFC 3339.
        now: the current spec.
        status: the status on the API server.
    """

    name: str
    uid: str
    created: str
    resource_version: str
    now: ProfileVersion
    status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Self:
        """Read an object of the API server."""
        metadata = obj["metadata"]
        return cls(
            metadata["name"],
            metadata.get("uid", ""),
            metadata.get("creationTimestamp", ""),
            metadata.get("resourceVersion", ""),
            ProfileVersion(metadata.get("generation", 0), obj.get("spec") or {}),
            obj.get("status") or {},
        )

    @property
    def kept(self) -> ProfileVersion | None:
        """The last version that was active, from the status."""
        kept = self.status.get("lastGood")
        return ProfileVersion(kept["generation"], kept["spec"]) if kept else None

    def condition(self, type_: str) -> Mapping[str, Any]:
        """Return one condition of the status; empty if it does not exist."""
        return next((each for each in self.status.get("conditions") or () if each.get("type") == type_), {})
