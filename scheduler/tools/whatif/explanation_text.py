"""Explanations as text: the result, the feasible nodes by rank, the rejected nodes by reason, and groups."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

from rich.text import Text

from scheduler.engine.cycle.verdict import first_to_end, of_other_replicas, protected_text
from scheduler.framework.status import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from scheduler.engine.cycle.explanation import Explanation
    from scheduler.engine.cycle.group_explanation import GroupExplanation


def filled(text: str, width: int, *, indent: int = 0, hanging: int | None = None) -> str:
    """Break a text into lines; a word that is wider than a line stays whole.

    Args:
        text: text without line breaks; leading spaces are kept.
        width: width of a line, in columns.
        indent: spaces before the first line.
        hanging: spaces before the other lines; None for the same number.
    """
    text, begin = text.lstrip(" "), " " * (indent + len(text) - len(text.lstrip(" ")))
    after = begin if hanging is None else " " * hanging
    return textwrap.fill(
        text,
        width,
        initial_indent=begin,
        subsequent_indent=after,
        break_long_words=False,
        break_on_hyphens=False,
    )


def some(names: list[str], shown: int | None) -> str:
    """Return the first names of many: `a, b, c and 7 more`; all with None."""
    rest = 0 if shown is None else max(0, len(names) - shown)
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest else "")


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


Kinds = dict[tuple[str, ...] | None, list[str]]
"""Details from a plugin -> the nodes that have them; None for nodes without details."""

_NAMES_SHOWN = 3
_KINDS_SHOWN = 3
_NOT_ANY_MORE = "the reason no longer applies; it did at the time of the decision"
_REJECTIONS = {Code.UNSCHEDULABLE.value, Code.UNSCHEDULABLE_AND_UNRESOLVABLE.value}


def refusals(
    nodes: Mapping[str, Mapping[str, Any]],
    rejections: Iterable[Mapping[str, Any]],
    width: int,
    *,
    all_nodes: bool,
) -> Iterator[str]:
    """Yield lines; the plugin and reason with the most nodes come first.

    Args:
        nodes: name -> result, as in an explanation, of the nodes that are not feasible.
        rejections: as in an explanation.
        width: number of columns of the terminal.
        all_nodes: whether to show all of them.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], Kinds] = {}
    summaries = {(each["plugin"], tuple(each["reasons"])): each["summary"] for each in rejections}
    for name, verdict in nodes.items():
        key = verdict["plugin"], verdict["code"], tuple(verdict["reasons"])
        details = tuple(verdict["details"]) if "details" in verdict else None
        groups.setdefault(key, {}).setdefault(details, []).append(name)
    sizes = {key: sum(map(len, kinds.values())) for key, kinds in groups.items()}
    counts, is_cut = len(str(max(sizes.values()))), False
    for key, size in sorted(sizes.items(), key=lambda item: -item[1]):
        plugin, code, reasons = key
        description = f"{plugin}: {', '.join(reasons)}{'' if code in _REJECTIONS else f' ({code})'}"
        if summary := summaries.get((plugin, reasons)):
            description += f"; {summary}"
        counted = f"{size:>{counts}} node{'s' if size > 1 else ''}"
        yield filled(f"{counted}: {description}", width, indent=2, hanging=counts + 4)
        yield from _nodes(groups[key], width, counts + 4, all_nodes=all_nodes)
        is_cut |= len(groups[key]) > _KINDS_SHOWN or max(map(len, groups[key].values())) > _NAMES_SHOWN
    if is_cut and not all_nodes:
        yield "  --all-nodes shows all of them"


def _nodes(kinds: Kinds, width: int, indent: int, *, all_nodes: bool) -> Iterator[str]:
    """Yield the names of nodes, grouped by equal details; nodes without details come last."""
    most = None if all_nodes else _NAMES_SHOWN
    telling = [(details, names) for details, names in kinds.items() if details is not None]
    shown = telling if all_nodes else telling[:_KINDS_SHOWN]
    for details, names in shown:
        yield from _with_details(some(names, most), details or (_NOT_ANY_MORE,), width, indent)
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
    yield from _protected_lines(preemption.get("protected", {}), all_nodes=all_nodes)


def _protected_lines(protected: Mapping[str, Any], *, all_nodes: bool) -> Iterator[str]:
    """Yield a sentence for each node with protected pods, the first end of a protection first."""
    nodes = first_to_end(protected)
    shown = nodes if all_nodes else nodes[:_NODES_SHOWN]
    for name in shown:
        yield f"On {name} pod {protected_text(protected[name])}."
    if len(nodes) > len(shown):
        yield f"Pods on {len(nodes) - len(shown)} more nodes are protected: --all-nodes shows them."


def _by_evicting(candidate: Mapping[str, Any], *, all_nodes: bool) -> str:
    victims, violations = candidate["victims"], candidate["pdbViolations"]
    who = some(victims, None if all_nodes else _VICTIMS_SHOWN) or "no pods"
    against = f", violating the PodDisruptionBudgets of {violations} of them" if violations else ""
    return f"evicting {who}{against}"


_GROUP_STYLES = {"schedulable": "green", "gated": "yellow", "waiting_on_preemption": "yellow"}
_RESULTS = {"waiting_on_preemption": "waiting on preemption"}
_PLACEMENTS_SHOWN = 8


def member_of(brief: dict[str, Any]) -> str:
    """Return a sentence about the group of a pod; a group without an attempt has no result."""
    result = brief["result"]
    text = (
        f"It waits for its group {_named(brief)}" if result != "schedulable" else f"Its group {_named(brief)}"
    )
    if result is None:
        return f"{text}, which had no attempt yet."
    fits = f", {brief['fits']} of {brief['members']} members fit" if result != "gated" else ""
    message = f": {brief['message']}" if brief["message"] else "."
    return f"{text}: {_RESULTS.get(result, result)}{fits}{message}"


def show_group(console: Console, explanation: GroupExplanation, *, all_nodes: bool) -> None:
    """Print the explanation of a group, the verdict first, with all domains and members, or only the first of each kind."""
    width = console.width
    show_verdict(console, explanation)
    result: str = explanation["result"]
    members = explanation["members"]
    text = Text.assemble(
        (f"group {_named(explanation)}", "bold"),
        ": ",
        (_RESULTS.get(result, result), f"bold {_STYLES.get(result, 'red')}"),
    )
    if result != "gated":
        text.append(f", {explanation['fits']} of {len(members)} members fit")
    console.print(text, soft_wrap=not console.is_terminal)
    if explanation["message"]:
        console.print(Text(explanation["message"]), soft_wrap=not console.is_terminal)
    _print(console, filter(None, [reason_codes(explanation.get("causes", ()))]))
    for sentence in (
        *_attempt(explanation),
        *_standing(explanation),
        *_room(explanation, all_nodes=all_nodes),
    ):
        console.print(Text(filled(sentence, width, hanging=2)), soft_wrap=True)
    for head, lines in (
        (_domains_head(explanation), _domains(explanation, width, all_nodes=all_nodes)),
        ("Groups:", _groups(explanation.get("groups", ()), width)),
        ("Members:", _members(members, width, all_nodes=all_nodes)),
    ):
        shown = list(lines)
        if shown:
            console.print(Text(head, style="bold"), soft_wrap=True)
        for line in shown:
            console.print(Text(line), soft_wrap=True)
    console.print()


def _named(group: dict[str, Any]) -> str:
    name: str = group["group"]
    minimum = "minGroupCount" if "groups" in group else "minCount"
    asks = [f"{minimum} {group['minCount']}"] if group["minCount"] else []
    if group["topologyKey"]:
        asks.append(f"in one {group['topologyKey']}")
    return name + (f" ({', '.join(asks)})" if asks else "")


def _groups(groups: Iterable[dict[str, Any]], width: int, indent: str = "  ") -> Iterator[str]:
    """Yield the results of the children of a composite group, and of the groups below them."""
    for group in groups:
        result: str = group["result"]
        why = f": {group['message']}" if group["message"] else ""
        text = f"{indent}{_named(group)}: {_RESULTS.get(result, result)}{why}"
        yield filled(text, width, hanging=len(indent) + 2)
        yield from _groups(group.get("groups", ()), width, f"{indent}  ")


def _attempt(explanation: GroupExplanation) -> Iterator[str]:
    if "at" in explanation:
        yield f"Last attempt at {explanation['at']}, took {explanation['seconds']:.3f} s."
    if searched := explanation["searched"]:
        yield f"The search for another order of its members took {searched} decisions."


def _standing(explanation: GroupExplanation) -> Iterator[str]:
    place, placed = explanation["place"], explanation["placed"]
    if placed:
        yield f"{placed} of its pods {'is' if placed == 1 else 'are'} already on nodes."
    if place is None:
        yield "None of its pods is in the queue."
        return
    where = f"In the queue: {place}"
    if explanation["before"] is not None:
        count = explanation["before"]
        where += f", {count} pod{' is' if count == 1 else 's are'} ahead of it" if count else ", next"
    if explanation["backoffSeconds"] is not None:
        where += f", backoff ends in {explanation['backoffSeconds']:.1f} s"
    waiting = explanation["waitingGroups"]
    others = "the only pending group" if waiting == 1 else f"one of {waiting} pending groups"
    yield f"{where}; {others}."
    for plugin, kinds in explanation["requeuingEvents"].items():
        yield f"{plugin} requeues it after changes of {some(list(kinds), None)}."


def _room(explanation: GroupExplanation, *, all_nodes: bool) -> Iterator[str]:
    if protected := explanation.get("protected"):
        yield f"Pod {protected_text(protected)}."
    victims = explanation["victims"]
    if victims:
        shown = some(victims, None if all_nodes else _VICTIMS_SHOWN)
        yield f"Preemption would evict {len(victims)} pod{'' if len(victims) == 1 else 's'}: {shown}."
    refused: dict[str, list[dict[str, Any]]] = {}
    for member in explanation["members"]:
        if "plugin" in member:
            refused.setdefault(member["plugin"], []).append(member)
    for plugin, members in refused.items():
        message = members[0]["message"] or ""
        yield f"{plugin} rejects {len(members)} of its members on every node: {message}"


def _domains_head(explanation: GroupExplanation) -> str:
    return f"Domains of {explanation['topologyKey']}, best first:"


def _domains(explanation: GroupExplanation, width: int, *, all_nodes: bool) -> Iterator[str]:
    placements = explanation["placements"] or ()
    shown = placements if all_nodes else placements[:_PLACEMENTS_SHOWN]
    if not shown:
        return
    longest = max(6, width - 44)
    names = [_cut(each["name"], longest) for each in shown]
    wide = max(6, *map(len, names))
    yield f"  {'domain':<{wide}}  nodes  capacity  fit  score"
    for name, each in zip(names, shown, strict=True):
        fits, total = ("-" if each[key] is None else each[key] for key in ("fits", "total"))
        here = "  chosen" if each["chosen"] else ""
        yield f"  {name:<{wide}}  {each['nodes']:>5}  {each['room']:>8}  {fits:>3}  {total:>5}{here}"
    if len(placements) > len(shown):
        yield f"  and {len(placements) - len(shown)} more: --all-nodes shows them"


def _members(members: list[dict[str, Any]], width: int, *, all_nodes: bool) -> Iterator[str]:
    """Yield lines for the members; members with the same result share a line."""
    kinds: dict[tuple[bool, str], list[str]] = {}
    for member in members:
        fits, node = member["fits"], member["node"]
        message = member["message"] or ""
        where = f"{member['pod']} (on {node})" if fits and node else member["pod"]
        kinds.setdefault((fits, message), []).append(where)
    for (fits, message), names in sorted(kinds.items(), key=lambda kind: kind[0][0]):
        one = len(names) == 1
        verdict = f"{len(names)} {('fits' if one else 'fit') if fits else ('does not fit' if one else 'do not fit')}"
        suffix = f": {message}" if message else ""
        yield filled(f"{verdict}{suffix}", width, indent=2, hanging=4)
        yield filled(some(names, None if all_nodes else _NAMES_SHOWN), width, indent=4)


def _cut(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


_STYLES = {"schedulable": "green", "unschedulable": "red", "gated": "yellow", "error": "red"}


def show(console: Console, explanation: Explanation, *, all_nodes: bool, drawn: bool = False) -> None:
    """Print an explanation, the verdict first; the arguments are those of `show_reasons`."""
    show_verdict(console, explanation)
    show_reasons(console, explanation, all_nodes=all_nodes, drawn=drawn)


def show_reasons(console: Console, explanation: Explanation, *, all_nodes: bool, drawn: bool = False) -> None:
    """Print an explanation without its verdict, with all nodes, or only the first ones of each kind.

    Args:
        console: the console.
        explanation: the explanation, from `judging` or a daemon.
        all_nodes: whether to show all nodes.
        drawn: whether the chosen node was drawn among the best ones, as a daemon does.
    """
    width = console.width
    nodes = explanation["nodes"]
    feasible = {name: verdict for name, verdict in nodes.items() if verdict["feasible"]}
    refused = {name: verdict for name, verdict in nodes.items() if not verdict["feasible"]}
    ranked = {name: verdict for name, verdict in feasible.items() if "total" in verdict}
    if "group" in explanation:
        _print(console, [filled(member_of(explanation["group"]), width, hanging=2)])
    if "requeued" in explanation:
        console.print(f"The event {'requeues' if explanation['requeued'] else 'does not requeue'} it.")
    if explanation["message"]:
        console.print(Text(explanation["message"]), soft_wrap=not console.is_terminal)
    _print(console, filter(None, [reason_codes(explanation.get("causes", ()))]))
    goes = _goes(explanation, drawn=drawn)
    sentences = [
        *([goes] if goes else ()),
        *_where_it_is(explanation),
        *preemption_lines(explanation, all_nodes=all_nodes),
        *_left_out(explanation, all_nodes=all_nodes),
    ]
    _print(console, [filled(each, width, hanging=2) for each in sentences])
    if explanation["preFilter"]:
        details = explanation["preFilter"].get("details", ())
        description = (
            f"{explanation['preFilter']['plugin']} rejects the pod on every node{':' if details else '.'}"
        )
        _print(console, [filled(description, width), *detailed(details, width, 2)])
    chosen = explanation.get("chosen")
    if ranked:
        for line, name in ranking(ranked, explanation.get("weights", {}), width, all_nodes=all_nodes):
            style = "bold green" if name and name == chosen else "bold" if not name else ""
            console.print(Text(line, style=style), soft_wrap=True)
    _print(console, _not_ranked(feasible, ranked, chosen, width, all_nodes=all_nodes))
    if refused:
        console.print(Text("Rejected nodes:", style="bold"))
        rejections = explanation.get("rejections", ())
        _print(console, refusals(refused, rejections, width, all_nodes=all_nodes))
    console.print()


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def reason_codes(causes: Iterable[Mapping[str, Any]]) -> str:
    """Return a line with the reason codes of an explanation, and what each counts; "" without any."""
    words = [each["code"] + _counted(each) for each in causes]
    return f"Reason codes: {', '.join(words)}" if words else ""


def _counted(cause: Mapping[str, Any]) -> str:
    for kind in ("node", "member"):
        if number := cause.get(f"{kind}s"):
            return f" ({number} {kind}{'' if number == 1 else 's'})"
    return ""


def show_verdict(console: Console, explanation: Mapping[str, Any]) -> None:
    """Print a verdict as one line, so that it can be searched; a terminal would break it within words."""
    console.print(Text(explanation["verdict"], style="bold"), soft_wrap=not console.is_terminal)


def _goes(explanation: Explanation, *, drawn: bool) -> str:
    """Return the chosen node, and how it was chosen among equal ones."""
    if "group" in explanation and explanation["result"] != "schedulable":
        return ""  # a node fits, but the pod waits for the others of its group
    chosen, best = explanation.get("chosen"), explanation.get("best", [])
    nominated = explanation.get("nominatedNodeName")
    if nominated and nominated in {chosen, *best[:1]}:
        return f"Chosen node: {nominated}, the nominated node."
    if chosen is None and len(best) > 1:
        return f"Chosen node: one of {some(best, _NAMES_SHOWN)}, at random among the {len(best)} with the highest total."
    if chosen is None:
        return f"Chosen node: {best[0]}." if best else ""
    if len(best) > 1:
        how = "at random among" if drawn else "the first of"
        return f"Chosen node: {chosen}, {how} the {len(best)} with the highest total{of_other_replicas(explanation)}."
    return f"Chosen node: {chosen}{of_other_replicas(explanation) if best else ''}."


def _where_it_is(explanation: Explanation) -> Iterable[str]:
    """Say what a deferred resize changes, how a pod on a node is protected, and compare its current node with the result."""
    if resize := explanation.get("resize"):
        changes = [
            f"{amount} {name} (allocated: {resize['allocated'][name]})"
            for name, amount in resize["requested"].items()
        ]
        message = f": {resize['message']}" if resize["message"] else "."
        yield f"Resize to {', '.join(changes) or 'its new requests'} deferred by the kubelet{message}"
    for each in explanation.get("protections", ()):
        yield f"Pod {protected_text(each)}."
    name, nodes = explanation.get("node"), explanation["nodes"]
    verdict = nodes.get(name)
    if verdict is None:
        return
    if not verdict["feasible"]:
        yield f"Its current node {name} would be rejected by {verdict['plugin']}: {', '.join(verdict['reasons'])}."
    elif (best := explanation.get("best")) and name not in best:
        yield f"Its current node {name} has a total that is {nodes[best[0]]['total'] - verdict['total']} lower."
    elif best:
        yield f"Its current node {name} is {'the same' if len(best) == 1 else 'one of them'}."


def _left_out(explanation: Explanation, *, all_nodes: bool) -> Iterable[str]:
    if "notExamined" in explanation:
        yield f"Nodes not examined: {explanation['notExamined']}."
    if "preFilterNodes" in explanation:
        names = some(explanation["preFilterNodes"], None if all_nodes else _NAMES_SHOWN)
        yield f"PreFilter limits the nodes to: {names}"


def _not_ranked(
    feasible: dict[str, Any], ranked: dict[str, Any], chosen: str | None, width: int, *, all_nodes: bool
) -> Iterable[str]:
    """Yield the feasible nodes without a total: those that were avoided, by reason, or all of them."""
    kinds: dict[str, list[str]] = {}
    for name, verdict in feasible.items():
        if name not in ranked and name != chosen:
            kinds.setdefault(verdict.get("avoided", ""), []).append(name)
    for why, names in kinds.items():
        description = f"Not scored{f', avoided ({why})' if why else ''}: "
        yield filled(description + some(names, None if all_nodes else _NAMES_SHOWN), width, hanging=2)
