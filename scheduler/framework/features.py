"""Features of Kubernetes versions, for plugins that decide as a certain version does."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Features(Protocol):
    """The feature gates that are on, and the changes of the emulated Kubernetes version that have no gate."""

    @property
    def version(self) -> str:
        """The emulated version of Kubernetes, for example 1.36."""
        ...

    def enabled(self, name: str) -> bool:
        """Return whether a feature gate or a change is on.

        Raises:
            KeyError: no known version has it.
        """
        ...
