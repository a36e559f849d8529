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
        self.stage.garbled.clear()

    def _mend(self, sent: bytes) -> None:
        self.stage.garbled.pop(sent, None)
