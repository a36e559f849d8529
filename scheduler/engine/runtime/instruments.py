"""The interface for measurements of the runtime; plugins do not use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scheduler.framework.interface import ExtensionCall, ExtensionPoint
    from scheduler.framework.status import Code


class Instruments(Protocol):
    """Receives counts, and durations in seconds."""

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code, seconds: float) -> None:
        """Report the run of one extension point for one pod, with all its plugins."""
        ...

    def plugin(self, plugin: str, point: ExtensionPoint | ExtensionCall, code: Code, seconds: float) -> None:
        """Report one plugin call; reported in one cycle out of ten."""
        ...

    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None:
        """Report a call of a plugin at Filter or Score, because not all of its results were cached."""
        ...

    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None:
        """Report a loop over `nodes` nodes, of a plugin that reads one node at a time."""
        ...

    def permit_wait(self, code: Code, seconds: float) -> None:
        """Report the end of a wait at Permit, with the resulting code."""
        ...


class NoInstruments:
    """Discards all measurements, for `explain`, what-if and tests."""

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code, seconds: float) -> None: ...
    def plugin(
        self, plugin: str, point: ExtensionPoint | ExtensionCall, code: Code, seconds: float
    ) -> None: ...
    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None: ...
    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None: ...
    def permit_wait(self, code: Code, seconds: float) -> None: ...
