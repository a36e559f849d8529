"""Results of expressions, evaluated once for all devices that an expression cannot distinguish."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from plugins.dynamic_resources.cel import CelDevice, CELError, CelSelector, values_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from plugins.dynamic_resources.structured.pools import PoolDevice

_KEPT_VALUES = 3_000_000
"""The maximum number of devices with cached results; each is at least a pointer."""
EVALUATIONS_OF_A_STEP: Final = 16
"""The number of evaluations in one step of work, unless one device needs more."""


class Evaluations:
    """Caches the results of expressions, and clears them when they become too large.

    Attributes:
        count: how many evaluations there were.
    """

    def __init__(self) -> None:
        self.count = 0
        self._kept = 0
        self._filled: list[dict[Any, bool | CELError]] = []

    def verdict(self, device: PoolDevice, compiled: CelSelector | CELError) -> bool | CELError:
        """Return whether an expression selects a device; it is evaluated once for all devices that it cannot distinguish."""
        if isinstance(compiled, CELError):
            return compiled
        if device.is_clear and compiled.facts is not None:
            values = values_of(compiled.facts, device.id.driver, device.device)
            if values is not None:
                verdict = compiled.said.get(values)
                if verdict is None:
                    verdict = self._evaluated(device, compiled, compiled.said, values, len(compiled.facts))
                return verdict
        verdict = device.verdicts.get(compiled)
        if verdict is None:
            verdict = self._evaluated(device, compiled, device.verdicts, compiled, 1)
        return verdict

    def _evaluated(
        self,
        device: PoolDevice,
        compiled: CelSelector,
        said: dict[Any, bool | CELError],
        key: Hashable,
        size: int,
    ) -> bool | CELError:
        self.count += 1
        verdict: bool | CELError
        try:
            verdict = compiled.matches(_subject(device))
        except CELError as error:
            verdict = error.with_traceback(None)
        if self._kept > _KEPT_VALUES:
            for each in self._filled:
                each.clear()
            self._filled.clear()
            self._kept = 0
        if not said:
            self._filled.append(said)
        said[key] = verdict
        self._kept += 8 + size
        return verdict


@lru_cache(maxsize=1)
def _subject(device: PoolDevice) -> CelDevice:
    """Return a device in the form for expressions; the next expression usually needs the same one."""
    return CelDevice(device.id.driver, device.device)


evaluations: Final = Evaluations()
"""The evaluations that all questions share."""
