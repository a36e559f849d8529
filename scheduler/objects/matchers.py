"""Matches label rules with very many requirements by the labels of an object: a tenant may create ten thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.selectors import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.objects.selectors import LabelRule, Requirement

    Matcher = Callable[[Mapping[str, str]], bool]

_FEW: Final = 8
"""Up to this number requirements are evaluated one by one."""


def matcher(rule: LabelRule) -> Matcher:
    """Return a function that matches labels as `LabelRule.matches` does.

    Its cost depends on the number of requirements or of labels, whichever is smaller.
    """
    requirements = rule.requirements
    return rule.matches if requirements is None or len(requirements) <= _FEW else _Many(requirements)


class _Many:
    """Requirements that must all match, by the keys of their labels."""

    __slots__ = ("_by_key", "_needed")

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        by_key: dict[str, list[Requirement]] = {}
        for requirement in merged(requirements, every=True):
            by_key.setdefault(requirement.key, []).append(requirement)
        self._by_key = by_key
        # The keys that an object must have.
        self._needed = {
            key for key, some in by_key.items() if not all(requirement.admits(None) for requirement in some)
        }

    def __call__(self, labels: Mapping[str, str]) -> bool:
        by_key = self._by_key
        if len(self._needed) > len(labels) or not self._needed <= labels.keys():
            return False
        keys = labels if len(labels) < len(by_key) else by_key
        for key in keys:
            value = labels.get(key)
            for requirement in by_key.get(key, ()) if value is not None else ():
                if not requirement.admits(value):
                    return False
        return True
