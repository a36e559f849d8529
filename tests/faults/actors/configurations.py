"""Configurations are changed while the daemons run: for other good ones, and for some that break halfway."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from tests.faults.actors.actor import Actor
from tests.faults.faulty_plugins import TROUBLES, BrokenFromTheStart
from tests.support.reloads import offer_of, reloader_of

if TYPE_CHECKING:
    from tests.faults.daemon_runs import Life


class Configurations(Actor):
    """Whoever tunes the scheduler."""

    name = "tuning"
    pause_seconds: ClassVar[tuple[float, float]] = (3.0, 40.0)

    def begin(self) -> None:
        self._is_mending: set[asyncio.Task[None]] = set()

    async def act(self) -> None:
        life = self.one_of([life for life in self.stage.lives.running if not life.has_ended])
        if life is None:
            return
        plan = self.stage.plan
        troubles = [
            plugin.name for plugin in TROUBLES if plugin.name in plan.troubles or self.random.random() < 0.2
        ]
        text = self.random.choice(
            (
                plan.configuration,
                replace(plan, troubles=troubles).configuration,
                replace(plan, troubles=[]).configuration,
                # A profile that cannot be built, after those that can.
                replace(plan, broken=BrokenFromTheStart.name).configuration,
                replace(plan, broken="NoSuchPlugin").configuration,
                plan.configuration.replace(
                    "kubescheduler.config.k8s.io/v1", "kubescheduler.config.k8s.io/v9"
                ),
            )
        )
        await self._offer(life, text)

    def calm(self) -> None:
        """Put active what was planned, which is what is judged by in the end."""
        for life in self.stage.lives.running:
            task = asyncio.create_task(self._offer(life, self.stage.plan.configuration), name="tuning")
            self._is_mending.add(task)
            task.add_done_callback(self._is_mending.discard)

    async def _offer(self, life: Life, text: str) -> None:
        is_taken = await reloader_of(life.daemon, leader_elect=self.stage.plan.elects).take(offer_of(text))
        self.tell(
            f"{life.name} {'has taken' if is_taken else 'keeps what it had instead of'} a configuration"
        )
