"""One running instance of a guest, with its own memory."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import wasmtime

from scheduler.extensions.wasm.call_context import CallContext, UnfinishedError
from scheduler.extensions.wasm.guest import GuestError, GuestTimeError, engine, ticker, ticks
from scheduler.extensions.wasm.host import GuestMemory, text
from scheduler.objects.wording import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.extensions.wasm.guest import Guest
    from scheduler.extensions.wasm.guest_source import GuestArgs
    from scheduler.extensions.wasm.host import Host

_MOST_TABLES = 4
_MOST_TABLE_ELEMENTS = 2**18
"""In each table; tables are not part of the guest's memory, and use 8 bytes for each element. The largest programs need a
tenth."""


class Instance:
    """A started guest that can be called until a call fails.

    Args:
        guest: the code.
        host: the functions that the guest imports.
        args: the limits.
        seconds: the longest time of the start.

    Raises:
        GuestError: it cannot be started: an import is unknown, a limit is too low, or `_start` failed or took too long.
    """

    def __init__(self, guest: Guest, host: Host, args: GuestArgs, seconds: float) -> None:
        self._host = host
        self._memory: GuestMemory | None = None
        self._store = wasmtime.Store(engine())
        self._store.set_limits(
            memory_size=args.memory_limit.size_bytes,
            table_elements=_MOST_TABLE_ELEMENTS,
            instances=1,
            tables=_MOST_TABLES,
            memories=1,
        )
        if guest.wants_wasi:
            wasi = wasmtime.WasiConfig()
            wasi.argv = list(args.argv)
            self._store.set_wasi(wasi)
        until = time.perf_counter() + seconds
        with self._running(CallContext(), "instantiate", seconds):
            instance = host.linker.instantiate(self._store, guest.module)
        exports = instance.exports(self._store)
        memory = exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self._memory = GuestMemory(self._store, memory)
        functions = {name: exports[name] for name in (*guest.exports, *guest.starts)}
        self._functions = {
            name: function for name, function in functions.items() if isinstance(function, wasmtime.Func)
        }
        for name in guest.starts:
            try:
                self.call(name, CallContext(), max(0.0, until - time.perf_counter()))
            except GuestError as error:
                cause = error.__cause__
                # Compilers differ in whether a successful program raises an exit.
                if not (isinstance(cause, wasmtime.ExitTrap) and cause.code == 0):
                    raise

    def call(self, export: str, scene: CallContext, seconds: float) -> int:
        """Call an exported function.

        Args:
            export: the function.
            scene: its input, and the receiver of its output.
            seconds: the longest time of the call.

        Returns:
            Its result as a signed number; 0 if it has none.

        Raises:
            GuestError: it failed, or took too long; the instance must not be called again.
            UnfinishedError: a host function took longer than `scene.until`; the instance must not be called again.
        """
        scene.forget_answers()
        with self._running(scene, export, seconds):
            result = self._functions[export](self._store)
        return result if isinstance(result, int) else 0

    @contextmanager
    def _running(self, scene: CallContext, what: str, seconds: float) -> Iterator[None]:
        call = self._host.call
        call.scene, call.memory, call.failure = scene, self._memory, None
        call.output.clear()
        self._store.set_epoch_deadline(ticks(seconds))
        begin = time.perf_counter()
        try:
            with ticker().ticking():
                yield
        except Exception as raised:  # noqa: BLE001 - traps, exits, and any error of the host functions
            # Nothing here refers to the error: its frames refer to the instance, whose memory must not wait for the garbage
            # collector.
            if isinstance(call.failure, UnfinishedError):
                raise UnfinishedError(str(call.failure)) from None
            raise _failed(
                call.failure or raised, what, bytes(call.output), time.perf_counter() - begin
            ) from bare(call.failure or raised)
        finally:
            call.scene, call.memory, call.failure = CallContext(), None, None


def bare(error: BaseException) -> BaseException:
    """Return an error without its traceback, and without those of its causes."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__
    return error


def _failed(error: Exception, what: str, output: bytes, seconds: float) -> GuestError:
    """Return the error to raise for a failed call."""
    written = f"{text(output).rstrip()}\n" if output else ""
    if isinstance(error, wasmtime.Trap) and error.trap_code is wasmtime.TrapCode.INTERRUPT:
        taken = Duration(int(seconds * 1000) * 1_000_000)
        return GuestTimeError(f"wasm: {what} error: {written}stopped: it took {taken}")
    return GuestError(f"wasm: {what} error: {written}{_told(error)}")


def _told(error: Exception) -> str:
    """Return why a call failed; for a trap without the backtrace, which is for the log."""
    if isinstance(error, GuestError):
        return str(error)
    if isinstance(error, wasmtime.WasmtimeError | wasmtime.Trap):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[-1] if lines else type(error).__name__
    return f"{type(error).__name__}: {error}"
