"""In what our outcomes are others than kube-scheduler's on purpose, and why; docs/groups.md says it at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.conformance.groups import Difference

DEVIATIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {}
"""Case -> what differs -> how it is here, and why."""


def unexpected(
    case: str,
    differences: Iterable[Difference],
    deviations: Mapping[str, Mapping[str, tuple[str, str]]] = DEVIATIONS,
) -> list[str]:
    """Return what differs without being listed, or otherwise than listed, and what is listed and does not differ."""
    listed = dict(deviations.get(case, {}))
    told = []
    for each in differences:
        has, _ = listed.pop(each.what, (None, ""))
        if has != each.has:
            told.append(str(each))
    told.extend(f"{what}: is listed as a deviation, and is as recorded" for what in listed)
    return told
