"""Which evictions PodDisruptionBudgets refuse now.

Source:
    kube-apiserver v1.36, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from scheduler.errors import ObjectError
from scheduler.kube.client.resources import POD_DISRUPTION_BUDGETS
from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.selectors import LabelRule, LabelSelector, SelectorError, parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.objects.pod import PodInfo

BUDGETS: Final = f"{POD_DISRUPTION_BUDGETS.api_version}/{POD_DISRUPTION_BUDGETS.plural}"
"""The kind of the budgets, as in plugins' `needs`."""


class Refused(NamedTuple):
    """Why budgets refuse the eviction of a pod.

    Attributes:
        budgets: the names of the budgets.
        why: the rest of a sentence about the pod.
    """

    budgets: list[str]
    why: str


class EvictionBudgets:
    """The budgets of a cluster, and the evictions that count against them.

    Args:
        budgets: `namespace/name` -> PodDisruptionBudget as JSON.

    Raises:
        ObjectError: a PodDisruptionBudget is malformed.
    """

    def __init__(self, budgets: Mapping[str, bytes]) -> None:
        self._budgets: dict[str, list[tuple[LabelRule, _Budget]]] = {}  # by namespace
        for key, raw in sorted(budgets.items()):
            budget = _read_budget(key, raw)
            try:
                rule = parse_label_selector(budget.spec.selector if budget.spec else None)
            except SelectorError:
                continue  # as for the API server, it covers no pod
            self._budgets.setdefault(key.partition("/")[0], []).append((rule, budget))
        self._used: Counter[tuple[str, str]] = Counter()  # namespace and name of a budget -> evictions

    def note(self, pod: PodInfo) -> None:
        """Count an eviction against the budgets of the pod, for evictions that do not wait for each other."""
        self._used.update((pod.namespace, budget.metadata.name) for budget in self._covering(pod))

    def refusal(self, pod: PodInfo) -> Refused | None:
        """Return why the eviction of a pod is refused now; None if it is not."""
        budgets = [*self._covering(pod)]
        names = [budget.metadata.name for budget in budgets]
        if len(budgets) > 1:
            text = f"has several PodDisruptionBudgets ({' and '.join(names)}), and the API server refuses its eviction"
            return Refused(names, text)
        for budget in budgets:
            name, status = budget.metadata.name, budget.status or _BudgetStatus()
            if status.observed_generation < budget.metadata.generation:
                return Refused(names, f"has a PodDisruptionBudget ({name}) whose status is not computed yet")
            allowed = status.disruptions_allowed
            if self._used[pod.namespace, name] >= allowed:
                counted = f"{allowed} eviction{'' if allowed == 1 else 's'}"
                return Refused(names, f"has a PodDisruptionBudget ({name}) that allows {counted} now")
        return None

    def _covering(self, pod: PodInfo) -> Iterator[_Budget]:
        """Yield the budgets that cover a pod; the API server asks none for a pod without labels."""
        for rule, budget in self._budgets.get(pod.namespace, ()) if pod.labels else ():
            if rule.matches(pod.labels):
                yield budget


class _BudgetSpec(ApiStruct, frozen=True):
    selector: LabelSelector | None = None


class _BudgetStatus(ApiStruct, frozen=True):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class _Budget(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _BudgetSpec | None = None
    status: _BudgetStatus | None = None


_decode_budget = msgspec.json.Decoder(_Budget).decode


def _read_budget(key: str, raw: bytes) -> _Budget:
    try:
        return _decode_budget(raw)
    except msgspec.ValidationError as error:
        raise ObjectError("PodDisruptionBudget", key, "", str(error)) from error
