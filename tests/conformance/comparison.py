"""What is compared, and what cannot be yet.

Plugins of kube-scheduler's default profile that are not here yet take cases out, never single verdicts out of a case:
a case is not judged at all where such a plugin refuses a node or a pod, or gives a node a score other than 0. Where
it gives 0 to every node of a case it changes neither totals nor choices; only then its zeros are left out and the
case is judged. So nothing of a plugin that is here is ever excused by one that is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from scheduler.app.in_tree import IN_TREE
from scheduler.configuration.default_plugins import DEFAULT_PLUGINS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.conformance.corpus import Case

PARTIAL: frozenset[str] = frozenset()
"""Plugins that are here for pods that do not need them: what they say of those counts, what they refuse does not."""

MISSING = (
    frozenset(plugin.name for plugin in DEFAULT_PLUGINS.multi_point.enabled) - frozenset(IN_TREE) | PARTIAL
)
"""The default plugins that are not here yet, or not whole."""

FAMILIES: Mapping[str, frozenset[str]] = {
    "resources": frozenset(),
    "taints": frozenset(),
    "nodeaffinity": frozenset(),
    "ports": frozenset(),
    "images": frozenset(),
    "spread": frozenset({"PodTopologySpread"}),
    "interpod": frozenset({"InterPodAffinity"}),
    "volumes": frozenset({"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"}),
    "preemption": frozenset({"DefaultPreemption"}),
    "dra": frozenset({"DynamicResources"}),
    "mixed": frozenset(),
    "profiles": frozenset(),
    "sequence": frozenset(),
}
"""Family -> the plugins it is about; it is not judged before they are all here."""

_NOBODY: Mapping[str, Any] = {"pod": "nobody"}
_POST_FILTERS = frozenset({"DynamicResources", "DefaultPreemption"})
_POST_FILTER_PART = re.compile(
    r"(?<=\.) (no new claims to deallocate|still not schedulable|preemption: |not found).*", re.DOTALL
)


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


def not_judged(case: Case, missing: frozenset[str] = MISSING) -> str:
    """Return why a case cannot be judged yet; "" if it can."""
    needed = (FAMILIES[case.family] | set(_plugins_that_matter(case))) & missing
    return f"not built yet: {', '.join(sorted(needed))}" if needed else ""


def compare(
    case: Case, explanations: Sequence[Mapping[str, Any]], missing: frozenset[str] = MISSING
) -> list[Mismatch]:
    """Return everything in which explanations differ from what a case expects."""
    mismatches = []
    for expected, got in zip_longest(case.expected, explanations, fillvalue=_NOBODY):
        if expected["pod"] != got["pod"]:
            mismatches.append(Mismatch(expected["pod"], "", "pod", expected["pod"], got["pod"]))
            break  # what follows is compared with somebody else's
        mismatches.extend(_compare_pod(expected, got, missing))
    return mismatches


def report(mismatches: Sequence[Mismatch], limit: int = 20) -> str:
    """Return mismatches as text, so many at most."""
    lines = [str(mismatch) for mismatch in mismatches[:limit]]
    if len(mismatches) > limit:
        lines.append(f"and {len(mismatches) - limit} more")
    return "\n".join(lines)


def _plugins_that_matter(case: Case) -> Iterator[str]:
    """Yield the plugins that refuse anything in a case, or score any node above 0."""
    for entry in case.expected:
        if entry["preFilter"] is not None:
            yield entry["preFilter"]["plugin"]
        for verdict in entry["nodes"].values():
            if verdict["feasible"]:
                yield from (plugin for plugin, score in verdict.get("scores", {}).items() if score)
            else:
                yield from verdict["plugin"].split(",")


def _compare_pod(
    expected: Mapping[str, Any], got: Mapping[str, Any], missing: frozenset[str]
) -> Iterator[Mismatch]:
    pod = expected["pod"]
    fields = ["result", "preFilter", "preFilterNodes", "best", "chosen"]
    if "DefaultPreemption" not in missing:
        fields.append("preemption")
    for field in fields:
        if expected.get(field) != got.get(field) and not (
            field == "preemption" and _was_not_asked(expected, got)
        ):
            yield Mismatch(pod, "", field, expected.get(field), got.get(field))
    if expected["result"] != "error" and not is_same_message(expected["message"], got["message"], missing):
        yield Mismatch(pod, "", "message", expected["message"], got["message"])
    for node in sorted({*expected["nodes"], *got["nodes"]}):
        yield from _compare_node(pod, node, expected["nodes"].get(node), got["nodes"].get(node), missing)


def _was_not_asked(expected: Mapping[str, Any], got: Mapping[str, Any]) -> bool:
    """Whether PostFilter ended before DefaultPreemption's turn; the recording looked for room all the same."""
    ended = str(expected["message"]).endswith(". not found")
    return ended and got["preemption"] is None and not expected["preemption"]["candidates"]


def is_same_message(expected: str | None, got: str | None, missing: frozenset[str]) -> bool:
    """Compare messages; before all PostFilter plugins are here, without what PostFilter adds."""
    if expected is None or got is None or not (missing - PARTIAL) & _POST_FILTERS:
        return expected == got
    return _POST_FILTER_PART.sub("", expected) == _POST_FILTER_PART.sub("", got)


def _compare_node(
    pod: str,
    node: str,
    expected: Mapping[str, Any] | None,
    got: Mapping[str, Any] | None,
    missing: frozenset[str],
) -> Iterator[Mismatch]:
    if expected is None or got is None or expected["feasible"] != got["feasible"]:
        yield Mismatch(pod, node, "verdict", expected, got)
        return
    if not expected["feasible"]:
        if _refusal(expected) != _refusal(got):
            yield Mismatch(pod, node, "refusal", expected, got)
        return
    ours, theirs = got.get("scores", {}), expected.get("scores", {})
    theirs = {plugin: score for plugin, score in theirs.items() if plugin not in missing}
    for plugin in sorted({*ours, *theirs}):
        if ours.get(plugin) != theirs.get(plugin):
            yield Mismatch(pod, node, plugin, theirs.get(plugin), ours.get(plugin))
    if expected.get("total") != got.get("total"):
        yield Mismatch(pod, node, "total", expected.get("total"), got.get("total"))


def _refusal(verdict: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a refusal is compared: of an error not the words."""
    reasons = () if verdict["code"] == "Error" else tuple(verdict["reasons"])
    return verdict["plugin"], verdict["code"], reasons
