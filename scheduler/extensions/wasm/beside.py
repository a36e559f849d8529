"""Calls of guests that take longer than a time slice of the event loop: each runs in a separate thread.

wasmtime lets other threads run while a guest runs. The two threads alternate only in functions of the host.
"""

from __future__ import annotations

import threading
from math import ceil
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from scheduler.extensions.wasm.guest import GuestError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")

_WAIT_SECONDS: Final = 0.002
"""How long one step waits for the thread."""
_MORE_SECONDS: Final = 0.1
"""The grace period after a guest's time limit."""
_LOOK_SECONDS: Final = 0.1
"""The interval at which a thread that waits for the event loop checks whether its call was abandoned."""


class Beside(Generic[T]):
    """One call in a thread.

    Args:
        call: called in the thread, with a function as `Scene.in_loop`.
    """

    def __init__(self, call: Callable[[Callable[[Callable[[], bytes]], bytes]], T]) -> None:
        self._call = call
        self._asked: SimpleQueue[_Question | None] = SimpleQueue()  # None: the call has ended
        self._has_ended = self._is_given_up = False
        self._result: list[T] = []
        self._error: BaseException | None = None

    def steps(self, seconds: float) -> Generator[None, None, T]:
        """Make the call; return its result, or raise its error.

        The number of steps depends only on `seconds`, so that a recorded run can be replayed.

        Args:
            seconds: the longest time of the call.
        """
        threading.Thread(target=self._run, name="wasm-guest", daemon=True).start()
        try:
            for _ in range(ceil((seconds + _MORE_SECONDS) / _WAIT_SECONDS)):
                self._serve()
                yield
            while not self._has_ended:
                self._serve()
        finally:
            self._is_given_up = True
            error, self._error = self._error, None  # its frames refer to this object
        if error is not None:
            raise error
        return self._result[0]

    def _serve(self) -> None:
        """Wait briefly for the thread, and call a function in the event loop if it requests one."""
        if self._has_ended:
            return
        try:
            question = self._asked.get(timeout=_WAIT_SECONDS)
        except Empty:
            return
        if question is None:
            self._has_ended = True
        else:
            question.answer()

    # In the thread.

    def _run(self) -> None:
        try:
            self._result.append(self._call(self._in_loop))
        except BaseException as error:  # noqa: BLE001  # raised in the event loop
            if not self._is_given_up:
                self._error = error
        finally:
            self._asked.put(None)

    def _in_loop(self, function: Callable[[], bytes]) -> bytes:
        question = _Question(function)
        self._asked.put(question)
        while not question.is_answered.wait(_LOOK_SECONDS):
            if self._is_given_up:
                raise GuestError("the attempt is over")
        if question.error is not None:
            raise question.error
        return question.result


class _Question:
    """A function that a thread wants called in the event loop."""

    def __init__(self, function: Callable[[], bytes]) -> None:
        self._function = function
        self.is_answered = threading.Event()
        self.result = b""
        self.error: Exception | None = None

    def answer(self) -> None:
        try:
            self.result = self._function()
        except Exception as error:  # noqa: BLE001  # raised in the thread
            self.error = error
        self.is_answered.set()
