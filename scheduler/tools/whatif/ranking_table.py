"""The nodes that fit a pod, best first, with the scores that differ."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scheduler.tools.whatif.text_lines import filled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHOWN = 10
_GAP = 2
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[^A-Z]+")


def ranking(
    nodes: Mapping[str, Mapping[str, Any]], weights: Mapping[str, int], width: int, *, all_nodes: bool
) -> Iterator[tuple[str, str]]:
    """Yield the lines of a table, each with the name of its node, or "" for a heading.

    Scores that all nodes share are shown once. If the others need too many columns, each node has them below its name.

    Args:
        nodes: name -> result, as in an explanation, of the nodes with a total.
        weights: as in an explanation.
        width: number of columns of the terminal.
        all_nodes: whether to show all of them.
    """
    ranked = sorted(nodes.items(), key=lambda item: (-item[1]["total"], item[0]))
    shown = ranked if all_nodes else ranked[:_SHOWN]
    scores = {name: verdict.get("scores", {}) for name, verdict in ranked}
    first = scores[ranked[0][0]]
    same = [plugin for plugin in first if len({each[plugin] for each in scores.values()}) == 1]
    if len(ranked) == 1:
        same = []
    telling = [plugin for plugin in first if plugin not in same]
    heading = "Nodes by rank" + (", with score x weight of each plugin:" if first else ":")
    yield filled(heading, width, hanging=2), ""
    if same:
        words = ", ".join(f"{plugin} {_score(first[plugin], weights.get(plugin, 1))}" for plugin in same)
        yield filled(f"the same on all nodes: {words}", width, indent=2, hanging=4), ""
    rows = [
        [name, str(verdict["total"]), *(_score(scores[name][each], weights.get(each, 1)) for each in telling)]
        for name, verdict in shown
    ]
    table = _table(rows, telling)
    if len(ranked) > 1 and max(map(len, table)) <= width:
        headings = len(table) - len(rows)
        yield from ((line, "") for line in table[:headings])
        yield from zip(table[headings:], (row[0] for row in rows), strict=True)
    else:
        for row in rows:
            yield from _one(row, telling, width)
    if len(ranked) > len(shown):
        yield f"  and {len(ranked) - len(shown)} more: --all-nodes shows them", ""


def _score(weighted: int, weight: int) -> str:
    return str(weighted) if weight == 1 else f"{weighted // weight} x {weight}"


def _table(rows: Sequence[Sequence[str]], plugins: Sequence[str]) -> list[str]:
    """Return the lines of a table; a plugin's name in the heading has one line per word."""
    stacks = [["Node"], ["Total"], *(_WORDS.findall(plugin) for plugin in plugins)]
    height = max(map(len, stacks))
    cells = [[*[""] * (height - len(stack)), *stack] for stack in stacks]
    lines = [*zip(*cells, strict=True), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        " " * _GAP + (" " * _GAP).join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    ]


def _one(row: Sequence[str], plugins: Sequence[str], width: int) -> Iterator[tuple[str, str]]:
    """Yield a node with its scores below its name."""
    name, total, *scores = row
    yield f"  {name}  total {total}", name
    if scores:
        words = ", ".join(f"{plugin} {score}" for plugin, score in zip(plugins, scores, strict=True))
        yield filled(words, width, indent=6), name
