"""Scenarios: hostile actions of a tenant or an operator, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.hostile.stage import Stage

Json = dict[str, Any]

SCENARIOS: dict[str, Scenario] = {}


@dataclass(frozen=True)
class Scenario:
    """One scenario.

    Attributes:
        name: as given on the command line.
        words: what is done, for the table.
        attack: does it.
        profile: the profile under test, without its name.
        starts: whether a scheduler runs before the attack begins; else the attack starts it.
        is_ours: whether kube-scheduler has nothing of what is attacked.
        leader_changes: whether another process may lead in the end.
        forges_renewals: whether the attack writes the lease's renewTime, so that it says nothing.
        may_be_quarantined: whether attempts at the tenant's pods may go over budget.
        logged: errors that the log may have.
        definitions: of custom resources, by their files in `manifests/crds`.
    """

    name: str
    words: str
    attack: Callable[[Stage], Awaitable[None]]
    profile: Json = field(default_factory=dict)
    starts: bool = True
    is_ours: bool = False
    leader_changes: bool = False
    forges_renewals: bool = False
    may_be_quarantined: bool = False
    logged: frozenset[str] = frozenset()
    definitions: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What scenarios have in common that can share a scheduler."""
        return f"{not self.starts} {self.profile}"


def scenario(cases: Mapping[str, tuple[Any, ...]] | None = None, **options: Any) -> Callable[[Any], Any]:
    """Register a function as a scenario, or as one for each case: what follows its name -> its further arguments.

    The first paragraph of the docstring says in plain words what is done; it may hold the arguments as {0}, {1}, ...
    """

    def register(attack: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        words = " ".join((attack.__doc__ or "").split("\n\n")[0].split()).rstrip(".")
        for suffix, arguments in (cases or {"": ()}).items():
            name = "-".join(filter(None, (attack.__name__.replace("_", "-"), suffix)))
            assert name not in SCENARIOS, name
            played = partial(_with, attack, arguments)
            SCENARIOS[name] = Scenario(name, words.format(*arguments), played, **options)
        return attack

    return register


def _with(
    attack: Callable[..., Awaitable[None]], arguments: tuple[Any, ...], stage: Stage
) -> Awaitable[None]:
    return attack(stage, *arguments)
