"""A WebAssembly guest that goes wrong in every way it can: it traps, runs endlessly, talks nonsense, and cannot be built."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.faults.actors.actor import Actor
from tests.support import guests
from tests.support.reloads import offer_of, reloader_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.faults.daemon_runs import Life

_SHARE = """
    (global $calls (mut i32) (i32.const 0))
    (func $strikes (result i32)
      (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
      (i32.eqz (i32.rem_u (global.get $calls) (i32.const 7))))
"""
"""Says so at every seventh call of an instance."""
_WELL = """
    (func (export "filter") (result i32) (i32.const 0))
    (func (export "score") (result i64) (i64.const 0))
"""
_I32_POINTS = ("prefilter", "filter", "prescore", "reserve", "prebind")
_NONSENSE = 99
_HIGHEST = (2**31 - 1) << 32
_HELD = 4 << 32 | 3000
_LIMITS = {"runs endlessly": "10ms"}
"""Of real time: no other may meet its own only because the machine is busy."""


def _everywhere(then: str, *, i32: str, i64: str) -> str:
    """Return a guest that does something at every extension point, now and then."""
    functions = [
        *(f'(func (export "{name}") (result i32) {i32} (i32.const 0))' for name in _I32_POINTS),
        *(f'(func (export "{name}") (result i64) {i64} (i64.const 0))' for name in ("score", "permit")),
        *(f'(func (export "{name}") {then})' for name in ("unreserve", "postbind")),
    ]
    return f"{_SHARE}{''.join(functions)}"


@cache
def _modules() -> Mapping[str, bytes]:
    trap = "(if (call $strikes) (then unreachable))"
    loop = "(if (call $strikes) (then (loop $ever (br $ever))))"
    refuse = """(if (call $strikes) (then
        (call $reason (i32.const 16) (i32.const 15))
        (return (i32.const 2))))"""
    return {
        "is well": guests.wat(_WELL),
        "traps": guests.wat(_everywhere(trap, i32=trap, i64=trap)),
        "runs endlessly": guests.wat(f'{_SHARE}(func (export "filter") (result i32) {loop} (i32.const 0))'),
        "refuses": guests.wat(
            f'{_SHARE}(func (export "filter") (result i32) {refuse} (i32.const 0))', data="it does not want"
        ),
        "takes all memory": guests.GROWS,
        "talks nonsense": guests.wat(
            _everywhere(
                "(nop)",
                i32=f"(if (call $strikes) (then (return (i32.const {_NONSENSE}))))",
                i64=f"(if (call $strikes) (then (return (i64.const {_HIGHEST}))))",
            )
        ),
        "names nodes that are not there": guests.wat(
            """(func (export "prefilter") (result i32)
              (call $node_names (i32.const 16) (i32.const 7)) (i32.const 0))""",
            data="nowhere",
        ),
        "scores in no JSON": guests.wat(
            """(func (export "score") (result i64) (i64.const 0))
            (func (export "normalizescore") (result i32)
              (call $normalized (i32.const 16) (i32.const 4)) (i32.const 0))""",
            data="{{{{",
        ),
        "holds pods": guests.wat(f'(func (export "permit") (result i64) (i64.const {_HELD}))'),
        "traps when it begins": guests.wat(f'{_WELL}(func (export "_initialize") unreachable)'),
        "wants events that there are not": guests.wat(
            f"""{_WELL}(func (export "enqueue") (call $register (i32.const 16) (i32.const 7)))""",
            data="nothing",
        ),
        "is no module": b"broken",
    }


class Guests(Actor):
    """Whoever writes guests, and brings another one active whenever it compiles."""

    name = "guest"
    pause_seconds: ClassVar[tuple[float, float]] = (1.0, 15.0)

    def begin(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="guests-")
        for mood, module in _modules().items():
            self._path(mood).write_bytes(module)
        self._is_mending: set[asyncio.Task[None]] = set()
        self.stage.plan = replace(self.stage.plan, guest=str(self._path("is well")))

    async def act(self) -> None:
        life = self.one_of([life for life in self.stage.lives.running if not life.has_ended])
        if life is not None:
            await self._offer(life, self.random.choice(list(_modules())))

    def calm(self) -> None:
        for life in self.stage.lives.running:
            task = asyncio.create_task(self._offer(life, "is well"), name="guest")
            self._is_mending.add(task)
            task.add_done_callback(self._is_mending.discard)

    def end(self) -> None:
        self._folder.cleanup()

    def _path(self, mood: str) -> Path:
        return Path(self._folder.name) / f"{mood.replace(' ', '-')}.wasm"

    async def _offer(self, life: Life, mood: str) -> None:
        plan = replace(self.stage.plan, guest=str(self._path(mood)), guest_limit=_LIMITS.get(mood, "1s"))
        reloader = reloader_of(life.daemon, leader_elect=plan.elects)
        is_taken = await reloader.take(offer_of(plan.configuration))
        self.tell(f"{life.name} {'has' if is_taken else 'does not take'} one that {mood}")
