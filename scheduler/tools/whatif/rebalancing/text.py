"""Plans and judgements as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.tools.whatif.rebalancing.objectives import OBJECTIVES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.tools.whatif.rebalancing.execution import CarriedOut, Outcome
    from scheduler.tools.whatif.rebalancing.judging import JudgedEviction, Judgement
    from scheduler.tools.whatif.rebalancing.rebalancer import Plan, Step

_REASONS_SHOWN: Final = 10


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of a plan: the numbers before and after, the steps, and why other pods stay."""
    yield from _numbers(plan.before, plan.after)
    if not plan.steps:
        yield f"No eviction improves the objective {plan.objective}."
    for number, step in enumerate(plan.steps, 1):
        yield f"{number}. {_step(step)}"
    if not plan.is_complete:
        yield f"The search stopped at its limit after {plan.tries} decisions: --max-evictions, --tries."
    if plan.not_evicted:
        yield "Pods that were considered and stay:"
    for why, count in [*plan.not_evicted.items()][:_REASONS_SHOWN]:
        yield f"  {count}: {why}"


def judgement_lines(judgement: Judgement) -> Iterator[str]:
    """Yield the lines of a judgement: the result of each eviction, and the numbers before and after all of them."""
    for each in judgement.evictions:
        yield f"line {each.line}: {_judged(each)}"
    yield from _numbers(judgement.before, judgement.after)


def _numbers(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[str]:
    for name, objective in OBJECTIVES.items():
        yield f"{objective.title}: {objective.shown(before[name])} -> {objective.shown(after[name])}"


def _step(step: Step) -> str:
    equal = f", one of {step.equal_nodes} equal nodes" if step.equal_nodes > 1 else ""
    scores = _scores(step.from_node, step.score, step.old_score)
    return f"{step.pod}: {step.from_node} -> {step.to_node}{equal} ({step.why}; {scores})"


def _judged(judged: JudgedEviction) -> str:
    moved = f"{judged.from_node} -> {judged.to_node}" if judged.to_node else judged.from_node
    scores = (
        f"; {_scores(judged.from_node, judged.score, judged.old_score)}" if judged.score is not None else ""
    )
    return f"{judged.result}: {judged.pod}: {moved} ({judged.why}{scores})"


def _scores(from_node: str, score: int | None, old_score: int | None) -> str:
    if score is None:
        return "the only feasible node"
    if old_score is None:
        return f"score {score}, and {from_node} is not feasible"
    return f"score {score}, and {old_score} on {from_node}"


def carried_out_line(each: CarriedOut) -> str:
    """Return an eviction that was carried out as a line."""
    unexpected = "" if each.node == each.expected_node else f", expected on {each.expected_node}"
    return (
        f"evicted {each.pod} from {each.from_node}: {each.replacement} is ready on {each.node} after"
        f" {each.seconds:g} s{unexpected}"
    )


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """Yield the lines of the end of an execution; the evictions are shown before."""
    yield f"Carried out {len(outcome.carried_out)} of {len(outcome.plan.steps)} evictions."
    yield from _numbers(outcome.plan.before, outcome.now)
    if outcome.stopped is not None:
        yield f"Stopped: {outcome.stopped}"
