"""What the runtime tells whoever measures it; plugins know nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from scheduler.framework.points import ExtensionPoint
    from scheduler.framework.status import Code


class Instruments(Protocol):
    """Receives durations, in seconds, and counts."""

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code, seconds: float) -> None:
        """One extension point was run for one pod, all its plugins together."""
        ...

    def plugin(self, plugin: str, point: ExtensionPoint, code: Code, seconds: float) -> None:
        """One plugin was run at one point; told in one cycle out of ten."""
        ...

    def failed(self, plugin: str, point: ExtensionPoint) -> None:
        """One plugin failed at one point: it said so, raised, or gave a malformed answer."""
        ...

    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None:
        """One plugin was asked at Filter or Score, because its verdicts were not all kept."""
        ...

    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None:
        """A plugin that looks at nodes one by one was run over so many of them."""
        ...

    def permit_wait(self, code: Code, seconds: float) -> None:
        """A pod held at Permit went on, or did not."""
        ...


class NoInstruments:
    """Measures nothing: for `explain`, what-if and tests."""

    def extension_point(self, profile: str, point: ExtensionPoint, code: Code, seconds: float) -> None: ...
    def plugin(self, plugin: str, point: ExtensionPoint, code: Code, seconds: float) -> None: ...
    def failed(self, plugin: str, point: ExtensionPoint) -> None: ...
    def evaluated(self, profile: str, plugin: str, point: ExtensionPoint) -> None: ...
    def node_loop(self, plugin: str, point: ExtensionPoint, nodes: int, seconds: float) -> None: ...
    def permit_wait(self, code: Code, seconds: float) -> None: ...
