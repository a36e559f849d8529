"""Some objects arrive in a form that nobody can read, and watches in the middle of a line."""

from __future__ import annotations

from typing import ClassVar

from tests.faults.actors.actor import Actor
from tests.faults.stage import ODD_NODE_CPU, ODD_POD_CPU

_GARBLED = {
    "odd pods": (f'"{ODD_POD_CPU}"'.encode(), b'"a little"'),
    "odd nodes": (f'"{ODD_NODE_CPU}"'.encode(), b'["many"]'),
    "changes": (b'{"type":"MODIFIED","object"', b'{"type":"MODIFIED",'),
}


class Garbling(Actor):
    """Whatever is between the API server and the daemon."""

    name = "wire"
    pause_seconds: ClassVar[tuple[float, float]] = (2.0, 25.0)

    async def act(self) -> None:
        what = self.random.choice(list(_GARBLED))
        sent, received = _GARBLED[what]
        seconds = self.random.choice((0.5, 5.0, 30.0))
        self.tell(f"{what} cannot be read, for {seconds} s")
        self.stage.garbled[sent] = received
        self.stage.later(seconds, self._mend, sent)

    def calm(self) -> None:
        """Make sure that what arrived unreadable arrives again."""
        self.stage.garbled.clear()
        mended = {"metadata": {"labels": {"mended": "yes"}}}
        for node in self.stage.store.list("nodes"):
            if node["status"]["allocatable"]["cpu"] == ODD_NODE_CPU:
                self.stage.store.patch("nodes", node["metadata"]["name"], mended)
        for pod in self.stage.store.list("pods"):
            if pod["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu") == ODD_POD_CPU:
                self.stage.store.patch("pods", pod["metadata"]["name"], mended)

    def _mend(self, sent: bytes) -> None:
        self.stage.garbled.pop(sent, None)
