"""Some objects arrive undecodable, changes are truncated, and watches repeat events."""

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
        if self.random.random() < 0.3:
            self._repeat()
        else:
            self._garble()

    def _repeat(self) -> None:
        seconds = self.random.choice((0.5, 5.0, 30.0))
        self.tell(f"what watches bring comes twice, for {seconds} s")
        self.stage.repetition = self.random.choice((0.1, 1.0))
        self.stage.later(seconds, self._repeat_no_more)

    def _repeat_no_more(self) -> None:
        self.stage.repetition = 0.0

    def _garble(self) -> None:
        what = self.random.choice(list(_GARBLED))
        sent, received = _GARBLED[what]
        seconds = self.random.choice((0.5, 5.0, 30.0))
        self.tell(f"{what} cannot be read, for {seconds} s")
        self.stage.garbled[sent] = received
        self.stage.later(seconds, self._mend, sent)

    def calm(self) -> None:
        """Make sure that what arrived unreadable arrives again."""
        self._repeat_no_more()
        for sent, _ in _GARBLED.values():
            self._mend(sent)
        mended = {"metadata": {"labels": {"mended": "yes"}}}
        for node in self.stage.store.list("nodes"):
            if node["status"]["allocatable"]["cpu"] == ODD_NODE_CPU:
                self.stage.store.patch("nodes", node["metadata"]["name"], mended)
        for pod in self.stage.store.list("pods"):
            if pod["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu") == ODD_POD_CPU:
                self.stage.store.patch("pods", pod["metadata"]["name"], mended)

    def _mend(self, sent: bytes) -> None:
        self.stage.garbled.pop(sent, None)
