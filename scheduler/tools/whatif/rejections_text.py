"""The nodes that do not fit a pod: by plugin and reason, with details of each node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.framework.status import Code
from scheduler.tools.whatif.text_lines import filled, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Kinds = dict[tuple[str, ...] | None, list[str]]
"""Details from a plugin -> the nodes that have them; None for nodes without details."""

_NAMES_SHOWN = 3
_KINDS_SHOWN = 3
_NOT_ANY_MORE = "the reason no longer applies; it did at the time of the decision"
_CODES = {
    Code.UNSCHEDULABLE.value: "",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE.value: " (evicting pods would not help)",
}


def refusals(nodes: Mapping[str, Mapping[str, Any]], width: int, *, all_nodes: bool) -> Iterator[str]:
    """Yield lines; the plugin and reason with the most nodes come first.

    Args:
        nodes: name -> result, as in an explanation, of the nodes that are not feasible.
        width: number of columns of the terminal.
        all_nodes: whether to show all of them.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], Kinds] = {}
    for name, verdict in nodes.items():
        key = verdict["plugin"], verdict["code"], tuple(verdict["reasons"])
        said = tuple(verdict["details"]) if "details" in verdict else None
        groups.setdefault(key, {}).setdefault(said, []).append(name)
    sizes = {key: sum(map(len, kinds.values())) for key, kinds in groups.items()}
    counts, is_cut = len(str(max(sizes.values()))), False
    for key, size in sorted(sizes.items(), key=lambda item: -item[1]):
        plugin, code, reasons = key
        description = f"{plugin}: {', '.join(reasons)}{_CODES.get(code, f' ({code})')}"
        yield filled(f"{size:>{counts}}  {description}", width, indent=2, hanging=counts + 4)
        yield from _nodes(groups[key], width, counts + 4, all_nodes=all_nodes)
        is_cut |= len(groups[key]) > _KINDS_SHOWN or max(map(len, groups[key].values())) > _NAMES_SHOWN
    if is_cut and not all_nodes:
        yield "  --all-nodes shows all of them"


def _nodes(kinds: Kinds, width: int, indent: int, *, all_nodes: bool) -> Iterator[str]:
    """Yield the names of nodes, grouped by equal details; nodes without details come last."""
    most = None if all_nodes else _NAMES_SHOWN
    telling = [(said, names) for said, names in kinds.items() if said is not None]
    shown = telling if all_nodes else telling[:_KINDS_SHOWN]
    for said, names in shown:
        yield from _with_details(some(names, most), said or (_NOT_ANY_MORE,), width, indent)
    rest = [name for _, names in telling[len(shown) :] for name in names] + kinds.get(None, [])
    if rest:
        text = f"and {len(rest)} more" if shown and not all_nodes else some(rest, most)
        yield filled(text, width, indent=indent)


def _with_details(names: str, details: Sequence[str], width: int, indent: int) -> Iterator[str]:
    line = f"{' ' * indent}{names}: {'; '.join(details)}"
    if len(line) <= width:
        yield line
    else:
        yield filled(f"{names}:", width, indent=indent)
        yield from detailed(details, width, indent + 2)


def detailed(details: Iterable[str], width: int, indent: int) -> Iterator[str]:
    """Yield a plugin's details, with a new line for each sentence."""
    for detail in details:
        own = len(detail) - len(detail.lstrip(" "))
        yield filled(detail, width, indent=indent, hanging=indent + own + 2)
