"""The common parts of all actors."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.daemon_runs import Life
    from tests.faults.stage import Stage


class Actor(ABC):
    """Does something now and then while the storm lasts.

    Attributes:
        name: as in the story.
        pause_seconds: the shortest and the longest time between two acts, for a storm of ordinary strength.
        stage: where.
        random: its own.
    """

    name: ClassVar[str]
    pause_seconds: ClassVar[tuple[float, float]]

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.random = stage.random_of(self.name)
        self._count = 0  # of what it has created

    def begin(self) -> None:
        """Set up, before any daemon runs."""

    @abstractmethod
    async def act(self) -> None:
        """Do one thing."""

    def calm(self) -> None:
        """The storm is over: mend what would not mend itself."""

    def check(self, life: Life) -> None:
        """Check what must hold of its objects in the end, by what the leader knows and what the server says."""

    def end(self) -> None:
        """The campaign is over: leave nothing running."""

    async def run(self, until: float) -> None:
        """Act until the loop's time comes to `until`."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.random.uniform(*self.pause_seconds) / self.stage.plan.pace)
            if loop.time() >= until:
                return
            await self.act()

    def tell(self, what: str) -> None:
        """Note in the story what is done."""
        act = sys._getframe(1).f_code.co_name.strip("_")
        self.stage.acts[f"{self.name}: {act}"] += 1
        self.stage.story.tell(self.name, what)

    def weighted(self, *choices: tuple[int, Callable[[], None]]) -> Callable[[], None]:
        """Draw one of several acts."""
        weights, acts = zip(*choices, strict=True)
        drawn: Callable[[], None] = self.random.choices(acts, weights)[0]
        return drawn

    def one_of(self, candidates: list[Any]) -> Any:
        """Draw one, None where there is none."""
        return self.random.choice(candidates) if candidates else None
