"""The comparison of a case covers all its fields."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from plugins.registry import IN_TREE
from scheduler.framework.reasons import SCHEDULER_CODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.conformance.corpus import Case

FAMILIES: Mapping[str, int] = {
    **dict.fromkeys(("resources", "taints", "nodeaffinity", "ports", "images", "spread", "interpod"), 30),
    **dict.fromkeys(("volumes", "preemption", "dra"), 30),
    "mixed": 5,
    "profiles": 15,
    "sequence": 15,
}
"""Family -> how many cases it has."""

_NOBODY: Mapping[str, Any] = {"pod": "nobody"}


@dataclass(frozen=True)
class Mismatch:
    """One thing that differs.

    Attributes:
        pod: whose explanation.
        node: whose verdict; "" for what is said of the pod as a whole.
        what: the field, or the plugin whose score it is.
    """

    pod: str
    node: str
    what: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        where = f"{self.pod} on {self.node}" if self.node else self.pod
        return f"{where}, {self.what}:\n    expected {self.expected}\n    got      {self.got}"


def compare(case: Case, explanations: Sequence[Mapping[str, Any]]) -> list[Mismatch]:
    """Return everything in which explanations differ from what a case expects."""
    mismatches = []
    for expected, got in zip_longest(case.expected, explanations, fillvalue=_NOBODY):
        if expected["pod"] != got["pod"]:
            mismatches.append(Mismatch(expected["pod"], "", "pod", expected["pod"], got["pod"]))
            break  # what follows is compared with somebody else's
        mismatches.extend(_compare_pod(expected, got))
    return mismatches


def report(mismatches: Sequence[Mismatch], limit: int = 20) -> str:
    """Return mismatches as text, so many at most."""
    lines = [str(mismatch) for mismatch in mismatches[:limit]]
    if len(mismatches) > limit:
        lines.append(f"and {len(mismatches) - limit} more")
    return "\n".join(lines)


def _compare_pod(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[Mismatch]:
    pod = expected["pod"]
    if expected["preFilter"] != _without_details(got["preFilter"]):
        yield Mismatch(pod, "", "preFilter", expected["preFilter"], got["preFilter"])
    for field in ("result", "preFilterNodes", "best", "chosen", "preemption"):
        if expected.get(field) != got.get(field) and not _is_not_recorded(field, expected, got):
            yield Mismatch(pod, "", field, expected.get(field), got.get(field))
    if expected["result"] != "error" and expected["message"] != got["message"]:
        yield Mismatch(pod, "", "message", expected["message"], got["message"])
    for node in sorted({*expected["nodes"], *got["nodes"]}):
        yield from _compare_node(pod, node, expected["nodes"].get(node), got["nodes"].get(node))
    for node, refusal in {"": got["preFilter"] or {}, **got["nodes"]}.items():
        if undeclared := set(refusal.get("reasonCodes", ())) - declared_codes(refusal.get("plugin", "")):
            yield Mismatch(pod, node, "reason codes", "declared ones", sorted(undeclared))


def declared_codes(plugins: str) -> set[str]:
    """Return the reason codes of plugins, whose names are separated by commas, and those of the scheduler."""
    found = [IN_TREE[name].reason_codes for name in plugins.split(",") if name in IN_TREE]
    return {*SCHEDULER_CODES, *(code for codes in found for code in codes)}


def _without_details(refusal: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Leave out what kube-scheduler does not say."""
    left_out = {"details", "reasonCodes"}
    return refusal and {name: value for name, value in refusal.items() if name not in left_out}


def _is_not_recorded(field: str, expected: Mapping[str, Any], got: Mapping[str, Any]) -> bool:
    """Whether a recording says nothing of a field: only of sequences it has which nodes were best."""
    if field == "best":
        return "chosen" not in expected and "chosen" not in got
    return field == "preemption" and _was_not_asked(expected, got)


def _was_not_asked(expected: Mapping[str, Any], got: Mapping[str, Any]) -> bool:
    """Whether PostFilter ended before DefaultPreemption's turn; the recording looked for room all the same."""
    ended = str(expected["message"]).endswith(". not found")
    return ended and got["preemption"] is None and not expected["preemption"]["candidates"]


def _compare_node(
    pod: str,
    node: str,
    expected: Mapping[str, Any] | None,
    got: Mapping[str, Any] | None,
) -> Iterator[Mismatch]:
    if expected is None or got is None or expected["feasible"] != got["feasible"]:
        yield Mismatch(pod, node, "verdict", expected, got)
        return
    if not expected["feasible"]:
        if _refusal(expected) != _refusal(got):
            yield Mismatch(pod, node, "refusal", expected, got)
        return
    ours, theirs = got.get("scores", {}), expected.get("scores", {})
    for plugin in sorted({*ours, *theirs}):
        if ours.get(plugin) != theirs.get(plugin):
            yield Mismatch(pod, node, plugin, theirs.get(plugin), ours.get(plugin))
    if expected.get("total") != got.get("total"):
        yield Mismatch(pod, node, "total", expected.get("total"), got.get("total"))


def _refusal(verdict: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a refusal is compared: of an error not the words."""
    reasons = () if verdict["code"] == "Error" else tuple(verdict["reasons"])
    return verdict["plugin"], verdict["code"], reasons
