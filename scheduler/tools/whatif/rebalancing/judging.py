"""Judges evictions of another program: where the scheduler would place each pod again, and whether that is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from scheduler.tools.whatif.rebalancing.objectives import NO_GAIN
from scheduler.tools.whatif.rebalancing.rebalancer import Refusal, gain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.tools.whatif.rebalancing.eviction_list import Listed
    from scheduler.tools.whatif.rebalancing.rebalancer import Rebalancer

BETTER: Final = "better"
SAME: Final = "same"
WORSE: Final = "worse"
RETURNS: Final = "returns"
PENDING: Final = "pending"
REFUSED: Final = "refused"

ACCEPTED: Final = frozenset({BETTER, SAME})
"""Results of evictions that do no harm and are not in vain."""


class JudgedEviction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one eviction.

    Attributes:
        line: its line in the list.
        pod: `namespace/name`.
        from_node: its node.
        to_node: the node of its replacement; None if it is not evicted, or its replacement is pending.
        result: `better`, `same` or `worse` by the objective; `returns` to its node; `pending`; or `refused`, because the
            pod must not be evicted.
        why: the number of the objective before and after, or why the pod stays or is pending.
        score: the total score of the new node; None if it was not scored.
        old_score: the total score of its present node; None if that node is not feasible or was not scored.
    """

    line: int
    pod: str
    from_node: str
    to_node: str | None
    result: str
    why: str
    score: int | None = None
    old_score: int | None = None


class Judgement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The results of a list of evictions.

    Attributes:
        objective: name of the objective.
        before: name of each objective -> its number now.
        after: the same after the evictions that are not refused.
        evictions: the results, in the order of the list.
    """

    objective: str
    before: dict[str, float]
    after: dict[str, float]
    evictions: list[JudgedEviction]


def judge(rebalancer: Rebalancer, name: str, listed: Iterable[Listed]) -> Judgement:
    """Evict pods one after another in a copy of the cluster.

    The evictions do not wait for each other, so all of them count against the budgets. They count for the limits of evictions
    as well.

    Args:
        rebalancer: the copy.
        name: name of its objective.
        listed: pods on nodes.
    """
    before = rebalancer.numbers()
    evictions = [_judged(rebalancer, each) for each in listed]
    return Judgement(objective=name, before=before, after=rebalancer.numbers(), evictions=evictions)


def _judged(rebalancer: Rebalancer, listed: Listed) -> JudgedEviction:
    pod, objective = rebalancer.pods[listed.pod], rebalancer.objective

    def result(text: str, why: str, to_node: str | None = None) -> JudgedEviction:
        return JudgedEviction(
            line=listed.line,
            pod=pod.key,
            from_node=pod.node_name,
            to_node=to_node,
            result=text,
            why=why,
        )

    why_not = rebalancer.evictable.why_not(pod)
    if why_not:
        return result(REFUSED, why_not)
    before = objective.value()
    moved = rebalancer.move(pod)
    rebalancer.evictable.budgets.note(pod)
    if isinstance(moved, Refusal):
        if moved.pending:
            rebalancer.remove(pod)
            return result(PENDING, moved.text)
        rebalancer.note(pod)
        return result(RETURNS, moved.text, pod.node_name)
    after = objective.value()
    better = WORSE if after > before + NO_GAIN else BETTER if after < before - NO_GAIN else SAME
    judged = result(better, gain(objective, before, after), moved.node_name)
    return msgspec.structs.replace(judged, score=moved.score, old_score=moved.old_score)
