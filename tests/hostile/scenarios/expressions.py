"""CEL expressions, regular expressions and quantities that are expensive to evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.testing.devices import exactly
from tests.hostile.scenario import scenario
from tests.hostile.scenarios.affinity import judged
from tests.hostile.scenarios.devices import claim, claimant, devices

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]


async def _selected(it: Stage, expression: str, *more: str) -> None:
    """A claim with selectors, and a pod that uses it."""
    await devices(it, it.n(4, least=2), 4)
    selectors = [{"cel": {"expression": each}} for each in (expression, *more)]
    await claim(it, "dear", exactly(selectors=selectors))
    await claimant(it, "dear", "dear")
    await it.innocents()
    it.expect(await it.wait_for("dear", judged, 60), "the claimant is not judged")


@scenario()
async def quantities(it: Stage) -> None:
    """A claim of 4 KB whose selectors hold 100 quantities with exponents of thousands"""
    large = 'isQuantity("1234567890123456789e9999")'
    await _selected(it, " && ".join([large] * it.n(100, least=2)))


@scenario()
async def regular_expressions(it: Stage) -> None:
    """A claim whose selectors match long texts by regular expressions that nest repetitions"""
    text = "a" * it.n(4000, least=100)
    await _selected(
        it, *(f'!"{text}".matches("^(a|a?){{{count}}}(a+)+b$")' for count in range(10, it.n(30, least=12)))
    )


@scenario()
async def comprehensions(it: Stage) -> None:
    """A claim whose selectors go through lists within lists"""
    items = "[" + ",".join(str(number) for number in range(it.n(40, least=5))) + "]"
    await _selected(it, f"{items}.all(a, {items}.all(b, {items}.all(c, a + b + c >= 0)))")
