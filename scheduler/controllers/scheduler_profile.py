"""A SchedulerProfile: one profile of the scheduler as an object of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCEPTED: Final = "Accepted"
ACTIVE: Final = "Active"


class Version(NamedTuple):
    """What an object said at one time.

    Attributes:
        generation: counts the changes of its spec.
        spec: a profile as in KubeSchedulerConfiguration.
    """

    generation: int
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SchedulerProfile:
    """One object.

    Attributes:
        created: RFC 3339.
        now: what it says.
        status: as it is on the API server.
    """

    name: str
    uid: str
    created: str
    resource_version: str
    now: Version
    status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Self:
        """Read what the API server says."""
        metadata = obj["metadata"]
        return cls(
            metadata["name"],
            metadata.get("uid", ""),
            metadata.get("creationTimestamp", ""),
            metadata.get("resourceVersion", ""),
            Version(metadata.get("generation", 0), obj.get("spec") or {}),
            obj.get("status") or {},
        )

    @property
    def kept(self) -> Version | None:
        """The last version that was in force, by its status."""
        kept = self.status.get("lastGood")
        return Version(kept["generation"], kept["spec"]) if kept else None

    def condition(self, type_: str) -> Mapping[str, Any]:
        """Return one condition of its status; empty if it is not there."""
        return next((each for each in self.status.get("conditions") or () if each.get("type") == type_), {})
