"""Possible preemptions for a pod, as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.tools.whatif.text_lines import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.engine.cycle.explanation import Explanation

_NODES_SHOWN = 3
_VICTIMS_SHOWN = 10


def preemption_lines(explanation: Explanation, *, all_nodes: bool) -> Iterator[str]:
    """Yield a sentence for each node on which preemption would make a pod fit, the best first."""
    preemption = explanation["preemption"] or {"candidates": {}, "nominated": []}
    candidates, best = preemption["candidates"], preemption["nominated"]
    going = explanation.get("nominates")
    if going in candidates:
        yield f"Nominated node: {going}, {_by_evicting(candidates[going], all_nodes=all_nodes)}."
    others = [name for name in dict.fromkeys([*best, *sorted(candidates)]) if name != going]
    shown = others if all_nodes else [name for name in others if name in best][:_NODES_SHOWN]
    for name in shown:
        could = "Preemption could use" if going is None else "Preemption could also use"
        yield f"{could} {name}, {_by_evicting(candidates[name], all_nodes=all_nodes)}."
    if len(others) > len(shown):
        yield f"Preemption could use {len(others) - len(shown)} more nodes: --all-nodes shows them."


def _by_evicting(candidate: Mapping[str, Any], *, all_nodes: bool) -> str:
    victims, violations = candidate["victims"], candidate["pdbViolations"]
    who = some(victims, None if all_nodes else _VICTIMS_SHOWN) or "no pods"
    against = f", violating the PodDisruptionBudgets of {violations} of them" if violations else ""
    return f"evicting {who}{against}"
